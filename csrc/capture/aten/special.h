// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Ops that PyTorch has no CPU or no Meta kernel for, or one that differs from what an accelerator
// does. A function takes the op's arguments from the stack, CPU or meta tensors, and leaves its
// results. Shapes, aliasing, strides and the record stay the business of the op's kernel, so a
// function here only computes.
#pragma once

#include <ATen/core/stack.h>

#include <string>

namespace trnsim::capture {

using StackFunction = void (*)(torch::jit::Stack& stack);

struct SpecialOp {
  const char* name;             // "aten::_thnn_fused_lstm_cell"
  StackFunction host = nullptr; // in place of the CPU kernel
  StackFunction meta = nullptr; // in place of the Meta kernel
};

// A SpecialOp without functions when the op is not special.
SpecialOp special_op(const std::string& name);

// Each file of aten/native that has special ops lends its table.
struct SpecialOps {
  const SpecialOp* first;
  size_t count;
};
SpecialOps attention_ops();
SpecialOps embedding_ops();
SpecialOps loss_ops();
SpecialOps normalization_ops();
SpecialOps recurrent_ops();
SpecialOps policy_ops();

}  // namespace trnsim::capture
