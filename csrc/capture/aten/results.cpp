// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/aten/results.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include "base/error.h"
#include "capture/aten/kernel.h"
#include "capture/aten/stack_map.h"
#include "capture/recorder.h"
#include "capture/runtime/allocator.h"
#include "capture/runtime/device_type.h"
#include "capture/runtime/hooks.h"

namespace trnsim::capture {
namespace {

at::Tensor on_storage(c10::Storage storage, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      int64_t offset, c10::ScalarType dtype) {
  at::Tensor tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(dispatch_key()),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

c10::intrusive_ptr<c10::StorageImpl> storage_of(const at::Tensor& tensor) {
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
      tensor.storage().unsafeGetStorageImpl());
}

bool same_layout(const at::Tensor& host, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (host.sizes() != sizes || host.storage_offset() != 0) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && host.stride(int64_t(i)) != strides[i]) return false;
  }
  return !host.is_conj() && !host.is_neg();
}

at::Tensor make_tensor(const TensorPlan& plan, const at::Tensor* host,
                       const TensorArguments& tensors, c10::Device device) {
  switch (plan.kind) {
    case TensorPlan::Kind::none: return {};
    case TensorPlan::Kind::argument: return *tensors[size_t(plan.argument)].tensor;
    case TensorPlan::Kind::view:
      return on_storage(tensors[size_t(plan.argument)].tensor->storage(), plan.sizes, plan.strides,
                        plan.offset, plan.dtype);
    case TensorPlan::Kind::fresh: break;
  }
  if (host && host->defined()) return adopt(*host, plan.sizes, plan.strides, plan.dtype, device);
  at::Tensor tensor = make_device_tensor(plan.sizes, plan.strides, plan.dtype, device);
  if (Block* const block = block_of(tensor)) forget_values(*block);
  return tensor;
}

}  // namespace

at::Tensor make_device_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              c10::ScalarType dtype, c10::Device device) {
  const auto bytes = int64_t(
      at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype)));
  c10::Storage storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, allocate_block(bytes, device.index()),
      trn_allocator(), true);
  return on_storage(std::move(storage), sizes, strides, 0, dtype);
}

at::Tensor adopt(const at::Tensor& host, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                 c10::ScalarType dtype, c10::Device device) {
  at::Tensor tensor = make_device_tensor(sizes, strides, dtype, device);
  Block* const block = block_of(tensor);
  at::Tensor source = host;
  const bool shares = host.storage().use_count() > 1;
  if (shares || host.scalar_type() != dtype || !same_layout(host, sizes, strides) ||
      int64_t(host.storage().nbytes()) != block->bytes) {
    source = at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype));
    // Some results only one of CPU and accelerators has, and nothing reads: the saved statistics of
    // a BatchNorm in evaluation, the bag sizes of a sum. They are zero, or left out.
    const bool is_empty = host.numel() == 0 || source.numel() == 0;
    TORCH_CHECK_NOT_IMPLEMENTED(host.numel() == source.numel() || is_empty, running_op(),
                                ": the CPU gives a result of shape ", host.sizes(),
                                " where the device has one of ", sizes, ": use --mode phantom");
    if (host.numel() == source.numel()) source.copy_(host.reshape(sizes));
    else source.zero_();
  }
  block->host = storage_of(source);
  block->known = true;
  return tensor;
}

c10::IValue make_result(const ReturnPlan& plan, const c10::IValue* host,
                        const TensorArguments& tensors, c10::Device device,
                        c10::SmallVectorImpl<Block*>& blocks) {
  if (!plan.is_tensor) return host ? *host : plan.value;
  const auto make = [&](const TensorPlan& tensor_plan, const at::Tensor* host_tensor) {
    at::Tensor tensor = make_tensor(tensor_plan, host_tensor, tensors, device);
    if (tensor.defined()) blocks.push_back(block_of(tensor));
    return tensor;
  };
  if (!plan.is_list) {
    if (host && host->isTensor()) return make(plan.tensors[0], &host->toTensor());
    return make(plan.tensors[0], nullptr);
  }
  c10::List<at::Tensor> list;
  list.reserve(plan.tensors.size());
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const at::Tensor* const host_tensor = host ? &host->toListRef()[i].toTensor() : nullptr;
    list.push_back(make(plan.tensors[i], host_tensor));
  }
  return list;
}

void resize_argument(const at::Tensor& tensor, const TensorPlan& to) {
  auto* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto needed = to.bytes + tensor.storage_offset() * int64_t(tensor.itemsize());
  if (int64_t(storage->nbytes()) < needed) resize_storage(*storage, needed);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(to.sizes, to.strides,
                                                      tensor.storage_offset());
}

void adopt_resized_arguments(const TensorArguments& tensors, const std::vector<at::Tensor>& host) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = *tensors[i].tensor;
    Block* block = tensors[i].mutated ? block_of(tensor) : nullptr;
    if (block == nullptr) continue;
    if (int64_t(host[i].storage().nbytes()) != block->bytes) {
      const auto values = storage_of(host[i]);
      resize_storage(*tensor.storage().unsafeGetStorageImpl(), int64_t(values->nbytes()));
      block = block_of(tensor);
      block->host = values;
      block->known = true;
    }
    if (host[i].sizes() != tensor.sizes() || host[i].strides() != tensor.strides()) {
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(host[i].sizes(), host[i].strides(),
                                                          host[i].storage_offset());
    }
  }
}

bool covers_storage(const at::Tensor& tensor) {
  const Block* const block = block_of(tensor);  // of which a storage may be a slice
  const int64_t bytes = block ? block->bytes : int64_t(tensor.storage().nbytes());
  return tensor.is_non_overlapping_and_dense() && tensor.storage_offset() == 0 &&
         int64_t(tensor.nbytes()) == bytes;
}

std::unique_ptr<CallPlan> plan_by_scratch(const c10::OperatorHandle& op, const OpFacts& facts,
                                          StackFunction host_function,
                                          const torch::jit::Stack& stack,
                                          const TensorArguments& tensors, int64_t limit_bytes,
                                          std::exception_ptr failure) {
  int64_t bytes = 0;
  for (const auto& argument : tensors) bytes += int64_t(argument.tensor->nbytes());
  if (bytes > limit_bytes) std::rethrow_exception(failure);
  std::vector<at::Tensor> host;
  const auto replace = [&](const at::Tensor& tensor) {
    host.push_back(at::empty_strided(tensor.sizes(), tensor.strides(),
                                     at::TensorOptions().dtype(tensor.dtype())));
    host.back().fill_(1);
    return host.back();
  };
  torch::jit::Stack arguments =
      map_arguments(facts, stack, c10::Device(c10::DeviceType::CPU), replace,
                    [](const c10::IValue&) { return c10::IValue(); });
  const QuietScope quiet;
  try {
    call_kernel(op, host_function, c10::DispatchKey::CPU, arguments);
  } catch (const c10::Error&) {
    std::rethrow_exception(failure);
  }
  return plan_by_results(tensors, host, arguments);
}

bool is_python_not_implemented(python_error& error) {
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_GivenExceptionMatches(error.type, PyExc_NotImplementedError)) return true;
  const std::string name = error.type ? reinterpret_cast<PyTypeObject*>(error.type)->tp_name : "";
  return name.find("DynamicOutputShape") != std::string::npos ||
         name.find("DataDependentOutput") != std::string::npos ||
         name.find("UnsupportedOperator") != std::string::npos;
}

}  // namespace trnsim::capture
