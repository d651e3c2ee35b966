// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Block: what stands behind the storage of a trn tensor.
//
// The address lies in a reservation that nothing backs, in both modes, so that data_ptr() is unique
// and a native read of device memory stops at once instead of giving garbage. Values, where there
// are any, live in `host`, a CPU storage of the same bytes that CPU kernels work on without a copy:
// always in compute mode, for known storages in phantom mode. A block is owned by the DataPtr of
// exactly one storage; live blocks form a list in the order of their making.
//
// Invariant: known == false only in phantom mode, and then host is null.
#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>

namespace trnsim::capture {

// Phantom mode: storages up to this size keep their values; integers up to the larger one.
inline constexpr int64_t kKnownBytes = 64 * 1024;
inline constexpr int64_t kKnownIntegerBytes = 16 * 1024 * 1024;

struct Block {
  uint64_t address = 0;
  int64_t bytes = 0;
  int32_t stream = 0;
  int8_t device = 0;
  bool known = true;
  bool taken_true = false;  // unknown flags that phantom mode reads as True: see aten/truth.h
  c10::intrusive_ptr<c10::StorageImpl> host;  // made on first use

  // The recorder's: which recording `storage` belongs to, and the storage's version.
  int32_t recording = -1;
  int32_t storage = -1;
  int32_t version = 0;
  int8_t kind = -1;  // workload::StorageKind set before the recording knew the storage, or -1
  int32_t copied_on = -1, kept_for = -1;  // streams: of its last copy to the host, of record_stream

  Block* previous = nullptr;
  Block* next = nullptr;
};

// Null when the storage is not one of ours (a CPU tensor, or no storage at all).
Block* block_of(const c10::StorageImpl& storage);
Block* block_of(const at::Tensor& tensor);
bool is_trn(const at::Tensor& tensor);

// Allocates the host storage of a block that has none. Small ones are zeroed.
c10::StorageImpl& host_storage(Block& block);
// The same tensor on the CPU, sharing the block's host storage; conj and neg bits are kept.
at::Tensor host_alias(const at::Tensor& tensor);
// The values are no longer known (phantom mode).
void forget_values(Block& block);

// Can a storage of these bytes and dtype keep its values in the present mode?
bool can_be_known(int64_t bytes, c10::ScalarType dtype);

}  // namespace trnsim::capture
