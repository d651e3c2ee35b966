// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Fused attention: scaled_dot_product_attention is one op forward and one backward, as on an
// accelerator, instead of the matmuls and softmax of the math path. With S = scale Q K^T + bias and
// P = softmax(S), out = (M o P) V where M is dropout's mask over 1 - p; the backward pass makes P
// again from the saved logsumexp, and M from the saved seed.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "capture/aten/special.h"
#include "capture/runtime/device_type.h"

namespace trnsim::capture {
namespace {

struct Problem {
  at::Tensor query, key, value, bias;  // in the type that is computed in
  double dropout = 0, scale = 1;
  bool causal = false;
  int64_t group = 1;  // query heads that share a key head
};

at::Tensor computed(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const auto type = tensor.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

Problem make_problem(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& bias, double dropout, bool causal,
                     std::optional<double> scale) {
  Problem problem;
  problem.group = query.dim() == 4 ? query.size(1) / key.size(1) : 1;
  const auto spread = [&](const at::Tensor& tensor) {
    return problem.group == 1 ? computed(tensor)
                              : computed(tensor).repeat_interleave(problem.group, 1);
  };
  problem.query = computed(query);
  problem.key = spread(key);
  problem.value = spread(value);
  problem.bias = bias;
  problem.dropout = dropout;
  problem.causal = causal;
  problem.scale = scale.value_or(1.0 / std::sqrt(double(query.size(-1))));
  return problem;
}

at::Tensor scores_of(const Problem& problem) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  at::Tensor scores = at::matmul(problem.query, problem.key.transpose(-2, -1)) * problem.scale;
  if (problem.causal) {
    const auto allowed = at::ones({scores.size(-2), scores.size(-1)}, at::kBool).tril();
    scores = scores.masked_fill(allowed.logical_not(), kNever);
  }
  if (!problem.bias.defined()) return scores;
  if (problem.bias.scalar_type() == at::kBool) {
    return scores.masked_fill(problem.bias.logical_not(), kNever);
  }
  return scores + problem.bias.to(scores.scalar_type());
}

// A row of which everything is masked has probabilities 0, as in PyTorch's safe softmax.
at::Tensor probabilities_of(const at::Tensor& scores, const at::Tensor& logsumexp) {
  const at::Tensor row = logsumexp.unsqueeze(-1).to(scores.scalar_type());
  return (scores - row).exp().masked_fill(row.isinf(), 0);
}

// Dropout's mask over 1 - p, the same for the same seed.
at::Tensor keep_scale(const at::Tensor& like, double dropout, int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t(seed));
  at::Tensor keep = at::empty_like(like);
  keep.bernoulli_(1 - dropout, generator);
  return dropout < 1 ? keep / (1 - dropout) : keep;
}

at::Tensor optional_tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

void attention_forward(torch::jit::Stack& stack) {
  const auto query = stack[0].toTensor();
  const Problem problem = make_problem(
      query, stack[1].toTensor(), stack[2].toTensor(), optional_tensor(stack[3]),
      stack[4].toDouble(), stack[5].toBool(), stack[7].toOptional<double>());
  const int64_t max_query = query.size(-2), max_key = stack[1].toTensor().size(-2);
  const at::Tensor scores = scores_of(problem);
  const at::Tensor logsumexp = at::logsumexp(scores, {-1});
  at::Tensor weights = probabilities_of(scores, logsumexp);
  int64_t seed = 0;
  if (problem.dropout > 0) {
    seed = int64_t(at::empty({1}, at::kLong).random_().item<int64_t>());
    weights = weights * keep_scale(weights, problem.dropout, seed);
  }
  const at::Tensor out = at::matmul(weights, problem.value).to(query.scalar_type());
  stack.clear();
  stack.emplace_back(out);
  stack.emplace_back((logsumexp.dim() == 2 ? logsumexp.unsqueeze(0) : logsumexp).to(at::kFloat));
  stack.emplace_back(at::Tensor());
  stack.emplace_back(at::Tensor());
  stack.emplace_back(max_query);
  stack.emplace_back(max_key);
  stack.emplace_back(at::scalar_tensor(seed, at::kLong));
  stack.emplace_back(at::scalar_tensor(0, at::kLong));
  stack.emplace_back(at::Tensor());
}

// Sums over the query heads that share a key head.
at::Tensor gathered(const at::Tensor& gradient, int64_t group) {
  if (group == 1) return gradient;
  auto sizes = gradient.sizes().vec();
  sizes[1] /= group;
  sizes.insert(sizes.begin() + 2, group);
  return gradient.reshape(sizes).sum(2);
}

void attention_backward(torch::jit::Stack& stack) {
  const auto grad_out = computed(stack[0].toTensor());
  const auto query = stack[1].toTensor(), key = stack[2].toTensor(), value = stack[3].toTensor();
  const auto bias = optional_tensor(stack[4]);
  const auto wanted = stack[5].toBoolList();
  const auto out = computed(stack[6].toTensor());
  auto logsumexp = stack[7].toTensor();
  const Problem problem = make_problem(query, key, value, bias, stack[12].toDouble(),
                                       stack[13].toBool(), stack[16].toOptional<double>());
  if (query.dim() == 3) logsumexp = logsumexp.squeeze(0);
  const at::Tensor scores = scores_of(problem);
  const at::Tensor weights =
      probabilities_of(scores, scores.scalar_type() == at::kDouble ? at::logsumexp(scores, {-1})
                                                                   : logsumexp);
  at::Tensor dropped = weights;
  at::Tensor grad_weights = at::matmul(grad_out, problem.value.transpose(-2, -1));
  if (problem.dropout > 0) {
    const auto keep = keep_scale(weights, problem.dropout, stack[14].toTensor().item<int64_t>());
    dropped = weights * keep;
    grad_weights = grad_weights * keep;
  }
  const at::Tensor row = (grad_out * out).sum(-1, true);
  const at::Tensor grad_scores = weights * (grad_weights - row);
  const auto grad_query = at::matmul(grad_scores, problem.key) * problem.scale;
  const auto grad_key = gathered(
      at::matmul(grad_scores.transpose(-2, -1), problem.query) * problem.scale, problem.group);
  const auto grad_value = gathered(at::matmul(dropped.transpose(-2, -1), grad_out), problem.group);
  at::Tensor grad_bias;
  if (bias.defined()) {
    grad_bias = wanted.get(3) && bias.is_floating_point()
                    ? at::sum_to(grad_scores, bias.sizes()).to(bias.scalar_type())
                    : at::zeros_like(bias);
  }
  stack.clear();
  stack.emplace_back(grad_query.to(query.scalar_type()));
  stack.emplace_back(grad_key.to(key.scalar_type()));
  stack.emplace_back(grad_value.to(value.scalar_type()));
  stack.emplace_back(grad_bias);
}

constexpr SpecialOp kOps[] = {
    {"aten::_scaled_dot_product_fused_attention_overrideable", &attention_forward, nullptr},
    {"aten::_scaled_dot_product_fused_attention_overrideable_backward", &attention_backward,
     nullptr},
};

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                         bool) {
  // sdpa_kernel(SDPBackend.MATH) leaves none of the fused ones.
  const at::Context& context = at::globalContext();
  const bool is_wanted = context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP() ||
                         context.userEnabledMemEfficientSDP() || context.userEnabledCuDNNSDP();
  const bool fits =
      is_wanted && (query.dim() == 4 || query.dim() == 3) && key.dim() == query.dim() &&
      value.dim() == query.dim() && query.is_floating_point() && query.layout() == at::kStrided &&
      query.sym_numel() > 0 && key.sym_numel() > 0 && query.sym_size(0) == key.sym_size(0) &&
      query.sym_size(0) == value.sym_size(0);  // symbols, while dynamo traces
  return int64_t(fits ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

}  // namespace

SpecialOps attention_ops() { return {kOps, std::size(kOps)}; }

}  // namespace trnsim::capture

namespace {

const bool registered = [] {
  auto& stub = at::native::_fused_sdp_choice_stub;
  if (trnsim::capture::serves_cuda()) {
    stub.set_cuda_dispatch_ptr(&trnsim::capture::choose_attention);
  } else {
    stub.set_privateuse1_dispatch_ptr(&trnsim::capture::choose_attention);
  }
  return true;
}();

}  // namespace
