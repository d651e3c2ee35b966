// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A model of PyTorch's caching allocator on addresses that nothing backs.
//
// Blocks are rounded up to 512 bytes. Requests up to 1 MiB come from 2 MiB segments (small pool),
// up to 10 MiB from 20 MiB segments, larger ones from segments rounded to 2 MiB (large pool). A
// free block serves the smallest request-fitting size first (best fit), is split when the rest is
// at least 512 bytes (small) or over 1 MiB (large), and merges with free neighbours of its segment.
// Blocks belong to the stream that they were allocated on. When the capacity is reached, segments
// that are wholly free are returned, then the request fails.
//
// The sizes are those of PyTorch's CUDA allocator with default settings, and so is the order of
// ties: a request takes the lowest address among equally large free blocks of its stream.
//
// The same class serves capture (where addresses are real ones inside a reservation) and project
// (which replays a trace without a limit, for its peak). No torch in it. O(log blocks) a call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

namespace trnsim::workload {

struct AllocatorStats {
  int64_t allocated_bytes = 0, allocated_peak = 0;  // live blocks
  int64_t requested_bytes = 0, requested_peak = 0;  // as asked, unrounded
  int64_t reserved_bytes = 0, reserved_peak = 0;    // segments
  int64_t allocation_count = 0, free_count = 0;     // ever
  int64_t segment_count = 0, live_blocks = 0;
  int64_t retries = 0, out_of_memory = 0;
};

struct BlockInfo {
  uint64_t address = 0;
  int64_t size = 0, requested = 0;
  bool is_live = false;
};
struct SegmentInfo {
  uint64_t address = 0;
  int64_t size = 0;
  int32_t stream = 0;
  bool is_small = false;
  std::vector<BlockInfo> blocks;  // by address
};

class CachingAllocator {
 public:
  // capacity < 0: unlimited. Addresses start at `base` and are never reused after a segment is
  // returned, so that a stale address is never valid again.
  CachingAllocator(int64_t capacity_bytes, uint64_t base);
  ~CachingAllocator();

  // The block's address, or 0 when it does not fit (then cached segments were returned, and nothing
  // else changed but the counters). PyTorch never asks for 0 bytes; here they take one block.
  uint64_t allocate(int64_t bytes, int32_t stream);
  void release(uint64_t address);               // must be live
  void release_cached_segments();               // torch's empty_cache()
  int64_t block_bytes(uint64_t address) const;  // rounded size of a live block
  const AllocatorStats& stats() const { return stats_; }
  void reset_peaks();
  void reset_failures();  // retries and out_of_memory start again at 0
  int64_t capacity_bytes() const { return capacity_; }
  void set_capacity_bytes(int64_t capacity_bytes) { capacity_ = capacity_bytes; }
  std::vector<SegmentInfo> segments() const;

 private:
  struct Block {
    uint64_t address = 0;
    int64_t size = 0, requested = 0;
    int32_t stream = 0;
    bool is_small = false, is_live = false;
    Block *before = nullptr, *after = nullptr;  // neighbours in the segment
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  using FreeBlocks = std::set<Block*, BySize>;

  Block* take_free(int64_t size, int32_t stream, bool small);
  Block* add_segment(int64_t size, int32_t stream, bool small);  // null when over capacity
  void split(Block* block, int64_t size);
  void absorb(Block* block, Block* after);
  FreeBlocks& free_blocks(bool small) { return small ? free_small_ : free_large_; }

  int64_t capacity_;
  uint64_t next_address_;
  FreeBlocks free_small_, free_large_;
  std::unordered_map<uint64_t, std::unique_ptr<Block>> blocks_;  // live and free, by address
  std::map<uint64_t, Block*> segments_;                          // first block of each, by address
  AllocatorStats stats_;
};

}  // namespace trnsim::workload
