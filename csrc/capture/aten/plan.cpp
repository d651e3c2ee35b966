// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// How a plan is made: by the Meta kernel, from the arguments alone, or from a CPU kernel's results.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "capture/aten/kernel.h"
#include "capture/aten/layouts.h"
#include "capture/aten/shape_cache.h"
#include "capture/aten/stack_map.h"
#include "capture/recorder.h"

namespace trnsim::capture {
namespace {

at::Tensor meta_copy(const at::Tensor& tensor) {
  // A Python number among the arguments: its value may reach a Python kernel, so it stays.
  if (tensor.is_cpu() && tensor.dim() == 0) return tensor;
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), int64_t(tensor.storage().nbytes()),
      c10::GetAllocator(c10::DeviceType::Meta), true);
  auto copy = at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::Meta),
      tensor.dtype());
  auto* const impl = copy.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  at::Tensor result(std::move(copy));
  if (tensor.is_conj()) result._set_conj(true);
  if (tensor.is_neg()) result._set_neg(true);
  return result;
}

TensorPlan fresh_plan(const at::Tensor& tensor) {
  TensorPlan plan;
  plan.dtype = tensor.scalar_type();
  plan.sizes = tensor.sizes();
  plan.strides = tensor.strides();
  plan.bytes = int64_t(
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize()));
  return plan;
}

// What a result is, told by the identity of the arguments' stand-ins.
TensorPlan result_plan(const at::Tensor& result, const std::vector<at::Tensor>& arguments) {
  TensorPlan plan;
  if (!result.defined()) {
    plan.kind = TensorPlan::Kind::none;
    return plan;
  }
  check_layout(result, running_op());
  plan = fresh_plan(result);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined()) continue;
    if (result.is_same(arguments[i])) {
      plan.kind = TensorPlan::Kind::argument;
      plan.argument = int32_t(i);
      return plan;
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined() || !result.has_storage() || result.storage().nbytes() == 0)
      continue;
    if (result.storage().is_alias_of(arguments[i].storage())) {
      plan.kind = TensorPlan::Kind::view;
      plan.argument = int32_t(i);
      plan.offset = result.storage_offset();
      return plan;
    }
  }
  return plan;
}

ReturnPlan return_plan(const c10::IValue& value, const std::vector<at::Tensor>& arguments) {
  ReturnPlan plan;
  if (value.isTensor()) {
    plan.tensors.push_back(result_plan(value.toTensor(), arguments));
  } else if (value.isTensorList()) {
    plan.is_list = true;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      plan.tensors.push_back(result_plan(tensor, arguments));
    }
  } else if (value.isNone()) {
    plan.tensors.emplace_back().kind = TensorPlan::Kind::none;
  } else {
    plan.is_tensor = false;
    plan.value = value;
  }
  return plan;
}

void plan_resizes(CallPlan& plan, const TensorArguments& tensors,
                  const std::vector<at::Tensor>& arguments) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].mutated || !arguments[i].defined()) continue;
    if (arguments[i].sizes() == tensors[i].tensor->sizes() &&
        arguments[i].strides() == tensors[i].tensor->strides()) {
      continue;
    }
    plan.resized.push_back({int32_t(i), fresh_plan(arguments[i])});
  }
}

// Neither a default device nor a dispatch mode of the script may see what a Meta kernel calls.
struct WithoutModes {
  c10::impl::ExcludeDispatchKeyGuard keys{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
  at::impl::TorchFunctionDisabledState state =
      at::impl::PythonTorchFunctionTLS::get_disabled_state();
  WithoutModes() {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(
        at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~WithoutModes() { at::impl::PythonTorchFunctionTLS::set_disabled_state(state); }
};

}  // namespace

std::unique_ptr<CallPlan> plan_by_meta(const c10::OperatorHandle& op, const OpFacts& facts,
                                       const torch::jit::Stack& stack,
                                       const TensorArguments& tensors) {
  std::vector<at::Tensor> arguments;
  arguments.reserve(tensors.size());
  const auto replace = [&](const at::Tensor& tensor) {
    arguments.push_back(meta_copy(tensor));
    return arguments.back();
  };
  torch::jit::Stack meta = map_arguments(facts, stack, c10::Device(c10::DeviceType::Meta), replace,
                                         [](const c10::IValue&) { return c10::IValue(); });
  {
    const WithoutModes guard;
    const QuietScope quiet;
    call_kernel(op, special_op(facts.name).meta, c10::DispatchKey::Meta, meta);
  }
  auto plan = std::make_unique<CallPlan>();
  for (const auto& value : meta) plan->returns.push_back(return_plan(value, arguments));
  plan_resizes(*plan, tensors, arguments);
  return plan;
}

std::unique_ptr<CallPlan> plan_in_place(const OpFacts& facts, const TensorArguments& tensors) {
  if (facts.pointwise && !tensors.empty() && tensors[0].mutated && tensors[0].index < 0) {
    const auto sizes = tensors[0].tensor->sizes();
    for (const auto& argument : tensors) {
      if (argument.index >= 0) continue;
      const auto other = argument.tensor->sizes();
      const bool fits = other.size() <= sizes.size() && at::is_expandable_to(other, sizes);
      if (fits) continue;
      const auto broadcast = at::infer_size(sizes, other);  // its own error when there is none
      TORCH_CHECK(false, "output with shape ", sizes, " doesn't match the broadcast shape ",
                  c10::IntArrayRef(broadcast));
    }
  }
  auto plan = std::make_unique<CallPlan>();
  for (const int alias : facts.alias_of_return) {
    ReturnPlan result;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].argument != alias) continue;
      if (tensors[i].index >= 0) result.is_list = true;
      TensorPlan& tensor = result.tensors.emplace_back(fresh_plan(*tensors[i].tensor));
      tensor.kind = TensorPlan::Kind::argument;
      tensor.argument = int32_t(i);
    }
    plan->returns.push_back(std::move(result));
  }
  return plan;
}

std::unique_ptr<CallPlan> plan_by_results(const TensorArguments& tensors,
                                          const std::vector<at::Tensor>& host,
                                          const std::vector<c10::IValue>& results) {
  auto plan = std::make_unique<CallPlan>();
  for (const auto& value : results) plan->returns.push_back(return_plan(value, host));
  plan_resizes(*plan, tensors, host);
  return plan;
}

}  // namespace trnsim::capture
