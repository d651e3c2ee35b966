// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/timeline/tiling.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace trnsim::simulate {
namespace {

// For lanes like this rank's.
void add_tile(const fold::Rank& rank, const LaneTables& tables, Tiling& tiling) {
  Tile tile;
  tile.role = rank.role;
  tile.count = rank.count;
  tile.changes = !rank.changes.empty();
  tile.lane_base = int64_t(tiling.tiles.size()) * kTileLanes;
  tile.queue_base = tiling.queue_size;
  tile.call_base = tiling.call_size;
  tile.slot_base = tiling.slot_size;
  const RoleTable& table = tables.roles[size_t(rank.role)];
  tiling.queue_size += int64_t(table.queue_count) * kTileLanes;
  tiling.call_size += int64_t(table.call_queue_count) * kTileLanes;
  tiling.slot_size += int64_t(table.slot_count) * kTileLanes;
  tiling.rank_of_lane.resize(size_t(tile.lane_base) + kTileLanes, kNone);
  tiling.tiles.push_back(tile);
}

void add_factors(const fold::System& system, Tiling& tiling) {
  tiling.first_change.push_back(0);
  for (const int32_t rank : tiling.rank_of_lane) {
    tiling.factors.push_back(rank == kNone ? 1 << 16 : system.ranks[size_t(rank)].factor);
    if (rank != kNone) {
      for (const fold::FactorChange& change : system.ranks[size_t(rank)].changes) {
        tiling.change_ps.push_back(change.time_ps);
        tiling.change_factors.push_back(change.factor);
      }
    }
    tiling.first_change.push_back(int32_t(tiling.change_ps.size()));
  }
}

}  // namespace

Tiling make_tiling(const fold::System& system, const LaneTables& tables) {
  Tiling tiling;
  tiling.lane_of_rank.resize(system.ranks.size());
  std::vector<int32_t> order(system.ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const fold::Rank &left = system.ranks[size_t(a)], &right = system.ranks[size_t(b)];
    return std::tuple(left.role, left.count, left.changes.size() > 0) <
           std::tuple(right.role, right.count, right.changes.size() > 0);
  });
  for (const int32_t rank : order) {
    const fold::Rank& at = system.ranks[size_t(rank)];
    if (tiling.tiles.empty() || tiling.tiles.back().role != at.role ||
        tiling.tiles.back().count != at.count || tiling.tiles.back().lanes == kTileLanes ||
        tiling.tiles.back().changes != !at.changes.empty()) {
      add_tile(at, tables, tiling);
    }
    Tile& tile = tiling.tiles.back();
    const int32_t lane = int32_t(tile.lane_base) + tile.lanes++;
    tile.is_scaled |= at.factor != 1 << 16 || !at.changes.empty();
    tiling.lane_of_rank[size_t(rank)] = lane;
    tiling.rank_of_lane[size_t(lane)] = rank;
  }
  add_factors(system, tiling);
  return tiling;
}

}  // namespace trnsim::simulate
