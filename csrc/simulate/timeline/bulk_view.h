// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The state of all lanes, as raw pointers that a CPU or a GPU functor can use.
//
// Lanes of one role stand in tiles of kTileLanes. Every array is [tile][row][lane]: a CPU thread
// takes a tile and its inner loops run over lanes (SIMD), a GPU thread takes a lane and its
// neighbours read neighbouring words. Rows are queues, queues with calls, or slots.
#pragma once

#include <cstdint>

#include "simulate/timeline/lane_tables.h"

namespace trnsim::simulate {

// 64: two cache lines of ends a queue on a CPU, two warps on a GPU.
inline constexpr int32_t kTileLanes = 64;

struct Tile {
  int32_t role = 0;
  int32_t lanes = 0;       // valid ones; the rest is padding whose results nobody reads
  int64_t queue_base = 0;  // offsets of the tile's arrays, in elements
  int64_t call_base = 0;
  int64_t slot_base = 0;
  int64_t lane_base = 0;
  int64_t count = 1;      // how many ranks each of its lanes stands for
  uint8_t is_scaled = 0;  // some lane has a factor other than 1
  uint8_t changes = 0;    // its lanes change their factors in mid-run
};

struct BulkView {
  const RoleTable* roles = nullptr;
  const TaskRow* tasks = nullptr;
  const DepRow* deps = nullptr;
  const int32_t* call_queues = nullptr;
  const Tile* tiles = nullptr;
  const int32_t* factors = nullptr;  // [lane]
  // Of a lane: change_ps[first_change[lane]] up to first_change[lane + 1], ascending.
  const int32_t* first_change = nullptr;
  const int64_t* change_ps = nullptr;
  const int32_t* change_factors = nullptr;

  int32_t* heads = nullptr;       // [queue][lane] first task that has not ended
  uint8_t* started = nullptr;     // [queue][lane] the head has started
  int64_t* free_ps = nullptr;     // [queue][lane] end of the task before the head
  int64_t* base_ps = nullptr;     // [queue][lane] end of a started head but for its bounds
  int32_t* keys = nullptr;        // [queue][lane] scratch: the head, or kClosed
  int32_t* arrived = nullptr;     // [call queue][lane] call that arrived in this run, or kNone
  int64_t* arrival_ps = nullptr;  // [call queue][lane]
  int64_t* release_ps = nullptr;  // [call queue][lane] end of the call at the head, or kNone
  int64_t* times_ps = nullptr;    // [slot][lane]
  uint64_t* hashes = nullptr;     // [lane] sum of mix_end; a replay adds its lanes' to the first
  int64_t* ended = nullptr;       // [lane] tasks that have ended
};

struct Rows;
struct Segment;

// What a CPU does with a tile.
struct TileWork {
  void (*advance)(const BulkView& view, int32_t tile) = nullptr;
  void (*replay)(const BulkView& view, int32_t tile, const Rows& rows,
                 const Segment& segment) = nullptr;
};
// The version for the processor that runs this; with TRNSIM_CPU=avx2 or baseline, the one that asks
// for no more, for tests.
TileWork work_for_this_processor();
// At least `words` words of this thread's, on a cache line.
uint32_t* replay_scratch(int64_t words);

}  // namespace trnsim::simulate
