// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <random>

#include "workload/caching_allocator.h"

namespace trnsim::workload {
namespace {

constexpr int64_t kMiB = int64_t(1) << 20;
constexpr uint64_t kBase = uint64_t(1) << 40;

TEST(CachingAllocator, SmallRequestsShareATwoMebibyteSegment) {
  CachingAllocator allocator(-1, kBase);
  const uint64_t a = allocator.allocate(1, 0), b = allocator.allocate(513, 0);
  EXPECT_EQ(a, kBase);
  EXPECT_EQ(b, kBase + 512);  // a took one block of 512
  EXPECT_EQ(allocator.stats().allocated_bytes, 512 + 1024);
  EXPECT_EQ(allocator.stats().requested_bytes, 514);
  EXPECT_EQ(allocator.stats().reserved_bytes, 2 * kMiB);
  EXPECT_EQ(allocator.block_bytes(b), 1024);
}

TEST(CachingAllocator, SegmentSizesFollowTheThreeClasses) {
  CachingAllocator allocator(-1, kBase);
  allocator.allocate(kMiB, 0);       // small: 2 MiB
  allocator.allocate(kMiB + 1, 0);   // middle: 20 MiB
  allocator.allocate(10 * kMiB, 0);  // fits in the rest of it (18.99 MiB)
  EXPECT_EQ(allocator.stats().reserved_bytes, 22 * kMiB);
  allocator.allocate(10 * kMiB + 1, 0);  // large: rounded to 2 MiB
  EXPECT_EQ(allocator.stats().reserved_bytes, 34 * kMiB);
}

TEST(CachingAllocator, ALargeBlockKeepsARestOfUpToOneMebibyte) {
  CachingAllocator allocator(-1, kBase);
  // 11 MiB in a segment of 12 MiB: the rest of exactly 1 MiB stays in the block.
  const uint64_t a = allocator.allocate(11 * kMiB, 0);
  EXPECT_EQ(allocator.block_bytes(a), 12 * kMiB);
  // 10.5 MiB in 12 MiB: 1.5 MiB is cut off.
  const uint64_t b = allocator.allocate(10 * kMiB + kMiB / 2, 0);
  EXPECT_EQ(allocator.block_bytes(b), 10 * kMiB + kMiB / 2);
}

TEST(CachingAllocator, TheSmallestFreeBlockThatFitsIsTaken) {
  CachingAllocator allocator(-1, kBase);
  const uint64_t a = allocator.allocate(4096, 0);
  allocator.allocate(512, 0);
  const uint64_t b = allocator.allocate(1024, 0);
  allocator.allocate(512, 0);
  allocator.release(a);
  allocator.release(b);
  EXPECT_EQ(allocator.allocate(1000, 0), b);
  EXPECT_EQ(allocator.allocate(1025, 0), a);  // cut: 1536 of 4096
  EXPECT_EQ(allocator.block_bytes(a), 1536);
}

TEST(CachingAllocator, FreeNeighboursMerge) {
  CachingAllocator allocator(-1, kBase);
  const uint64_t a = allocator.allocate(512, 0), b = allocator.allocate(512, 0),
                 c = allocator.allocate(512, 0);
  allocator.release(a);
  allocator.release(c);
  allocator.release(b);
  const auto segments = allocator.segments();
  ASSERT_EQ(segments.size(), 1u);
  ASSERT_EQ(segments[0].blocks.size(), 1u);
  EXPECT_EQ(segments[0].blocks[0].size, 2 * kMiB);
  EXPECT_FALSE(segments[0].blocks[0].is_live);
}

TEST(CachingAllocator, BlocksBelongToTheirStream) {
  CachingAllocator allocator(-1, kBase);
  const uint64_t a = allocator.allocate(512, 0);
  allocator.release(a);
  EXPECT_NE(allocator.allocate(512, 1), a);
  EXPECT_EQ(allocator.allocate(512, 0), a);
  EXPECT_EQ(allocator.stats().segment_count, 2);
}

TEST(CachingAllocator, AtCapacityFreeSegmentsAreReturnedAndThenTheRequestFails) {
  CachingAllocator allocator(24 * kMiB, kBase);
  const uint64_t a = allocator.allocate(20 * kMiB, 0);
  allocator.release(a);
  const uint64_t b = allocator.allocate(22 * kMiB, 0);  // only fits once the 20 are returned
  EXPECT_GT(b, a);
  EXPECT_EQ(allocator.stats().retries, 1);
  EXPECT_EQ(allocator.stats().reserved_bytes, 22 * kMiB);
  EXPECT_EQ(allocator.allocate(4 * kMiB, 0), 0u);
  EXPECT_EQ(allocator.stats().out_of_memory, 1);
  allocator.reset_failures();
  EXPECT_EQ(allocator.stats().out_of_memory, 0);
  EXPECT_EQ(allocator.stats().retries, 0);
  EXPECT_EQ(allocator.stats().allocated_bytes, 22 * kMiB);
  EXPECT_EQ(allocator.stats().reserved_peak, 22 * kMiB);
}

// Blocks never overlap, segments are covered exactly, and every counter is the sum that it names.
TEST(CachingAllocator, RandomTracesKeepTheBooks) {
  std::mt19937_64 random(11);
  CachingAllocator allocator(512 * kMiB, kBase);
  std::vector<uint64_t> live;
  for (int round = 0; round < 20000; ++round) {
    if (live.empty() || random() % 5 < 3) {
      const int64_t bytes = int64_t(random() % (uint64_t(1) << (4 + random() % 21)));
      if (const uint64_t address = allocator.allocate(bytes, int32_t(random() % 2)))
        live.push_back(address);
    } else {
      std::swap(live[random() % live.size()], live.back());
      allocator.release(live.back());
      live.pop_back();
    }
    if (round % 500) continue;
    int64_t allocated = 0, reserved = 0, count = 0, requested = 0;
    for (const SegmentInfo& segment : allocator.segments()) {
      uint64_t at = segment.address;
      bool last_free = false;
      for (const BlockInfo& block : segment.blocks) {
        EXPECT_EQ(block.address, at);
        EXPECT_FALSE(last_free && !block.is_live) << "two free neighbours";
        last_free = !block.is_live;
        at += uint64_t(block.size);
        if (block.is_live) allocated += block.size, requested += block.requested, ++count;
      }
      EXPECT_EQ(at, segment.address + uint64_t(segment.size));
      reserved += segment.size;
    }
    EXPECT_EQ(allocated, allocator.stats().allocated_bytes);
    EXPECT_EQ(requested, allocator.stats().requested_bytes);
    EXPECT_EQ(reserved, allocator.stats().reserved_bytes);
    EXPECT_EQ(count, int64_t(live.size()));
    EXPECT_LE(reserved, 512 * kMiB);
  }
}

}  // namespace
}  // namespace trnsim::workload
