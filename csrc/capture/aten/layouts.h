// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Tensors that are not dense are refused, in one line that names the op, the layout and a way out,
// at the op that makes them or (compressed and nested ones) at the first that reads them:
// torch has no kernels of ours for them, and those of CUDA would come to libcudart.
#pragma once

#include <ATen/core/TensorBody.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace trnsim::capture {

// Puts refusals in place of all ops of sparse, nested and quantized device tensors.
void refuse_layouts();

// Throws that quantized tensors are refused.
void refuse_quantized_op(const c10::OperatorHandle& op);

// Throws when a result of the op is such a tensor.
void check_layout(const at::Tensor& result, const std::string& op);

}  // namespace trnsim::capture
