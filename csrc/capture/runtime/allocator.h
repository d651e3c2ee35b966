// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The device's memory: addresses from one reservation of address space, given out by the model of
// PyTorch's caching allocator, so that what fits and what is reserved is what a real device says.
//
// Nothing is mapped: the reservation is PROT_NONE. Capacity is a device's; at the capacity an
// allocation raises torch.OutOfMemoryError, or, when only reported, goes on and is counted.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <string>
#include <vector>

#include "capture/runtime/block.h"
#include "workload/caching_allocator.h"

namespace trnsim::capture {

// A DataPtr whose context is the Block. Throws c10::OutOfMemoryError.
c10::DataPtr allocate_block(int64_t bytes, c10::DeviceIndex device);
void release_block(void* block);  // the deleter of every DataPtr of ours

// Bytes of one device; negative = unlimited. Applies to all devices.
void set_capacity_bytes(int64_t capacity_bytes);
int64_t capacity_bytes();
// Over capacity is reported by out_of_memory_count() instead of raised.
void set_only_report_out_of_memory(bool only_report);
int64_t out_of_memory_count();
// From now on this process may make no tensor of the device: RuntimeError with the reason.
void refuse_allocations(std::string reason);

const workload::AllocatorStats& allocator_stats(c10::DeviceIndex device);
void reset_allocator_peaks(c10::DeviceIndex device);
void release_cached_memory();
std::vector<workload::SegmentInfo> allocator_segments(c10::DeviceIndex device);

int64_t live_block_count();  // with bytes > 0
// Live blocks in the order of their making; the callback must not allocate.
void for_each_live_block(const std::function<void(Block&)>& visit);

struct Reservation {
  uint64_t base = 0, bytes = 0;
};
// Where device addresses lie; made on first use.
const Reservation& reservation();

c10::Allocator* trn_allocator();

}  // namespace trnsim::capture
