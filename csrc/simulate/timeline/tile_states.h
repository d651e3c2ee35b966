// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which tiles can replay a Segment (schedule.h), and which. A tile whose lanes all stand alike has
// a state number, and its heads stand in the schedule alone. When its lanes get different releases,
// heads are written to the view and the functor takes lane by lane, until they stand alike again.
// Tiles whose factors change in mid-run are the functor's throughout.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "simulate/timeline/bulk_view.h"
#include "simulate/timeline/schedule.h"

namespace trnsim::simulate {

// What a tile does in one run: a Segment, or, without one, whatever the functor finds.
struct TileRun {
  int32_t tile = 0;
  const Rows* rows = nullptr;
  const Segment* segment = nullptr;
};

class TileStates {
 public:
  TileStates(const LaneTables& tables, const fold::System& system, const std::vector<Tile>& tiles);

  // So many lanes of the tile had the call at the head of this queue (dense number) released.
  void release(int32_t tile, int32_t queue, int32_t lanes) {
    State& at = states_[size_t(tile)];
    int32_t& releases = at.releases[size_t(queue)];
    if (releases == 0) at.released.push_back(queue);
    releases += lanes;
  }
  // What the tile does now; takes the releases since the last plan.
  TileRun plan(int32_t tile, const BulkView& view);
  void finish(const TileRun& run, const BulkView& view);

  // Where all its lanes stand; null while the view says it lane by lane.
  const LaneState* state(int32_t tile) const;
  int64_t ended(int32_t tile) const;  // tasks of one lane, where there is a state

 private:
  static constexpr int32_t kMixed = -1;
  struct State {
    int32_t number = 0;  // or kMixed
    std::vector<int32_t> released;
    std::vector<int32_t> releases;  // lanes, by dense number
  };

  Schedule& schedule_of(int32_t tile) const {
    return *schedules_[size_t(tiles_[size_t(tile)].role)];
  }
  const RoleTable& role_of(int32_t tile) const {
    return tables_.roles[size_t(tiles_[size_t(tile)].role)];
  }
  void leave(int32_t tile, const BulkView& view);
  bool are_alike(int32_t tile, const BulkView& view) const;
  void enter(int32_t tile, const BulkView& view);

  const LaneTables& tables_;
  const std::vector<Tile>& tiles_;
  std::vector<std::unique_ptr<Schedule>> schedules_;  // by role
  std::vector<State> states_;                         // by tile
};

}  // namespace trnsim::simulate
