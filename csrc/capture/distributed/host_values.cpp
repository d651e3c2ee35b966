// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/distributed/host_values.h"

#include <ATen/core/Tensor.h>

#include "base/error.h"
#include "capture/recorder.h"
#include "capture/runtime/block.h"
#include "capture/runtime/device_type.h"

namespace trnsim::capture::distributed {
namespace {

Block& block_behind(const at::Tensor& tensor) {
  Block* const block = block_of(tensor);
  TRN_CHECK(block != nullptr, capture,
            "a message of a " + device_type_name() + " tensor that has no storage",
            "pass a dense tensor that was made on the device");
  return *block;
}

bool covers_storage(const at::Tensor& tensor, const Block& block) {
  return static_cast<int64_t>(tensor.nbytes()) == block.bytes &&
         tensor.is_non_overlapping_and_dense();
}

}  // namespace

std::optional<at::Tensor> host_values(const at::Tensor& tensor) {
  if (!is_trn(tensor)) return tensor;
  if (!block_behind(tensor).known) return std::nullopt;
  return host_alias(tensor);
}

std::optional<at::Tensor> host_values_to_write(const at::Tensor& tensor) {
  if (!is_trn(tensor)) return tensor;
  Block& block = block_behind(tensor);
  if (!block.known) {
    if (!covers_storage(tensor, block) || !can_be_known(block.bytes, tensor.scalar_type())) {
      return std::nullopt;
    }
    block.known = true;
  }
  return host_alias(tensor);
}

void forget_values(const at::Tensor& tensor) {
  if (is_trn(tensor)) capture::forget_values(block_behind(tensor));
}

bool values_are_computed(const at::Tensor& tensor) {
  return !is_trn(tensor) || mode() == Mode::compute;
}

}  // namespace trnsim::capture::distributed
