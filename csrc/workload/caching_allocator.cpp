// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "workload/caching_allocator.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/units.h"

namespace trnsim::workload {
namespace {

constexpr int64_t kMiB = int64_t(1) << 20;
constexpr int64_t kRound = 512;       // every block is a multiple of this
constexpr int64_t kSmall = 1 * kMiB;  // requests up to this share small segments
constexpr int64_t kSmallSegment = 2 * kMiB;
constexpr int64_t kMiddle = 10 * kMiB;  // requests below this share middle segments
constexpr int64_t kMiddleSegment = 20 * kMiB;
constexpr int64_t kLargeRound = 2 * kMiB;

int64_t round_up(int64_t bytes, int64_t unit) { return ceil_div(bytes, unit) * unit; }

int64_t segment_bytes(int64_t size) {
  if (size <= kSmall) return kSmallSegment;
  if (size < kMiddle) return kMiddleSegment;
  return round_up(size, kLargeRound);
}

}  // namespace

bool CachingAllocator::BySize::operator()(const Block* a, const Block* b) const {
  return std::tie(a->stream, a->size, a->address) < std::tie(b->stream, b->size, b->address);
}

CachingAllocator::CachingAllocator(int64_t capacity_bytes, uint64_t base)
    : capacity_(capacity_bytes), next_address_(base) {}
CachingAllocator::~CachingAllocator() = default;

uint64_t CachingAllocator::allocate(int64_t bytes, int32_t stream) {
  TRN_ASSERT(bytes >= 0, "an allocation of " + std::to_string(bytes) + " bytes");
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kRound);
  const bool small = size <= kSmall;
  Block* block = take_free(size, stream, small);
  if (!block) block = add_segment(segment_bytes(size), stream, small);
  if (!block) {
    ++stats_.retries;
    release_cached_segments();
    block = add_segment(segment_bytes(size), stream, small);
  }
  if (!block) {
    ++stats_.out_of_memory;
    return 0;
  }
  const int64_t rest = block->size - size;
  if (small ? rest >= kRound : rest > kSmall) split(block, size);
  block->is_live = true;
  block->requested = bytes;
  stats_.allocated_bytes += block->size;
  stats_.requested_bytes += bytes;
  stats_.allocated_peak = std::max(stats_.allocated_peak, stats_.allocated_bytes);
  stats_.requested_peak = std::max(stats_.requested_peak, stats_.requested_bytes);
  ++stats_.allocation_count;
  ++stats_.live_blocks;
  return block->address;
}

void CachingAllocator::release(uint64_t address) {
  const auto found = blocks_.find(address);
  TRN_ASSERT(found != blocks_.end() && found->second->is_live,
             "a release of an address that is not live");
  Block* block = found->second.get();
  stats_.allocated_bytes -= block->size;
  stats_.requested_bytes -= block->requested;
  ++stats_.free_count;
  --stats_.live_blocks;
  block->is_live = false;
  block->requested = 0;
  FreeBlocks& free = free_blocks(block->is_small);
  if (Block* after = block->after; after && !after->is_live) {
    free.erase(after);
    absorb(block, after);
  }
  if (Block* before = block->before; before && !before->is_live) {
    free.erase(before);
    absorb(before, block);
    block = before;
  }
  free.insert(block);
}

void CachingAllocator::release_cached_segments() {
  for (FreeBlocks* free : {&free_small_, &free_large_}) {
    for (auto at = free->begin(); at != free->end();) {
      Block* block = *at;
      if (block->before || block->after) {
        ++at;
        continue;
      }
      at = free->erase(at);
      stats_.reserved_bytes -= block->size;
      --stats_.segment_count;
      segments_.erase(block->address);
      blocks_.erase(block->address);
    }
  }
}

int64_t CachingAllocator::block_bytes(uint64_t address) const {
  const auto found = blocks_.find(address);
  TRN_ASSERT(found != blocks_.end() && found->second->is_live,
             "the size of a block that is not live");
  return found->second->size;
}

void CachingAllocator::reset_failures() { stats_.retries = stats_.out_of_memory = 0; }

void CachingAllocator::reset_peaks() {
  stats_.allocated_peak = stats_.allocated_bytes;
  stats_.requested_peak = stats_.requested_bytes;
  stats_.reserved_peak = stats_.reserved_bytes;
}

std::vector<SegmentInfo> CachingAllocator::segments() const {
  std::vector<SegmentInfo> out;
  out.reserve(segments_.size());
  for (const auto& [address, first] : segments_) {
    SegmentInfo segment{address, 0, first->stream, first->is_small, {}};
    for (const Block* block = first; block; block = block->after) {
      segment.size += block->size;
      segment.blocks.push_back({block->address, block->size, block->requested, block->is_live});
    }
    out.push_back(std::move(segment));
  }
  return out;
}

CachingAllocator::Block* CachingAllocator::take_free(int64_t size, int32_t stream, bool small) {
  Block wanted;
  wanted.stream = stream;
  wanted.size = size;
  FreeBlocks& free = free_blocks(small);
  const auto found = free.lower_bound(&wanted);
  if (found == free.end() || (*found)->stream != stream) return nullptr;
  Block* block = *found;
  free.erase(found);
  return block;
}

CachingAllocator::Block* CachingAllocator::add_segment(int64_t size, int32_t stream, bool small) {
  if (capacity_ >= 0 && stats_.reserved_bytes + size > capacity_) return nullptr;
  auto block = std::make_unique<Block>();
  block->address = next_address_;
  block->size = size;
  block->stream = stream;
  block->is_small = small;
  next_address_ += uint64_t(size);
  stats_.reserved_bytes += size;
  stats_.reserved_peak = std::max(stats_.reserved_peak, stats_.reserved_bytes);
  ++stats_.segment_count;
  Block* added = block.get();
  segments_.emplace(added->address, added);
  blocks_.emplace(added->address, std::move(block));
  return added;
}

// Cuts `block`, which is in no free set, to `size`; the rest becomes a free block after it.
void CachingAllocator::split(Block* block, int64_t size) {
  auto rest = std::make_unique<Block>(*block);
  rest->address += uint64_t(size);
  rest->size -= size;
  rest->before = block;
  if (rest->after) rest->after->before = rest.get();
  block->after = rest.get();
  block->size = size;
  free_blocks(block->is_small).insert(rest.get());
  blocks_.emplace(rest->address, std::move(rest));
}

// `after` follows `block`; neither is in a free set.
void CachingAllocator::absorb(Block* block, Block* after) {
  block->size += after->size;
  block->after = after->after;
  if (block->after) block->after->before = block;
  blocks_.erase(after->address);
}

}  // namespace trnsim::workload
