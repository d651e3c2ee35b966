// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Pinned host memory: page-aligned host memory whose addresses are known.
//
// Nothing is locked, since no DMA engine will read it, but "is this pointer pinned" has a true
// answer, which DataLoader, DistributedDataParallel and tensor.is_pinned() rely on. Freed memory
// goes back to the system at once. Stats are those of torch.accelerator's host allocator.
// Allocation and is_pinned are O(log live allocations).
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace trnsim::capture::runtime {

at::HostAllocator* host_allocator();
// True for any address inside a live allocation of the allocator above.
bool is_pinned(const void* address);

}  // namespace trnsim::capture::runtime
