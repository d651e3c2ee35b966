// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// EmbeddingBag's forward pass: an accelerator gives the bag of each index, which its backward pass
// reads; the CPU leaves that out where it adds up without it.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>

#include "capture/aten/special.h"

namespace trnsim::capture {
namespace {

// (weight, indices, offsets, ...) -> (output, bag of each index, bag sizes, largest indices)
void with_bags(const char* op, torch::jit::Stack& stack) {
  const at::Tensor indices = stack[1].toTensor(), offsets = stack[2].toTensor();
  c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(stack);
  if (stack[1].toTensor().numel() == indices.numel()) return;
  const at::Tensor places = at::arange(indices.numel(), offsets.options());
  const at::Tensor bags = at::searchsorted(offsets, places, false, /*right=*/true) - 1;
  stack[1] = bags.to(indices.scalar_type());
}
void embedding_bag(torch::jit::Stack& stack) { with_bags("aten::_embedding_bag", stack); }
void embedding_bag_forward(torch::jit::Stack& stack) {
  with_bags("aten::_embedding_bag_forward_only", stack);
}

constexpr SpecialOp kOps[] = {
    {"aten::_embedding_bag", &embedding_bag, nullptr},
    {"aten::_embedding_bag_forward_only", &embedding_bag_forward, nullptr},
};

}  // namespace

SpecialOps embedding_ops() { return {kOps, std::size(kOps)}; }

}  // namespace trnsim::capture
