// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Copies of a call's arguments with every tensor replaced, in the order of tensor_arguments: for
// the Meta kernels and for the CPU kernels.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include "capture/aten/facts.h"
#include "capture/aten/special.h"

namespace trnsim::capture {

// `replace(tensor)` is called for every defined tensor; undefined ones and other values are kept.
template <typename Replace>
c10::IValue map_tensors(const c10::IValue& value, Replace& replace) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::IValue(replace(value.toTensor())) : value;
  }
  if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) {
    return value;
  }
  const auto items = value.toListRef();
  c10::impl::GenericList list(value.toList().elementType());
  list.reserve(items.size());
  for (const auto& item : items) list.push_back(map_tensors(item, replace));
  return list;
}

// The op's arguments (the top of `stack`) with tensors replaced and placements moved to `device`.
template <typename Replace, typename ReplaceGenerator>
torch::jit::Stack map_arguments(const OpFacts& facts, const torch::jit::Stack& stack,
                                c10::Device device, Replace replace,
                                ReplaceGenerator replace_generator) {
  const size_t count = facts.arguments.size();
  torch::jit::Stack result;
  result.reserve(count);
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isDevice()) {
      result.emplace_back(device);
    } else if (value.isGenerator() ||
               (value.isNone() && facts.arguments[i + count - stack.size()].name == "generator")) {
      result.push_back(replace_generator(value));
    } else {
      result.push_back(map_tensors(value, replace));
    }
  }
  return result;
}

// Calls our function for the op where there is one, else PyTorch's kernel for `key`.
inline void call_kernel(const c10::OperatorHandle& op, StackFunction function,
                        c10::DispatchKey key, torch::jit::Stack& stack) {
  if (function) {
    function(stack);
  } else {
    op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  }
}

}  // namespace trnsim::capture
