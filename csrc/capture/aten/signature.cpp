// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/aten/signature.h"

#include <ATen/core/Tensor.h>

#include <optional>

#include "capture/recorder.h"
#include "capture/runtime/block.h"

namespace trnsim::capture {
namespace {

using workload::Scalar;
using workload::ScalarValue;
using workload::Signature;

std::optional<ScalarValue> list_value(const c10::IValue& value, bool value_only) {
  if (value.isIntList()) return value.toIntVector();
  if (value.isBoolList()) {
    std::vector<int64_t> items;
    for (const bool item : value.toBoolList()) items.push_back(item);
    return items;
  }
  if (value_only) return std::nullopt;
  if (value.isDoubleList()) return value.toDoubleVector();
  std::vector<double> numbers;
  for (const auto& item : value.toListRef()) {
    if (item.isInt()) numbers.push_back(double(item.toInt()));
    else if (item.isDouble()) numbers.push_back(item.toDouble());
    else return std::nullopt;
  }
  if (numbers.empty()) return std::nullopt;
  return numbers;
}

bool names_dtype(const std::string& argument) {
  return argument == "dtype" || argument == "input_dtype" || argument == "out_dtype" ||
         argument == "output_dtype" || argument == "cdtype";
}

std::optional<ScalarValue> scalar_value(const c10::IValue& value, const ArgumentFacts& argument) {
  if (argument.placement || value.isTensor() || value.isTensorList()) return std::nullopt;
  if (names_dtype(argument.name) && value.isInt()) {
    return std::string(workload::dtype_name(dtype_of(c10::ScalarType(value.toInt()))));
  }
  if (value.isInt()) return value.toInt();
  if (value.isBool()) return value.toBool();
  if (value.isDouble()) {
    if (argument.value_only) return std::nullopt;
    return value.toDouble();
  }
  if (value.isString()) return value.toStringRef();
  if (value.isList()) return list_value(value, argument.value_only);
  return std::nullopt;
}

}  // namespace

Signature signature_of_arguments(const OpFacts& facts, const torch::jit::Stack& stack,
                                 const TensorArguments& tensors) {
  Signature signature;
  signature.op = facts.name;
  for (const auto& argument : tensors) {
    if (!is_trn(*argument.tensor)) continue;
    workload::TensorSlot slot;
    slot.argument = facts.arguments[size_t(argument.argument)].name;
    slot.index = argument.index;
    slot.mutated = argument.mutated;
    slot.meta = tensor_meta(*argument.tensor);
    signature.inputs.push_back(std::move(slot));
  }
  const size_t count = facts.arguments.size();
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    if (auto scalar = scalar_value(value, facts.arguments[i])) {
      signature.scalars.push_back({facts.arguments[i].name, std::move(*scalar)});
    }
  }
  return signature;
}

int32_t finish_signature(Signature signature, const OpFacts& facts, const CallPlan& plan) {
  for (size_t i = 0; i < plan.returns.size(); ++i) {
    const ReturnPlan& result = plan.returns[i];
    for (size_t j = 0; j < result.tensors.size(); ++j) {
      const TensorPlan& tensor = result.tensors[j];
      if (tensor.kind == TensorPlan::Kind::none) continue;
      workload::TensorSlot slot;
      slot.argument = "out" + std::to_string(i);
      slot.index = result.is_list ? int32_t(j) : -1;
      slot.mutated = tensor.kind == TensorPlan::Kind::argument;
      slot.meta.dtype = dtype_of(tensor.dtype);
      slot.meta.offset = tensor.offset;
      slot.meta.sizes.assign(tensor.sizes.begin(), tensor.sizes.end());
      slot.meta.strides.assign(tensor.strides.begin(), tensor.strides.end());
      signature.outputs.push_back(std::move(slot));
    }
  }
  return intern(signature);
}

}  // namespace trnsim::capture
