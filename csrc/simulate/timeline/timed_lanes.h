// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Bulk lanes of a System with interference: engines that change their speed when flows come and go.
// Equal to reference.h to the last picosecond; timed_functors.h holds the functor. Over
// thrust::device_vector, once for each device system, as bulk_lanes.h.
//
// A lane runs ahead of network time at the speed that it has, to the first call that the network
// has not heard of. What it finds there is provisional, and so is the time of that call: the
// network hears of it at that time, no earlier. When the speed changes, whatever ends later is
// taken back and found again. So network time stops at calls and flows, not at every task.
// Every start and end is kept in memory, whether it is asked for or not: 16 bytes a task and rank.
//
// A run advances the lanes that had a release, or whose horizon it is. Releases, arrivals and
// horizons cross between host and device.
#pragma once

#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "simulate/network/transfers.h"
#include "simulate/timeline/bulk_lanes.h"
#include "simulate/timeline/timed_functors.h"

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

static_assert(kNoTime == kNever);

class TimedLanes final : public Lanes {
 public:
  TimedLanes(const fold::System& system, bool keep_times)
      : system_(system),
        keep_times_(keep_times),
        tables_(make_lane_tables(system, true)),
        tiling_(make_tiling(system, tables_)),
        on_device_(tables_, tiling_) {
    load_queues();
    make_state();
    make_view();
  }

  void run(int64_t now_ps, std::vector<Arrival>& arrivals) override {
    if (released_.empty() && now_ps < soonest_ps_) return;
    for (const int32_t lane : released_) next_ps_.host[size_t(lane)] = now_ps;
    released_.clear();
    due_.host.clear();
    for (size_t lane = 0; lane < next_ps_.host.size(); ++lane) {
      if (next_ps_.host[lane] <= now_ps) due_.host.push_back(int32_t(lane));
    }
    on_due_lanes(AdvanceTimed{view_, nullptr, now_ps});
    collect(arrivals);
  }

  void release(const std::vector<int32_t>& ranks, const std::vector<int32_t>& tasks,
               int64_t time_ps) override {
    for (size_t i = 0; i < ranks.size(); ++i) {
      const int32_t lane = tiling_.lane_of_rank[size_t(ranks[i])];
      const Tile& tile = tiling_.tile_of(lane);
      const RoleTable& role = role_of(lane);
      const int32_t queue = tables_.tasks[size_t(role.task_begin + tasks[i])].queue;
      release_ps_.host[at_call(tile, tables_.call_queues[size_t(role.queue_begin + queue)],
                               lane % kTileLanes)] = time_ps;
      released_.push_back(lane);
    }
  }

  void change_speeds(const std::vector<int32_t>& ranks, bool are_slow, int64_t time_ps) override {
    if (ranks.empty()) return;
    due_.host.clear();
    for (const int32_t rank : ranks) due_.host.push_back(tiling_.lane_of_rank[size_t(rank)]);
    on_due_lanes(ChangeSpeed{view_, nullptr, time_ps, are_slow});
  }

  int64_t next_ps() const override { return soonest_ps_; }

  // Of those that run ahead, too.
  int64_t ended_count() const override {
    return thrust::reduce(ended_.begin(), ended_.end(), int64_t(0));
  }

  int32_t head(int32_t rank, int32_t queue) const override {
    const RoleTable& role = role_of(tiling_.lane_of_rank[size_t(rank)]);
    return tables_.count_before(role, queue, element(heads_, tiling_.at_queue(rank, queue)));
  }
  bool head_started(int32_t rank, int32_t queue) const override {
    return element(started_, tiling_.at_queue(rank, queue)) != 0;
  }

  void write(Timeline& timeline) const override {
    const size_t lanes = tiling_.rank_of_lane.size();
    Device<uint64_t> hashes(lanes);
    Device<int64_t> last_ps(lanes);
    const thrust::counting_iterator<int32_t> first(0);
    thrust::for_each(thrust::device, first, first + int32_t(lanes),
                     SumUp{view_, raw(hashes), raw(last_ps)});
    std::vector<uint64_t> hash_of_lane;
    std::vector<int64_t> last_of_lane;
    save(hashes, hash_of_lane);
    save(last_ps, last_of_lane);
    timeline.first_task.assign(1, 0);
    for (size_t rank = 0; rank < system_.ranks.size(); ++rank) {
      const size_t lane = size_t(tiling_.lane_of_rank[rank]);
      timeline.hash += hash_of_lane[lane] * uint64_t(system_.ranks[rank].count);
      timeline.last_end_ps.push_back(last_of_lane[lane]);
      timeline.first_task.push_back(timeline.first_task.back() + role_of(int32_t(lane)).task_count);
    }
    if (keep_times_) write_kept_times(tiling_, tables_, times_ps_, timeline);
  }

 private:
  const RoleTable& role_of(int32_t lane) const {
    return tables_.roles[size_t(tiling_.tile_of(lane).role)];
  }
  static size_t at_call(const Tile& tile, int32_t queue, int32_t lane) {
    return size_t(tile.call_base + int64_t(queue) * kTileLanes + lane);
  }

  // Speeds, and the tasks of queues from last to first.
  void load_queues() {
    std::vector<int32_t> previous(tables_.tasks.size(), kNone), last, speeds;
    for (size_t r = 0; r < tables_.roles.size(); ++r) {
      const RoleTable& role = tables_.roles[r];
      for (int32_t queue = 0; queue < role.queue_count; ++queue) {
        int32_t at = kNone;
        for (int32_t task = tables_.first_tasks[size_t(role.queue_begin + queue)];
             task < role.task_count; task = tables_.tasks[size_t(role.task_begin + task)].next) {
          previous[size_t(role.task_begin + task)] = at;
          at = task;
        }
        last.push_back(at);
        speeds.push_back(fold::slowed_speed(system_, system_.roles[r]->queues[size_t(queue)].kind));
      }
    }
    load(previous_, previous);
    load(last_, last);
    load(speeds_, speeds);
  }

  void make_state() {
    const size_t lanes = tiling_.rank_of_lane.size();
    std::vector<int32_t> heads(size_t(tiling_.queue_size), 0);
    std::vector<int64_t> begin_ps(lanes, 0);
    next_ps_.assign(lanes, kNever);
    for (size_t rank = 0; rank < system_.ranks.size(); ++rank) {
      const size_t lane = size_t(tiling_.lane_of_rank[rank]);
      const RoleTable& role = role_of(int32_t(lane));
      begin_ps[lane] = system_.ranks[rank].start_ps;
      next_ps_.host[lane] = 0;  // the first run is everybody's
      for (int32_t queue = 0; queue < role.queue_count; ++queue) {
        heads[size_t(tiling_.at_queue(int32_t(rank), queue))] =
            tables_.first_tasks[size_t(role.queue_begin + queue)];
      }
    }
    load(heads_, heads);
    load(begin_ps_, begin_ps);
    const size_t queues = size_t(tiling_.queue_size), calls = size_t(tiling_.call_size);
    keys_.resize(queues);
    started_.assign(queues, 0);
    cut_.assign(queues, kNone);
    since_ps_.assign(queues, 0);
    work_ps_.assign(queues, 0);
    times_ps_.assign(size_t(tiling_.slot_size), 0);
    is_slow_.assign(lanes, 0);
    ahead_.assign(lanes, kFewAhead);
    ended_.assign(lanes, 0);
    posted_.assign(calls, kNone);
    arrived_.assign(calls, kNone);
    arrival_ps_.assign(calls, 0);
    release_ps_.assign(calls, kNone);
    due_.assign(lanes, 0);
  }

  // Pointers that stay: no array changes its size.
  void make_view() {
    TimedView& view = view_;
    on_device_.show(view);
    view.previous = raw(previous_);
    view.last = raw(last_);
    view.speeds = raw(speeds_);
    view.begin_ps = raw(begin_ps_);
    view.heads = raw(heads_);
    view.started = raw(started_);
    view.keys = raw(keys_);
    view.times_ps = raw(times_ps_);
    view.ended = raw(ended_);
    view.cut = raw(cut_);
    view.since_ps = raw(since_ps_);
    view.work_ps = raw(work_ps_);
    view.posted = raw(posted_);
    view.is_slow = raw(is_slow_);
    view.ahead = raw(ahead_);
    view.arrived = arrived_.data();
    view.arrival_ps = arrival_ps_.data();
    view.release_ps = release_ps_.data();
    view.next_ps = next_ps_.data();
  }

  template <typename Work>
  void on_due_lanes(Work work) {
    release_ps_.upload();
    due_.upload();
    work.lanes = due_.data();
    const thrust::counting_iterator<int32_t> first(0);
    const auto last = first + int32_t(due_.host.size());
    if constexpr (kHostMemory) {
      // As kSerialTiles in bulk_cpu.h: few lanes are done before threads are awake.
      constexpr size_t kSerialLanes = 256;
      if (due_.host.size() < kSerialLanes) {
        thrust::for_each(thrust::host, first, last, work);
      } else {
        thrust::for_each(thrust::device, first, last, work);
      }
      soonest_ps_ = thrust::reduce(next_ps_.host.begin(), next_ps_.host.end(), kNever,
                                   thrust::minimum<int64_t>());
    } else {
      thrust::for_each(thrust::device, first, last, work);
      soonest_ps_ = thrust::reduce(next_ps_.device.begin(), next_ps_.device.end(), kNever,
                                   thrust::minimum<int64_t>());
    }
    release_ps_.download();
    next_ps_.download();
    arrived_.download();
    arrival_ps_.download();
  }

  void collect(std::vector<Arrival>& arrivals) {
    for (const int32_t lane : due_.host) {
      const Tile& tile = tiling_.tile_of(lane);
      for (int32_t queue = 0; queue < role_of(lane).call_queue_count; ++queue) {
        const size_t at = at_call(tile, queue, lane % kTileLanes);
        if (arrived_.host[at] == kNone) continue;
        arrivals.push_back(
            {tiling_.rank_of_lane[size_t(lane)], arrived_.host[at], arrival_ps_.host[at]});
        arrived_.host[at] = kNone;
      }
    }
    arrived_.upload();
  }

  const fold::System& system_;
  bool keep_times_;
  LaneTables tables_;
  Tiling tiling_;
  TimedView view_;
  std::vector<int32_t> released_;  // lanes, since the last run
  int64_t soonest_ps_ = 0;

  DeviceTables on_device_;
  Device<int32_t> previous_, last_, speeds_;
  Device<int32_t> heads_, keys_, cut_, posted_, ahead_;
  Device<uint8_t> started_, is_slow_;
  Device<int64_t> begin_ps_, since_ps_, work_ps_, times_ps_, ended_;
  Shared<int32_t> due_, arrived_;
  Shared<int64_t> arrival_ps_, release_ps_, next_ps_;
};

inline std::unique_ptr<Lanes> make_lanes(const fold::System& system, bool keep_times) {
  if (fold::has_interference(system)) return std::make_unique<TimedLanes>(system, keep_times);
  return std::make_unique<BulkLanes>(system, keep_times);
}

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
