// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The history of the device's memory: who allocated and freed what, for torch.trn.memory._snapshot.
//
// Off, it costs the allocator one relaxed atomic load an allocation. On, each allocation and free
// becomes an entry with the Python stack it came from (unless stacks are not wanted), the newest
// `max_entries` a device; live blocks keep the stack of their allocation. Stacks are turned into
// text only when a snapshot is taken.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "capture/runtime/block.h"

namespace trnsim::capture::runtime {

enum class MemoryAction : uint8_t { alloc, free_requested, free_completed, oom };
const char* memory_action_name(MemoryAction action);  // as torch's snapshots spell it

using Stack = std::shared_ptr<torch::CapturedTraceback>;

struct MemoryEntry {
  MemoryAction action = MemoryAction::alloc;
  uint64_t address = 0;  // of an oom: the bytes that were free
  int64_t bytes = 0;
  int32_t stream = 0;
  int64_t time_us = 0;  // since the epoch, on the host's clock
  Stack stack;          // null when stacks were not wanted
};

struct MemoryHistory {
  std::vector<MemoryEntry> entries;               // oldest first
  std::unordered_map<uint64_t, Stack> of_blocks;  // where each live block was allocated
};

void start_memory_history(size_t max_entries, bool with_stacks);  // forgets what there was
void stop_memory_history();
bool keeps_memory_history();
MemoryHistory memory_history(c10::DeviceIndex device);  // a copy

// The allocator's: called without its lock held.
void note_block_made(const Block& block);
void note_block_freed(const Block& block);
void note_out_of_memory(c10::DeviceIndex device, int64_t bytes, int64_t free_bytes);

}  // namespace trnsim::capture::runtime
