// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/block.h"

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "base/error.h"
#include "capture/recorder.h"
#include "capture/runtime/allocator.h"
#include "capture/runtime/device_type.h"

namespace trnsim::capture {

namespace {

// torch's legacy serialization (pickle, and torch.save without zip) makes a tensor by from_blob on
// the address of a whole storage, and a slice of a storage begins within it. Rare, so a search is
// good enough.
Block* block_at(const void* data) {
  const auto address = reinterpret_cast<uint64_t>(data);
  Block *found = nullptr, *ending = nullptr;
  for_each_live_block([&](Block& block) {
    const uint64_t end = block.address + uint64_t(block.bytes);
    if (block.address == address || (block.address < address && address < end)) found = &block;
    if (address == end) ending = &block;  // an empty slice
  });
  return found ? found : ending;
}

}  // namespace

Block* block_of(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() == &release_block) return static_cast<Block*>(data.get_context());
  const bool is_foreign = data.device().type() != device_type() || !data.get();
  return is_foreign ? nullptr : block_at(data.get());
}

Block* block_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return block_of(*tensor.storage().unsafeGetStorageImpl());
}

bool is_trn(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == device_type();
}

c10::StorageImpl& host_storage(Block& block) {
  if (!block.host) {
    auto* const allocator = c10::GetCPUAllocator();
    c10::DataPtr data = allocator->allocate(size_t(block.bytes));
    if (block.bytes > 0 && block.bytes <= kKnownBytes) {
      std::memset(data.get(), 0, size_t(block.bytes));
    }
    block.host = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), block.bytes, std::move(data), allocator, true);
  }
  return *block.host;
}

at::Tensor host_alias(const at::Tensor& tensor) {
  Block* const block = block_of(tensor);
  TRN_ASSERT(block != nullptr && block->known, "host_alias of a tensor without values");
  host_storage(*block);
  auto alias = at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(block->host), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  auto* const impl = alias.unsafeGetTensorImpl();
  const auto data = reinterpret_cast<uint64_t>(tensor.storage().data());
  const auto before = int64_t(data ? data - block->address : 0);  // a slice of a storage
  TORCH_CHECK(before % int64_t(tensor.itemsize()) == 0, "a slice of a storage begins at its byte ",
              before, ", between two elements of ", tensor.dtype(), ": begin it at a multiple of ",
              tensor.itemsize());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                              tensor.storage_offset() + before / int64_t(tensor.itemsize()));
  at::Tensor result(std::move(alias));
  if (tensor.is_conj()) result._set_conj(true);
  if (tensor.is_neg()) result._set_neg(true);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return result;
}

void forget_values(Block& block) {
  if (mode() == Mode::compute || block.bytes == 0) return;
  block.known = false;
  block.taken_true = false;
  block.host.reset();
}

bool can_be_known(int64_t bytes, c10::ScalarType dtype) {
  if (mode() == Mode::compute || bytes <= kKnownBytes) return true;
  return bytes <= kKnownIntegerBytes && c10::isIntegralType(dtype, /*includeBool=*/true);
}

}  // namespace trnsim::capture
