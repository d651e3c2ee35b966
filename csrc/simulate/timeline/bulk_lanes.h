// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Lanes over thrust::device_vector, once for each device system: the includer sets
// THRUST_DEVICE_SYSTEM and TRNSIM_BULK_TARGET, the namespace. On the CPP, OMP and TBB systems
// device memory is host memory and nothing is copied.
//
// A run advances the tiles that had a release. Arrivals and releases, one a queue with calls and
// lane, are the only things that cross between host and device.
#pragma once

#include <thrust/execution_policy.h>
#include <thrust/fill.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "simulate/network/transfers.h"
#include "simulate/systems/device.h"
#include "simulate/timeline/bulk.h"
#include "simulate/timeline/bulk_view.h"
#include "simulate/timeline/device_tables.h"
#include "simulate/timeline/kept_times.h"
#include "simulate/timeline/tile_states.h"

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

void advance(const BulkView& view, const std::vector<TileRun>& runs);

// Small arrays that host and device both write. On a CPU there is one copy.
template <typename T>
struct Shared {
  std::vector<T> host;
  Device<T> device;

  void assign(size_t size, T value) {
    host.assign(size, value);
    if (!kHostMemory) device.assign(size, value);
  }
  T* data() { return kHostMemory ? host.data() : raw(device); }
  void upload() {
    if (!kHostMemory) load(device, host);
  }
  void download() {
    if (!kHostMemory) save(device, host);
  }
};

class BulkLanes final : public Lanes {
 public:
  BulkLanes(const fold::System& system, bool keep_times)
      : system_(system),
        keep_times_(keep_times),
        tables_(make_lane_tables(system, keep_times)),
        tiling_(make_tiling(system, tables_)),
        active_(tiling_.tiles.size()),
        is_active_(tiling_.tiles.size(), 1),
        on_device_(tables_, tiling_) {
    std::iota(active_.begin(), active_.end(), 0);
    make_state();
    // With every time kept, most of the work is to write them down.
    if (kHostMemory && !keep_times) {
      states_ = std::make_unique<TileStates>(tables_, system, tiling_.tiles);
    }
  }

  void run(int64_t, std::vector<Arrival>& arrivals) override {
    if (active_.empty()) return;
    const BulkView view = this->view();
    runs_.clear();
    for (const int32_t tile : active_) {
      runs_.push_back(states_ ? states_->plan(tile, view) : TileRun{tile, nullptr, nullptr});
      is_active_[size_t(tile)] = 0;
    }
    active_.clear();
    release_ps_.upload();
    advance(view, runs_);
    release_ps_.download();
    arrived_.download();
    arrival_ps_.download();
    for (const TileRun& run : runs_) {
      collect(run, arrivals);
      if (states_) states_->finish(run, view);
    }
    arrived_.upload();
  }

  void release(const std::vector<int32_t>& ranks, const std::vector<int32_t>& tasks,
               int64_t time_ps) override {
    for (size_t i = 0; i < ranks.size();) {
      const int32_t tile = tiling_.lane_of_rank[size_t(ranks[i])] / kTileLanes, task = tasks[i];
      const int32_t queue = call_queue_of(tile, task);
      int64_t* row = release_ps_.host.data() + tiling_.tiles[size_t(tile)].call_base +
                     int64_t(queue) * kTileLanes;
      const size_t first = i;  // neighbours mostly share tile and task
      for (; i < ranks.size() && tasks[i] == task; ++i) {
        const int32_t lane = tiling_.lane_of_rank[size_t(ranks[i])];
        if (lane / kTileLanes != tile) break;
        row[lane % kTileLanes] = time_ps;
      }
      if (states_) states_->release(tile, queue, int32_t(i - first));
      if (is_active_[size_t(tile)] == 0) active_.push_back(tile);
      is_active_[size_t(tile)] = 1;
    }
  }

  int64_t next_ps() const override { return kNever; }

  int64_t ended_count() const override {
    std::vector<int64_t> ended;
    save(ended_, ended);
    int64_t total = 0;
    for (size_t index = 0; index < tiling_.tiles.size(); ++index) {
      const Tile& tile = tiling_.tiles[index];
      const auto first = ended.begin() + tile.lane_base;
      total += state_of(int32_t(index)) != nullptr
                   ? tile.lanes * states_->ended(int32_t(index))
                   : std::accumulate(first, first + tile.lanes, int64_t(0));
    }
    return total;
  }

  int32_t head(int32_t rank, int32_t queue) const override {
    const int32_t tile = tiling_.lane_of_rank[size_t(rank)] / kTileLanes;
    const LaneState* state = state_of(tile);
    const int32_t first = state != nullptr ? state->heads[size_t(queue)]
                                           : element(heads_, tiling_.at_queue(rank, queue));
    return tables_.count_before(role_of(tile), queue, first);
  }
  bool head_started(int32_t rank, int32_t queue) const override {
    const LaneState* state = state_of(tiling_.lane_of_rank[size_t(rank)] / kTileLanes);
    if (state != nullptr) return state->started[size_t(queue)] != 0;
    return element(started_, tiling_.at_queue(rank, queue)) != 0;
  }

  void write(Timeline& timeline) const override {
    std::vector<uint64_t> hashes;
    std::vector<int64_t> free_ps;
    save(hashes_, hashes);
    save(free_ps_, free_ps);
    timeline.first_task.assign(1, 0);
    for (size_t rank = 0; rank < system_.ranks.size(); ++rank) {
      const size_t lane = size_t(tiling_.lane_of_rank[rank]);
      int64_t& last_end_ps = timeline.last_end_ps.emplace_back(0);
      timeline.hash += hashes[lane] * uint64_t(system_.ranks[rank].count);
      const RoleTable& role = role_of(int32_t(lane) / kTileLanes);
      timeline.first_task.push_back(timeline.first_task.back() + role.task_count);
      for (int32_t queue = 0; queue < role.queue_count; ++queue) {
        if (tables_.first_tasks[size_t(role.queue_begin + queue)] == role.task_count) continue;
        const int64_t end = free_ps[size_t(tiling_.at_queue(int32_t(rank), queue))];
        last_end_ps = std::max(last_end_ps, end);
      }
    }
    if (keep_times_) write_kept_times(tiling_, tables_, times_ps_, timeline);
  }

 private:
  const RoleTable& role_of(int32_t tile) const {
    return tables_.roles[size_t(tiling_.tiles[size_t(tile)].role)];
  }
  int32_t call_queue_of(int32_t tile, int32_t task) const {
    const RoleTable& role = role_of(tile);
    const int32_t queue = tables_.tasks[size_t(role.task_begin + task)].queue;
    return tables_.call_queues[size_t(role.queue_begin + queue)];
  }
  const LaneState* state_of(int32_t tile) const { return states_ ? states_->state(tile) : nullptr; }

  void make_state() {
    const size_t lanes = tiling_.tiles.size() * kTileLanes;
    std::vector<int32_t> heads(size_t(tiling_.queue_size), 0);
    std::vector<int64_t> free_ps(size_t(tiling_.queue_size), 0);
    for (size_t rank = 0; rank < system_.ranks.size(); ++rank) {
      const RoleTable& role = role_of(tiling_.lane_of_rank[rank] / kTileLanes);
      for (int32_t queue = 0; queue < role.queue_count; ++queue) {
        const size_t at = size_t(tiling_.at_queue(int32_t(rank), queue));
        heads[at] = tables_.first_tasks[size_t(role.queue_begin + queue)];
        free_ps[at] = system_.ranks[rank].start_ps;
      }
    }
    load(heads_, heads);
    load(free_ps_, free_ps);
    keys_.resize(size_t(tiling_.queue_size));
    started_.assign(size_t(tiling_.queue_size), 0);
    base_ps_.assign(size_t(tiling_.queue_size), 0);
    times_ps_.assign(size_t(tiling_.slot_size), 0);
    hashes_.assign(lanes, 0);
    ended_.assign(lanes, 0);
    arrived_.assign(size_t(tiling_.call_size), kNone);
    arrival_ps_.assign(size_t(tiling_.call_size), 0);
    release_ps_.assign(size_t(tiling_.call_size), kNone);
  }

  BulkView view() {
    BulkView view;
    on_device_.show(view);
    view.heads = raw(heads_);
    view.started = raw(started_);
    view.free_ps = raw(free_ps_);
    view.base_ps = raw(base_ps_);
    view.keys = raw(keys_);
    view.arrived = arrived_.data();
    view.arrival_ps = arrival_ps_.data();
    view.release_ps = release_ps_.data();
    view.times_ps = raw(times_ps_);
    view.hashes = raw(hashes_);
    view.ended = raw(ended_);
    return view;
  }

  void collect(const TileRun& run, std::vector<Arrival>& arrivals) {
    const Tile& tile = tiling_.tiles[size_t(run.tile)];
    const int32_t* ranks = tiling_.rank_of_lane.data() + tile.lane_base;
    if (run.segment != nullptr) {
      for (const auto& [queue, task] : run.segment->arrivals) {
        const int64_t* times =
            arrival_ps_.host.data() + tile.call_base + int64_t(queue) * kTileLanes;
        for (int32_t i = 0; i < tile.lanes; ++i) arrivals.push_back({ranks[i], task, times[i]});
      }
      return;
    }
    for (int32_t queue = 0; queue < role_of(run.tile).call_queue_count; ++queue) {
      for (int32_t lane = 0; lane < tile.lanes; ++lane) {
        const size_t at = size_t(tile.call_base + int64_t(queue) * kTileLanes + lane);
        if (arrived_.host[at] == kNone) continue;
        arrivals.push_back({ranks[lane], arrived_.host[at], arrival_ps_.host[at]});
        arrived_.host[at] = kNone;
      }
    }
  }

  const fold::System& system_;
  bool keep_times_;
  LaneTables tables_;
  Tiling tiling_;
  std::vector<int32_t> active_;     // tiles to advance
  std::vector<uint8_t> is_active_;  // by tile
  std::vector<TileRun> runs_;
  std::unique_ptr<TileStates> states_;  // null where every tile is the functor's

  DeviceTables on_device_;
  Device<int32_t> heads_, keys_;
  Device<uint8_t> started_;
  Device<int64_t> free_ps_, base_ps_, times_ps_, ended_;
  Device<uint64_t> hashes_;
  Shared<int32_t> arrived_;
  Shared<int64_t> arrival_ps_, release_ps_;
};

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
