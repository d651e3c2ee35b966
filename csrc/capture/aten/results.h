// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// From a plan and, where values are known, a CPU kernel's results to device tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/Exceptions.h>

#include <exception>
#include <memory>
#include <vector>

#include "capture/aten/shape_cache.h"
#include "capture/aten/special.h"
#include "capture/runtime/block.h"

namespace trnsim::capture {

// A tensor on a new storage; its values are whatever the allocator says of a new block.
at::Tensor make_device_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              c10::ScalarType dtype, c10::Device device);
// The same around a CPU tensor's storage: not copied when the layout agrees and nobody shares it.
at::Tensor adopt(const at::Tensor& host, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                 c10::ScalarType dtype, c10::Device device);

// One return of the op; appends the blocks of its tensors. `host` is null when nothing was
// computed.
c10::IValue make_result(const ReturnPlan& plan, const c10::IValue* host,
                        const TensorArguments& tensors, c10::Device device,
                        c10::SmallVectorImpl<Block*>& blocks);

// Gives an out= argument the planned shape.
void resize_argument(const at::Tensor& tensor, const TensorPlan& to);
// The same after a CPU kernel resized the aliases.
void adopt_resized_arguments(const TensorArguments& tensors, const std::vector<at::Tensor>& host);

// Do the tensor's elements fill its storage?
bool covers_storage(const at::Tensor& tensor);

// Runs the CPU kernel on ones and takes the shapes of its results; rethrows `failure` when the
// arguments are larger than `limit_bytes` or the CPU kernel fails too.
std::unique_ptr<CallPlan> plan_by_scratch(const c10::OperatorHandle& op, const OpFacts& facts,
                                          StackFunction host_function,
                                          const torch::jit::Stack& stack,
                                          const TensorArguments& tensors, int64_t limit_bytes,
                                          std::exception_ptr failure);

// NotImplementedError and the errors by which PyTorch's Meta kernels say that values are needed.
bool is_python_not_implemented(python_error& error);

}  // namespace trnsim::capture
