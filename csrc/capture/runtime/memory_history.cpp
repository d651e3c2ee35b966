// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/memory_history.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>

namespace trnsim::capture::runtime {
namespace {

std::atomic<bool> is_on{false};

struct DeviceHistory {
  std::deque<MemoryEntry> entries;
  std::unordered_map<uint64_t, Stack> of_blocks;
};

struct State {
  std::mutex mutex;
  size_t max_entries = 0;
  bool with_stacks = true;
  std::unordered_map<int, DeviceHistory> devices;
};

State& state() {
  static State* const kept = new State;  // blocks may be freed after statics
  return *kept;
}

Stack present_stack() {
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
}

int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// The caller holds the mutex. Dropped entries go to `dropped`, so that their stacks are released
// without it: that may need Python's lock.
void add(State& all, int device, MemoryEntry entry, std::vector<MemoryEntry>& dropped) {
  auto& entries = all.devices[device].entries;
  entries.push_back(std::move(entry));
  while (entries.size() > all.max_entries) {
    dropped.push_back(std::move(entries.front()));
    entries.pop_front();
  }
}

}  // namespace

const char* memory_action_name(MemoryAction action) {
  switch (action) {
    case MemoryAction::alloc:
      return "alloc";
    case MemoryAction::free_requested:
      return "free_requested";
    case MemoryAction::free_completed:
      return "free_completed";
    case MemoryAction::oom:
      return "oom";
  }
  return "";
}

void start_memory_history(size_t max_entries, bool with_stacks) {
  std::unordered_map<int, DeviceHistory> old;
  const std::lock_guard lock(state().mutex);
  state().max_entries = max_entries;
  state().with_stacks = with_stacks;
  state().devices.swap(old);
  is_on = true;
}

void stop_memory_history() { is_on = false; }

bool keeps_memory_history() { return is_on.load(std::memory_order_relaxed); }

MemoryHistory memory_history(c10::DeviceIndex device) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().devices.find(device);
  if (found == state().devices.end()) return {};
  const auto& [entries, of_blocks] = found->second;
  return {{entries.begin(), entries.end()}, of_blocks};
}

void note_block_made(const Block& block) {
  if (!keeps_memory_history()) return;
  State& all = state();
  const Stack stack = all.with_stacks ? present_stack() : nullptr;
  std::vector<MemoryEntry> dropped;
  const std::lock_guard lock(all.mutex);
  add(all, block.device,
      {MemoryAction::alloc, block.address, block.bytes, block.stream, now_us(), stack}, dropped);
  all.devices[block.device].of_blocks[block.address] = stack;
}

void note_block_freed(const Block& block) {
  if (!keeps_memory_history()) return;
  State& all = state();
  const Stack stack = all.with_stacks ? present_stack() : nullptr;
  std::vector<MemoryEntry> dropped;
  Stack made;
  const std::lock_guard lock(all.mutex);
  for (const auto action : {MemoryAction::free_requested, MemoryAction::free_completed}) {
    add(all, block.device, {action, block.address, block.bytes, block.stream, now_us(), stack},
        dropped);
  }
  auto& of_blocks = all.devices[block.device].of_blocks;
  if (const auto found = of_blocks.find(block.address); found != of_blocks.end()) {
    made = std::move(found->second);
    of_blocks.erase(found);
  }
}

void note_out_of_memory(c10::DeviceIndex device, int64_t bytes, int64_t free_bytes) {
  if (!keeps_memory_history()) return;
  State& all = state();
  const Stack stack = all.with_stacks ? present_stack() : nullptr;
  std::vector<MemoryEntry> dropped;
  const std::lock_guard lock(all.mutex);
  add(all, device, {MemoryAction::oom, uint64_t(free_bytes), bytes, 0, now_us(), stack}, dropped);
}

}  // namespace trnsim::capture::runtime
