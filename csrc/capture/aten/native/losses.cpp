// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Connectionist temporal classification, of which PyTorch has no Meta kernels. Lengths are numbers
// here, so that phantom mode knows the shapes.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "capture/aten/special.h"

namespace trnsim::capture {
namespace {

// (log_probs [time, batch, classes], targets, input_lengths, target_lengths, blank, zero_infinity)
//   -> (loss [batch], log_alpha [batch, time, 2 longest + 1]: labels with blanks around each)
void ctc_loss(torch::jit::Stack& stack) {
  const auto log_probs = stack[0].toTensor();
  int64_t longest = 0;
  for (const int64_t length : stack[3].toIntVector()) longest = std::max(longest, length);
  const int64_t time = log_probs.size(0), batch = log_probs.size(1);
  stack.clear();
  stack.emplace_back(at::empty({batch}, log_probs.options()));
  stack.emplace_back(at::empty({batch, time, 2 * longest + 1}, log_probs.options()));
}

// (grad, log_probs, targets, ...) -> the gradient of log_probs, in rows
void ctc_loss_backward(torch::jit::Stack& stack) {
  const auto log_probs = stack[1].toTensor();
  stack.clear();
  stack.emplace_back(at::empty(log_probs.sizes(), log_probs.options()));
}

constexpr SpecialOp kOps[] = {
    {"aten::_ctc_loss", nullptr, &ctc_loss},
    {"aten::_ctc_loss_backward", nullptr, &ctc_loss_backward},
};

}  // namespace

SpecialOps loss_ops() { return {kOps, std::size(kOps)}; }

}  // namespace trnsim::capture
