// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Times that were all kept, from lanes to the Timeline. For each device system, as bulk_lanes.h.
#pragma once

#include <algorithm>
#include <vector>

#include "simulate/systems/device.h"
#include "simulate/timeline/tiling.h"

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

// [slot][lane] becomes [rank][task], a square of tasks and lanes at a time. first_task is there.
inline void write_kept_times(const Tiling& tiling, const LaneTables& tables,
                             const Device<int64_t>& times_ps, Timeline& timeline) {
  constexpr int32_t kSquare = 64;
  const size_t total = size_t(timeline.first_task.back());
  timeline.starts_ps.resize(total);
  timeline.ends_ps.resize(total);
  std::vector<int64_t> window;
  for (const Tile& tile : tiling.tiles) {
    const int32_t tasks = tables.roles[size_t(tile.role)].task_count;
    window.resize(size_t(tasks) * 2 * kTileLanes);
    if (window.empty()) continue;
    const auto begin = times_ps.begin() + tile.slot_base;
    thrust::copy(begin, begin + int64_t(window.size()), window.begin());
    for (int32_t first = 0; first < tasks; first += kSquare) {
      for (int32_t lane = 0; lane < tile.lanes; ++lane) {
        const int32_t rank = tiling.rank_of_lane[size_t(tile.lane_base + lane)];
        const size_t to = size_t(timeline.first_task[size_t(rank)]);
        for (int32_t task = first; task < std::min(tasks, first + kSquare); ++task) {
          const size_t end = size_t(task) * kTileLanes + size_t(lane);
          timeline.ends_ps[to + size_t(task)] = window[end];
          timeline.starts_ps[to + size_t(task)] = window[end + size_t(tasks) * kTileLanes];
        }
      }
    }
  }
}

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
