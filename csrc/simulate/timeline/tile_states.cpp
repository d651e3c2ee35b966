// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/timeline/tile_states.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace trnsim::simulate {

TileStates::TileStates(const LaneTables& tables, const fold::System& system,
                       const std::vector<Tile>& tiles)
    : tables_(tables), tiles_(tiles) {
  std::vector<int32_t> max_factors(tables.roles.size(), 0);
  for (const fold::Rank& rank : system.ranks) {
    int32_t& max_factor = max_factors[size_t(rank.role)];
    max_factor = std::max(max_factor, rank.factor);
  }
  for (size_t role = 0; role < tables.roles.size(); ++role) {
    schedules_.push_back(std::make_unique<Schedule>(tables, int32_t(role), max_factors[role]));
  }
  states_.resize(tiles.size());
  for (size_t tile = 0; tile < tiles.size(); ++tile) {
    if (tiles[tile].changes) states_[tile].number = kMixed;  // the functor's
    states_[tile].releases.assign(size_t(role_of(int32_t(tile)).call_queue_count), 0);
  }
}

TileRun TileStates::plan(int32_t tile, const BulkView& view) {
  State& at = states_[size_t(tile)];
  const int32_t lanes = tiles_[size_t(tile)].lanes;
  bool together = true;
  for (const int32_t queue : at.released) {
    together &= at.releases[size_t(queue)] == lanes;
    at.releases[size_t(queue)] = 0;
  }
  std::sort(at.released.begin(), at.released.end());
  TileRun run{tile, &schedule_of(tile).rows(), nullptr};
  if (at.number != kMixed && together) {
    run.segment = schedule_of(tile).segment(at.number, at.released);
  }
  if (at.number != kMixed && run.segment == nullptr) leave(tile, view);
  at.released.clear();
  return run;
}

void TileStates::finish(const TileRun& run, const BulkView& view) {
  if (run.segment != nullptr) {
    states_[size_t(run.tile)].number = run.segment->next_state;
  } else if (!tiles_[size_t(run.tile)].changes && !schedule_of(run.tile).is_full() &&
             are_alike(run.tile, view)) {
    enter(run.tile, view);
  }
}

const LaneState* TileStates::state(int32_t tile) const {
  const int32_t number = states_[size_t(tile)].number;
  return number == kMixed ? nullptr : &schedule_of(tile).state(number);
}

int64_t TileStates::ended(int32_t tile) const {
  return schedule_of(tile).ended(states_[size_t(tile)].number);
}

void TileStates::leave(int32_t index, const BulkView& view) {
  const Tile& tile = tiles_[size_t(index)];
  const LaneState& state = *this->state(index);
  for (int32_t queue = 0; queue < role_of(index).queue_count; ++queue) {
    const int64_t at = tile.queue_base + int64_t(queue) * kTileLanes;
    std::fill_n(view.heads + at, kTileLanes, state.heads[size_t(queue)]);
    std::fill_n(view.started + at, kTileLanes, state.started[size_t(queue)]);
  }
  std::fill_n(view.ended + tile.lane_base, kTileLanes, ended(index));
  states_[size_t(index)].number = kMixed;
}

bool TileStates::are_alike(int32_t index, const BulkView& view) const {
  const Tile& tile = tiles_[size_t(index)];
  const auto alike = [&](const auto* row, auto equal) {
    return std::all_of(row + 1, row + tile.lanes,
                       [&](const auto& lane) { return equal(lane, row[0]); });
  };
  bool same = true;
  for (int32_t queue = 0; same && queue < role_of(index).queue_count; ++queue) {
    const int64_t at = tile.queue_base + int64_t(queue) * kTileLanes;
    same = alike(view.heads + at, std::equal_to<>()) && alike(view.started + at, std::equal_to<>());
  }
  for (int32_t queue = 0; same && queue < role_of(index).call_queue_count; ++queue) {
    const int64_t* row = view.release_ps + tile.call_base + int64_t(queue) * kTileLanes;
    same = alike(row, [](int64_t a, int64_t b) { return (a == kNone) == (b == kNone); });
  }
  return same;
}

void TileStates::enter(int32_t index, const BulkView& view) {
  const Tile& tile = tiles_[size_t(index)];
  LaneState state;
  for (int32_t queue = 0; queue < role_of(index).queue_count; ++queue) {
    const int64_t at = tile.queue_base + int64_t(queue) * kTileLanes;
    state.heads.push_back(view.heads[at]);
    state.started.push_back(view.started[at]);
  }
  for (int32_t queue = 0; queue < role_of(index).call_queue_count; ++queue) {
    const int64_t at = tile.call_base + int64_t(queue) * kTileLanes;
    state.released.push_back(view.release_ps[at] != kNone);
  }
  const int64_t ended = view.ended[tile.lane_base];
  states_[size_t(index)].number = schedule_of(index).find_state(std::move(state), ended);
}

}  // namespace trnsim::simulate
