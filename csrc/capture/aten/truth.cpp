// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/aten/truth.h"

#include <ATen/ops/all.h>

#include <cmath>
#include <iterator>

#include "capture/aten/results.h"
#include "capture/runtime/block.h"

namespace trnsim::capture {
namespace {

// x == x, of which torch.isfinite is made
bool is_equal_to_itself(const TensorArguments& tensors, const torch::jit::Stack&) {
  if (tensors.size() != 2) return false;
  const at::Tensor& a = *tensors[0].tensor;
  const at::Tensor& b = *tensors[1].tensor;
  return a.is_same(b) || (block_of(a) != nullptr && block_of(a) == block_of(b) &&
                          a.sizes() == b.sizes() && a.strides() == b.strides() &&
                          a.storage_offset() == b.storage_offset());
}

// abs(x) != inf, likewise
bool is_not_infinite(const TensorArguments&, const torch::jit::Stack& stack) {
  const at::Scalar other = stack[1].toScalar();
  return other.isFloatingPoint() && other.toDouble() == INFINITY;
}

bool are_all_true(const TensorArguments& tensors, const torch::jit::Stack&) {
  for (const auto& argument : tensors) {
    if (!taken_as_true(*argument.tensor)) return false;
  }
  return !tensors.empty();
}

struct Rule {
  const char* op;
  TruthRule is_true;
};
constexpr Rule kRules[] = {
    {"aten::eq.Tensor", &is_equal_to_itself}, {"aten::ne.Scalar", &is_not_infinite},
    {"aten::mul.Tensor", &are_all_true},      {"aten::bitwise_and.Tensor", &are_all_true},
    {"aten::logical_and", &are_all_true},     {"aten::all", &are_all_true},
    {"aten::all.dim", &are_all_true},         {"aten::all.dims", &are_all_true},
};

}  // namespace

TruthRule truth_rule(const std::string& op) {
  for (const Rule& rule : kRules) {
    if (op == rule.op) return rule.is_true;
  }
  return nullptr;
}

void take_as_true(const at::Tensor& flags) {
  Block* const block = block_of(flags);
  if (block != nullptr && !block->known && covers_storage(flags)) block->taken_true = true;
}

bool taken_as_true(const at::Tensor& flags) {
  const Block* const block = block_of(flags);
  return block != nullptr && !block->known && block->taken_true;
}

at::Tensor is_all_true(const at::Tensor& self) {
  at::Tensor all = self.all();
  take_as_true(all);
  return all;
}

}  // namespace trnsim::capture
