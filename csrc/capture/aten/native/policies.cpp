// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Shapes that values decide, for values that phantom mode does not know: everything is selected,
// everything is distinct, everything is repeated once. The kernel counts each as a host read that
// was answered by policy. Lazy zeros stand here too, as their own policy.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include "capture/aten/special.h"
#include "capture/recorder.h"

namespace trnsim::capture {
namespace {

at::Tensor indices_like(const at::Tensor& tensor, c10::IntArrayRef sizes) {
  return at::empty(sizes, tensor.options().dtype(at::kLong));
}

void say_all_are_selected() {
  add_note(
      "masks and boxes of values that phantom mode does not know select everything: what is "
      "computed of them is an upper bound; --mode compute takes the real ones");
}

void nonzero(torch::jit::Stack& stack) {
  say_all_are_selected();
  const auto self = stack[0].toTensor();
  const int64_t count = self.numel(), dims = self.dim();
  stack.clear();  // the layout of PyTorch's kernels: one dimension after the other
  stack.emplace_back(at::empty_strided({count, dims}, {1, std::max<int64_t>(count, 1)},
                                       self.options().dtype(at::kLong)));
}

void masked_select(torch::jit::Stack& stack) {
  say_all_are_selected();
  const auto self = stack[0].toTensor();
  const auto sizes = at::infer_size(self.sizes(), stack[1].toTensor().sizes());
  stack.clear();
  stack.emplace_back(at::empty({c10::multiply_integers(sizes)}, self.options()));
}

// (self, sorted, return_inverse[, return_counts]) and unique_consecutive's
// (self, return_inverse, return_counts, dim?)
void unique_flat(torch::jit::Stack& stack, bool inverse, bool counts, size_t results) {
  const auto self = stack[0].toTensor();
  const int64_t count = self.numel();
  stack.clear();
  stack.emplace_back(at::empty({count}, self.options()));
  stack.emplace_back(indices_like(self, inverse ? self.sizes() : c10::IntArrayRef{0}));
  if (results == 3) stack.emplace_back(indices_like(self, {counts ? count : 0}));
}

void unique(torch::jit::Stack& stack) { unique_flat(stack, stack[2].toBool(), false, 2); }
void unique2(torch::jit::Stack& stack) {
  unique_flat(stack, stack[2].toBool(), stack[3].toBool(), 3);
}

void unique_along(torch::jit::Stack& stack, int64_t dim, bool inverse, bool counts) {
  const auto self = stack[0].toTensor();
  const int64_t count = self.size(dim);
  stack.clear();
  stack.emplace_back(at::empty(self.sizes(), self.options()));
  stack.emplace_back(indices_like(self, {inverse ? count : 0}));
  stack.emplace_back(indices_like(self, {counts ? count : 0}));
}

void unique_dim(torch::jit::Stack& stack) {
  unique_along(stack, stack[1].toInt(), stack[3].toBool(), stack[4].toBool());
}
void unique_dim_consecutive(torch::jit::Stack& stack) {
  unique_along(stack, stack[1].toInt(), stack[2].toBool(), stack[3].toBool());
}

void unique_consecutive(torch::jit::Stack& stack) {
  const bool inverse = stack[1].toBool(), counts = stack[2].toBool();
  if (stack[3].isInt()) return unique_along(stack, stack[3].toInt(), inverse, counts);
  unique_flat(stack, inverse, counts, 3);
}

void bincount(torch::jit::Stack& stack) {
  const auto self = stack[0].toTensor();
  const bool weighted = stack[1].isTensor() && stack[1].toTensor().defined();
  const auto type = !weighted                                         ? at::kLong
                    : stack[1].toTensor().scalar_type() == at::kFloat ? at::kFloat
                                                                      : at::kDouble;
  const int64_t bins = std::max<int64_t>(stack[2].toInt(), 1);
  stack.clear();
  stack.emplace_back(at::empty({bins}, self.options().dtype(type)));
}

void repeat_interleave(torch::jit::Stack& stack) {
  const auto repeats = stack[0].toTensor();
  const int64_t count = stack[1].isInt() ? stack[1].toInt() : repeats.numel();
  stack.clear();
  stack.emplace_back(at::empty({count}, repeats.options()));
}

// (dense, offsets, total_L?): the rows that the caller counted, of all sequences after each other.
void padded_to_jagged(torch::jit::Stack& stack) {
  const auto dense = stack[0].toTensor();
  TORCH_CHECK(stack[2].isInt(),
              "aten::_padded_dense_to_jagged_forward: how many rows the sequences have together is "
              "a value that phantom mode does not know: give it (sum_S or total_L)");
  const int64_t rows = stack[2].toInt();
  stack.clear();
  stack.emplace_back(at::empty({rows, dense.size(-1)}, dense.options()));
}

// torchvision's: all boxes are kept
void keep_boxes(torch::jit::Stack& stack) {
  say_all_are_selected();
  const auto boxes = stack[0].toTensor();
  stack.clear();
  stack.emplace_back(indices_like(boxes, {boxes.size(0)}));
}

// PyTorch's lazy zeros have no storage, so no CPU kernel can work on them: here they are zeros.
void efficient_zeros(torch::jit::Stack& stack) {
  const auto options = at::TensorOptions()
                           .dtype(stack[1].toOptional<at::ScalarType>())
                           .device(stack[3].toOptional<at::Device>());
  const auto zeros = at::zeros(stack[0].toIntVector(), options);
  stack.clear();
  stack.emplace_back(zeros);
}

constexpr SpecialOp kOps[] = {
    {"aten::_efficientzerotensor", &efficient_zeros, &efficient_zeros},
    {"aten::nonzero", nullptr, &nonzero},
    {"aten::masked_select", nullptr, &masked_select},
    {"aten::_unique", nullptr, &unique},
    {"aten::_unique2", nullptr, &unique2},
    {"aten::unique_dim", nullptr, &unique_dim},
    {"aten::unique_dim_consecutive", nullptr, &unique_dim_consecutive},
    {"aten::unique_consecutive", nullptr, &unique_consecutive},
    {"aten::bincount", nullptr, &bincount},
    {"aten::repeat_interleave.Tensor", nullptr, &repeat_interleave},
    {"aten::_padded_dense_to_jagged_forward", nullptr, &padded_to_jagged},
    {"torchvision::nms", nullptr, &keep_boxes},
};

}  // namespace

SpecialOps policy_ops() { return {kOps, std::size(kOps)}; }

}  // namespace trnsim::capture
