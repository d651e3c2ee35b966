// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/nonzero.h>

#include "capture/aten/native/kernels.h"

namespace trnsim::capture {
namespace {

bool is_mask(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const auto type = value.toTensor().scalar_type();
  return type == at::kBool || type == at::kByte;
}

}  // namespace

void check_index_devices(const torch::jit::Stack& stack, size_t count) {
  const at::Device device = stack[stack.size() - count].toTensor().device();
  for (const auto& item : stack[stack.size() - count + 1].toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) continue;
    const at::Device at = item.toTensor().device();
    TORCH_CHECK(at.is_cpu() || at == device, "indices should be either on ", at::kCPU,
                " or on the same device as the indexed tensor (", device, ")");
  }
}

void expand_masks(torch::jit::Stack& stack, size_t count, size_t position) {
  c10::IValue& argument = stack[stack.size() - count + position];
  const auto items = argument.toListRef();
  bool any = false;
  for (const auto& item : items) any |= is_mask(item);
  if (!any) return;
  const at::Tensor self = stack[stack.size() - count].toTensor();
  c10::List<std::optional<at::Tensor>> indices;
  for (const auto& item : items) {
    if (!is_mask(item)) {
      indices.push_back(item.toOptional<at::Tensor>());
      continue;
    }
    const at::Tensor& mask = item.toTensor();
    for (int64_t i = 0; i < mask.dim(); ++i) {
      const int64_t dim = int64_t(indices.size()) + i;
      TORCH_CHECK_INDEX(dim < self.dim() && mask.size(i) == self.size(dim),
                        "The shape of the mask ", mask.sizes(), " at index ", i,
                        " does not match the shape of the indexed "
                        "tensor ",
                        self.sizes(), " at index ", dim);
    }
    const at::Tensor selected = at::nonzero(mask);
    for (int64_t i = 0; i < mask.dim(); ++i) indices.push_back(selected.select(1, i));
  }
  argument = std::move(indices);
}

bool index_put_on_host(torch::jit::Stack& stack) {
  // (self!, indices, values, accumulate, unsafe) -> self!
  const size_t base = stack.size() - 5;
  at::Tensor self = stack[base].toTensor();
  const at::Tensor values = stack[base + 2].toTensor();
  TORCH_CHECK(values.device() == self.device() || values.dim() == 0,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", values.device(), "!");
  if (!self.is_cpu()) return false;
  at::_index_put_impl_(self,
                       c10::impl::toTypedList<std::optional<at::Tensor>>(stack[base + 1].toList()),
                       values.cpu(), stack[base + 3].toBool(), stack[base + 4].toBool());
  stack.resize(base);
  stack.emplace_back(std::move(self));
  return true;
}

bool index_put_as_masked_fill(torch::jit::Stack& stack) {
  // (self!, indices, values, accumulate, unsafe) -> self!
  const size_t base = stack.size() - 5;
  const at::Tensor values = stack[base + 2].toTensor();
  if (stack[base + 3].toBool() || values.numel() != 1 || values.dim() > 0) return false;
  at::Tensor self = stack[base].toTensor(), mask;
  for (const auto& item : stack[base + 1].toListRef()) {
    if (item.isNone() || (item.isTensor() && !item.toTensor().defined())) return false;
    if (!is_mask(item) || mask.defined()) return false;
    mask = item.toTensor();
  }
  if (!mask.defined() || mask.device() != self.device()) return false;
  for (int64_t dim = mask.dim(); dim < self.dim(); ++dim) mask = mask.unsqueeze(-1);
  self.masked_fill_(mask.to(at::kBool), values);
  stack.resize(base);
  stack.emplace_back(std::move(self));
  return true;
}

}  // namespace trnsim::capture
