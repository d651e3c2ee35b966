// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Lanes over thrust::device_vector, once for each device system: the includer sets
// THRUST_DEVICE_SYSTEM and TRNSIM_BULK_TARGET, the namespace. On the CPP and OMP systems device
// memory is host memory and nothing is copied.
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
#include <tuple>
#include <vector>

#include "simulate/network/transfers.h"
#include "simulate/systems/device.h"
#include "simulate/timeline/bulk.h"
#include "simulate/timeline/bulk_view.h"
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
      : system_(system), keep_times_(keep_times), tables_(make_lane_tables(system, keep_times)) {
    make_tiles();
    make_state();
    upload_tables();
    // With every time kept, most of the work is to write them down.
    if (kHostMemory && !keep_times) {
      states_ = std::make_unique<TileStates>(tables_, system, tiles_);
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
      const int32_t tile = lane_of_rank_[size_t(ranks[i])] / kTileLanes, task = tasks[i];
      const int32_t queue = call_queue_of(tile, task);
      int64_t* row =
          release_ps_.host.data() + tiles_[size_t(tile)].call_base + int64_t(queue) * kTileLanes;
      const size_t first = i;  // neighbours mostly share tile and task
      for (; i < ranks.size() && tasks[i] == task; ++i) {
        const int32_t lane = lane_of_rank_[size_t(ranks[i])];
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
    for (size_t index = 0; index < tiles_.size(); ++index) {
      const Tile& tile = tiles_[index];
      const auto first = ended.begin() + tile.lane_base;
      total += state_of(int32_t(index)) != nullptr
                   ? tile.lanes * states_->ended(int32_t(index))
                   : std::accumulate(first, first + tile.lanes, int64_t(0));
    }
    return total;
  }

  int32_t head(int32_t rank, int32_t queue) const override {
    const int32_t tile = lane_of_rank_[size_t(rank)] / kTileLanes;
    const LaneState* state = state_of(tile);
    const int32_t first =
        state != nullptr ? state->heads[size_t(queue)] : element(heads_, at_queue(rank, queue));
    const RoleTable& role = role_of(tile);
    int32_t ended = 0;
    for (int32_t task = 0; task < std::min(first, role.task_count); ++task) {
      ended += tables_.tasks[size_t(role.task_begin + task)].queue == queue;
    }
    return ended;
  }
  bool head_started(int32_t rank, int32_t queue) const override {
    const LaneState* state = state_of(lane_of_rank_[size_t(rank)] / kTileLanes);
    if (state != nullptr) return state->started[size_t(queue)] != 0;
    return element(started_, at_queue(rank, queue)) != 0;
  }

  void write(Timeline& timeline) const override {
    std::vector<uint64_t> hashes;
    std::vector<int64_t> free_ps;
    save(hashes_, hashes);
    save(free_ps_, free_ps);
    timeline.first_task.assign(1, 0);
    for (size_t rank = 0; rank < system_.ranks.size(); ++rank) {
      const size_t lane = size_t(lane_of_rank_[rank]);
      timeline.hash += hashes[lane] * uint64_t(system_.ranks[rank].count);
      const RoleTable& role = role_of(int32_t(lane) / kTileLanes);
      timeline.first_task.push_back(timeline.first_task.back() + role.task_count);
      for (int32_t queue = 0; queue < role.queue_count; ++queue) {
        if (tables_.first_tasks[size_t(role.queue_begin + queue)] == role.task_count) continue;
        const int64_t end = free_ps[size_t(at_queue(int32_t(rank), queue))];
        timeline.makespan_ps = std::max(timeline.makespan_ps, end);
      }
    }
    if (keep_times_) write_times(timeline);
  }

 private:
  const RoleTable& role_of(int32_t tile) const {
    return tables_.roles[size_t(tiles_[size_t(tile)].role)];
  }
  int32_t call_queue_of(int32_t tile, int32_t task) const {
    const RoleTable& role = role_of(tile);
    const int32_t queue = tables_.tasks[size_t(role.task_begin + task)].queue;
    return tables_.call_queues[size_t(role.queue_begin + queue)];
  }
  const LaneState* state_of(int32_t tile) const { return states_ ? states_->state(tile) : nullptr; }
  int64_t at_queue(int32_t rank, int32_t queue) const {
    const int32_t lane = lane_of_rank_[size_t(rank)];
    return tiles_[size_t(lane / kTileLanes)].queue_base + int64_t(queue) * kTileLanes +
           lane % kTileLanes;
  }

  void make_tiles() {
    lane_of_rank_.resize(system_.ranks.size());
    std::vector<int32_t> order(system_.ranks.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const fold::Rank &left = system_.ranks[size_t(a)], &right = system_.ranks[size_t(b)];
      return std::tuple(left.role, left.count, left.changes.size() > 0) <
             std::tuple(right.role, right.count, right.changes.size() > 0);
    });
    for (const int32_t rank : order) {
      const fold::Rank& at = system_.ranks[size_t(rank)];
      if (tiles_.empty() || tiles_.back().role != at.role || tiles_.back().count != at.count ||
          tiles_.back().lanes == kTileLanes || tiles_.back().changes != !at.changes.empty()) {
        add_tile(at);
      }
      Tile& tile = tiles_.back();
      const int32_t lane = int32_t(tile.lane_base) + tile.lanes++;
      tile.is_scaled |= at.factor != 1 << 16 || !at.changes.empty();
      lane_of_rank_[size_t(rank)] = lane;
      rank_of_lane_.resize(size_t(lane) + 1, kNone);
      rank_of_lane_[size_t(lane)] = rank;
    }
  }

  // For lanes like this rank's.
  void add_tile(const fold::Rank& rank) {
    Tile tile;
    tile.role = rank.role;
    tile.count = rank.count;
    tile.changes = !rank.changes.empty();
    tile.lane_base = int64_t(tiles_.size()) * kTileLanes;
    tile.queue_base = queue_size_;
    tile.call_base = call_size_;
    tile.slot_base = slot_size_;
    const RoleTable& table = tables_.roles[size_t(rank.role)];
    queue_size_ += int64_t(table.queue_count) * kTileLanes;
    call_size_ += int64_t(table.call_queue_count) * kTileLanes;
    slot_size_ += int64_t(table.slot_count) * kTileLanes;
    active_.push_back(int32_t(tiles_.size()));
    is_active_.push_back(1);
    tiles_.push_back(tile);
  }

  void make_state() {
    const size_t lanes = tiles_.size() * kTileLanes;
    std::vector<int32_t> factors(lanes, 1 << 16), heads(size_t(queue_size_), 0);
    std::vector<int64_t> free_ps(size_t(queue_size_), 0);
    for (size_t rank = 0; rank < system_.ranks.size(); ++rank) {
      factors[size_t(lane_of_rank_[rank])] = system_.ranks[rank].factor;
      const RoleTable& role = role_of(lane_of_rank_[rank] / kTileLanes);
      for (int32_t queue = 0; queue < role.queue_count; ++queue) {
        const size_t at = size_t(at_queue(int32_t(rank), queue));
        heads[at] = tables_.first_tasks[size_t(role.queue_begin + queue)];
        free_ps[at] = system_.ranks[rank].start_ps;
      }
    }
    make_changes(lanes);
    load(factors_, factors);
    load(heads_, heads);
    load(free_ps_, free_ps);
    keys_.resize(size_t(queue_size_));
    started_.assign(size_t(queue_size_), 0);
    base_ps_.assign(size_t(queue_size_), 0);
    times_ps_.assign(size_t(slot_size_), 0);
    hashes_.assign(lanes, 0);
    ended_.assign(lanes, 0);
    arrived_.assign(size_t(call_size_), kNone);
    arrival_ps_.assign(size_t(call_size_), 0);
    release_ps_.assign(size_t(call_size_), kNone);
  }

  void make_changes(size_t lanes) {
    std::vector<int32_t> first(lanes + 1, 0), factors;
    std::vector<int64_t> times;
    for (size_t lane = 0; lane < lanes; ++lane) {
      const int32_t rank = lane < rank_of_lane_.size() ? rank_of_lane_[lane] : kNone;
      if (rank != kNone) {
        for (const fold::FactorChange& change : system_.ranks[size_t(rank)].changes) {
          times.push_back(change.time_ps);
          factors.push_back(change.factor);
        }
      }
      first[lane + 1] = int32_t(times.size());
    }
    load(first_change_, first);
    load(change_ps_, times);
    load(change_factors_, factors);
  }

  void upload_tables() {
    load(roles_device_, tables_.roles);
    load(tasks_device_, tables_.tasks);
    load(deps_device_, tables_.deps);
    load(call_queues_device_, tables_.call_queues);
    load(tiles_device_, tiles_);
  }

  BulkView view() {
    BulkView view;
    view.roles = raw(roles_device_);
    view.tasks = raw(tasks_device_);
    view.deps = raw(deps_device_);
    view.call_queues = raw(call_queues_device_);
    view.tiles = raw(tiles_device_);
    view.factors = raw(factors_);
    view.first_change = raw(first_change_);
    view.change_ps = raw(change_ps_);
    view.change_factors = raw(change_factors_);
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
    const Tile& tile = tiles_[size_t(run.tile)];
    const int32_t* ranks = rank_of_lane_.data() + tile.lane_base;
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

  // [slot][lane] becomes [rank][task], a square of tasks and lanes at a time.
  void write_times(Timeline& timeline) const {
    constexpr int32_t kSquare = 64;
    const size_t total = size_t(timeline.first_task.back());
    timeline.starts_ps.resize(total);
    timeline.ends_ps.resize(total);
    std::vector<int64_t> window;
    for (size_t index = 0; index < tiles_.size(); ++index) {
      const Tile& tile = tiles_[index];
      const int32_t tasks = role_of(int32_t(index)).task_count;
      window.resize(size_t(tasks) * 2 * kTileLanes);
      if (window.empty()) continue;
      const auto begin = times_ps_.begin() + tile.slot_base;
      thrust::copy(begin, begin + int64_t(window.size()), window.begin());
      for (int32_t first = 0; first < tasks; first += kSquare) {
        for (int32_t lane = 0; lane < tile.lanes; ++lane) {
          const int32_t rank = rank_of_lane_[size_t(tile.lane_base + lane)];
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

  const fold::System& system_;
  bool keep_times_;
  LaneTables tables_;
  std::vector<Tile> tiles_;
  std::vector<int32_t> lane_of_rank_, rank_of_lane_;
  std::vector<int32_t> active_;     // tiles to advance
  std::vector<uint8_t> is_active_;  // by tile
  std::vector<TileRun> runs_;
  std::unique_ptr<TileStates> states_;  // null where every tile is the functor's
  int64_t queue_size_ = 0, call_size_ = 0, slot_size_ = 0;

  Device<RoleTable> roles_device_;
  Device<TaskRow> tasks_device_;
  Device<DepRow> deps_device_;
  Device<int32_t> call_queues_device_, factors_, heads_, keys_;
  Device<int32_t> first_change_, change_factors_;
  Device<Tile> tiles_device_;
  Device<uint8_t> started_;
  Device<int64_t> change_ps_, free_ps_, base_ps_, times_ps_, ended_;
  Device<uint64_t> hashes_;
  Shared<int32_t> arrived_;
  Shared<int64_t> arrival_ps_, release_ps_;
};

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
