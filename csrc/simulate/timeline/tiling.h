// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which rank is which lane of which tile, and what a lane has of its own from the start.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/timeline/bulk_view.h"

namespace trnsim::simulate {

struct Tiling {
  std::vector<Tile> tiles;
  std::vector<int32_t> lane_of_rank;
  std::vector<int32_t> rank_of_lane;                     // kNone for padding
  int64_t queue_size = 0, call_size = 0, slot_size = 0;  // elements of all tiles
  std::vector<int32_t> factors;                          // by lane
  std::vector<int32_t> first_change, change_factors;     // as in BulkView
  std::vector<int64_t> change_ps;

  const Tile& tile_of(int32_t lane) const { return tiles[size_t(lane / kTileLanes)]; }
  // Of a rank's queue, in arrays of [queue][lane].
  int64_t at_queue(int32_t rank, int32_t queue) const {
    const int32_t lane = lane_of_rank[size_t(rank)];
    return tile_of(lane).queue_base + int64_t(queue) * kTileLanes + lane % kTileLanes;
  }
};

// A tile's lanes have one role and one count, and all change their factors in mid-run or none do.
Tiling make_tiling(const fold::System& system, const LaneTables& tables);

}  // namespace trnsim::simulate
