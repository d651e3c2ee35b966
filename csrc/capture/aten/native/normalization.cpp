// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// RMS normalisation's backward pass, one op on an accelerator and a composite on the CPU. With
// y = x r and r = rstd over the normalised dimensions: dx = r (g w - y mean(g w y)), dw = sum g y.
//
// Backward passes in half precision, with the statistics in float.
//
// The parts of batch normalisation that SyncBatchNorm puts its collectives between, which PyTorch
// has for accelerators alone. Statistics are float for half precision, of biased variances.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "capture/aten/special.h"

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

at::Tensor tensor_at(const torch::jit::Stack& stack, size_t index) {
  return stack[index].isTensor() ? stack[index].toTensor() : at::Tensor();
}

void leave(torch::jit::Stack& stack, std::initializer_list<at::Tensor> results) {
  stack.assign(results.begin(), results.end());
}

at::ScalarType statistics_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// All dimensions but that of the channels.
std::vector<int64_t> dims_beside_channels(const at::Tensor& input) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// One value a channel, to broadcast over `input`.
at::Tensor by_channel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> sizes(size_t(input.dim()), 1);
  sizes[1] = -1;
  return values.reshape(sizes);
}

// (input, eps) -> (mean, invstd)
void batch_norm_stats(torch::jit::Stack& stack) {
  const auto input = stack[0].toTensor();
  const auto x = input.to(statistics_type(input));
  const auto dims = dims_beside_channels(input);
  leave(stack, {x.mean(dims), (x.var(dims, 0, false) + stack[1].toDouble()).rsqrt()});
}

// (input, mean, invstd, running_mean?, running_var?, momentum, eps, counts) -> (mean, invstd) of
// all, from those of each rank: [ranks, channels]. Running statistics move in place.
void batch_norm_gather_stats(torch::jit::Stack& stack) {
  const auto means = stack[1].toTensor(), invstds = stack[2].toTensor();
  const double momentum = stack[5].toDouble(), eps = stack[6].toDouble();
  const auto counts = stack[7].toTensor().to(means.scalar_type()).reshape({-1, 1});
  const auto total = counts.sum();
  const auto mean = (means * counts).sum(0) / total;
  const auto variances = invstds.pow(-2) - eps + (means - mean).pow(2);
  const auto variance = (variances * counts).sum(0) / total;
  const auto move = [&](at::Tensor running, const at::Tensor& to) {
    if (running.defined()) running.mul_(1 - momentum).add_(to, momentum);
  };
  move(tensor_at(stack, 3), mean);
  move(tensor_at(stack, 4), variance * (total / (total - 1)));
  leave(stack, {mean, (variance + eps).rsqrt()});
}

// (input, weight?, bias?, mean, invstd, eps) -> output
void batch_norm_elemt(torch::jit::Stack& stack) {
  const auto input = stack[0].toTensor(), mean = stack[3].toTensor(), invstd = stack[4].toTensor();
  const auto weight = tensor_at(stack, 1), bias = tensor_at(stack, 2);
  auto y = (input.to(mean.scalar_type()) - by_channel(mean, input)) * by_channel(invstd, input);
  if (weight.defined()) y = y * by_channel(weight, input);
  if (bias.defined()) y = y + by_channel(bias, input);
  leave(stack, {y.to(input.scalar_type())});
}

// (grad_out, input, mean, invstd, weight?, input_g, weight_g, bias_g)
//   -> (sum_dy, sum_dy_xmu, grad_weight, grad_bias)
void batch_norm_backward_reduce(torch::jit::Stack& stack) {
  const auto input = stack[1].toTensor(), mean = stack[2].toTensor(), invstd = stack[3].toTensor();
  const auto grad = stack[0].toTensor().to(mean.scalar_type());
  const auto weight = tensor_at(stack, 4);
  const auto type = weight.defined() ? weight.scalar_type() : mean.scalar_type();
  const bool wants_sums = stack[5].toBool();
  const bool wants_weight = stack[6].toBool(), wants_bias = stack[7].toBool();
  const auto dims = dims_beside_channels(input);
  const auto centered = input.to(mean.scalar_type()) - by_channel(mean, input);
  const auto sum_dy = grad.sum(dims), sum_dy_xmu = (grad * centered).sum(dims);
  leave(stack, {wants_sums ? sum_dy : at::Tensor(), wants_sums ? sum_dy_xmu : at::Tensor(),
                wants_weight ? (sum_dy_xmu * invstd).to(type) : at::Tensor(),
                wants_bias ? sum_dy.to(type) : at::Tensor()});
}

// (grad_out, input, mean, invstd, weight?, sum_dy, sum_dy_xmu, count) -> grad_input
void batch_norm_backward_elemt(torch::jit::Stack& stack) {
  const auto input = stack[1].toTensor(), mean = stack[2].toTensor(), invstd = stack[3].toTensor();
  const auto weight = tensor_at(stack, 4);
  const auto total = stack[7].toTensor().sum();
  const auto centered = input.to(mean.scalar_type()) - by_channel(mean, input);
  const auto slope = by_channel(stack[6].toTensor() * invstd.pow(2) / total, input);
  auto grad = stack[0].toTensor().to(mean.scalar_type());
  grad = (grad - by_channel(stack[5].toTensor() / total, input) - centered * slope) *
         by_channel(weight.defined() ? invstd * weight : invstd, input);
  leave(stack, {grad.to(input.scalar_type())});
}

// A backward pass with everything in float: the CPU's kernels want the statistics in the input's
// own half precision, an accelerator keeps them in float. Results: of the input, then of weight and
// bias.
void in_float(const char* op, size_t weight_at, torch::jit::Stack& stack) {
  const at::ScalarType input_type = stack[1].toTensor().scalar_type();
  const at::Tensor weight = tensor_at(stack, weight_at);
  const at::ScalarType weight_type = weight.defined() ? weight.scalar_type() : input_type;
  for (c10::IValue& value : stack) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor tensor = value.toTensor();
    if (at::isReducedFloatingType(tensor.scalar_type())) value = tensor.to(at::kFloat);
  }
  c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(stack);
  for (size_t i = 0; i < stack.size(); ++i) {
    const at::Tensor result = tensor_at(stack, i);
    if (result.defined()) stack[i] = result.to(i == 0 ? input_type : weight_type);
  }
}
void layer_norm_backward(torch::jit::Stack& stack) {
  in_float("aten::native_layer_norm_backward", 5, stack);
}
void group_norm_backward(torch::jit::Stack& stack) {
  in_float("aten::native_group_norm_backward", 4, stack);
}
void native_batch_norm_backward(torch::jit::Stack& stack) {
  in_float("aten::native_batch_norm_backward", 2, stack);
}
void batch_norm_backward(torch::jit::Stack& stack) {
  in_float("aten::batch_norm_backward", 2, stack);
}

constexpr SpecialOp kOps[] = {
    {"aten::native_layer_norm_backward", &layer_norm_backward, nullptr},
    {"aten::native_group_norm_backward", &group_norm_backward, nullptr},
    {"aten::native_batch_norm_backward", &native_batch_norm_backward, nullptr},
    {"aten::batch_norm_backward", &batch_norm_backward, nullptr},
    {"aten::_fused_rms_norm_backward", &rms_norm_backward, nullptr},
    {"aten::batch_norm_stats", &batch_norm_stats, &batch_norm_stats},
    {"aten::batch_norm_gather_stats_with_counts", &batch_norm_gather_stats,
     &batch_norm_gather_stats},
    {"aten::batch_norm_elemt", &batch_norm_elemt, &batch_norm_elemt},
    {"aten::batch_norm_backward_reduce", &batch_norm_backward_reduce, &batch_norm_backward_reduce},
    {"aten::batch_norm_backward_elemt", &batch_norm_backward_elemt, &batch_norm_backward_elemt},
};

}  // namespace

SpecialOps normalization_ops() { return {kOps, std::size(kOps)}; }

}  // namespace trnsim::capture
