// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// RMS normalisation's backward pass, one op on an accelerator and a composite on the CPU. With
// y = x r and r = rstd over the normalised dimensions: dx = r (g w - y mean(g w y)), dw = sum g y.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "capture/aten/native/normalization.h"

namespace trnsim::capture {
namespace {

// (grad_out, input, normalized_shape, rstd, weight?, output_mask) -> (grad_input, grad_weight)
void rms_norm_backward(torch::jit::Stack& stack) {
  const auto input = stack[1].toTensor();
  const auto rstd = stack[3].toTensor();
  const auto type = rstd.scalar_type();
  const auto grad = stack[0].toTensor().to(type);
  const auto weight = stack[4].isTensor() ? stack[4].toTensor() : at::Tensor();
  const auto wanted = stack[5].toBoolList();
  std::vector<int64_t> dims;
  for (size_t i = 0; i < stack[2].toIntVector().size(); ++i) dims.push_back(-1 - int64_t(i));
  const auto y = input.to(type) * rstd;
  const auto scaled = weight.defined() ? grad * weight.to(type) : grad;
  at::Tensor grad_input, grad_weight;
  if (wanted.get(0)) {
    grad_input = (rstd * (scaled - y * (scaled * y).mean(dims, true))).to(input.scalar_type());
  }
  if (wanted.get(1) && weight.defined()) {
    grad_weight = at::sum_to(grad * y, weight.sizes()).to(weight.scalar_type());
  }
  stack.clear();
  stack.emplace_back(grad_input);
  stack.emplace_back(grad_weight);
}

constexpr SpecialOp kOps[] = {
    {"aten::_fused_rms_norm_backward", &rms_norm_backward, nullptr},
};

}  // namespace

SpecialOps normalization_ops() { return {kOps, std::size(kOps)}; }

}  // namespace trnsim::capture
