// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Advancing lanes to a fixpoint: the one source for every processor. g++ compiles it for the CPU
// (for AVX-512, AVX2 and any processor), nvcc for the GPU.
//
// Always take the open queue whose head stands first in the table. All dependences point backwards,
// so whatever that head waits for either has ended or stands in a closed queue, and then this queue
// closes too, until a release. What closes depends on released calls alone, never on times: lanes
// with equal heads and releases go the same way, and W of them are advanced together. Heads of the
// first lane speak for all W until the end of the run.
//
// The includer defines TRNSIM_BULK_TARGET, the namespace of its version.
#pragma once

#include <cstdint>

#include "simulate/timeline/bulk_view.h"
#include "simulate/timeline/mix.h"

#ifdef __CUDACC__
#define TRN_HOST_DEVICE __host__ __device__
#define TRN_INDEPENDENT
#else
#define TRN_HOST_DEVICE
#define TRN_INDEPENDENT _Pragma("GCC ivdep")  // rows of one loop are the same or apart
#endif

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

inline constexpr int32_t kClosed = 0x7fffffff;

// W neighbouring lanes of one tile, from `lane` on.
template <int W>
struct Advance {
  const BulkView& view;
  const Tile& tile;
  const RoleTable& role;
  const TaskRow* tasks;
  int32_t lane;

  TRN_HOST_DEVICE Advance(const BulkView& of, int32_t tile_index, int32_t first_lane)
      : view(of),
        tile(of.tiles[tile_index]),
        role(of.roles[tile.role]),
        tasks(of.tasks + role.task_begin),
        lane(first_lane) {}

  TRN_HOST_DEVICE int64_t at_queue(int32_t queue) const {
    return tile.queue_base + int64_t(queue) * kTileLanes + lane;
  }
  TRN_HOST_DEVICE int64_t at_call(int32_t queue) const {
    return tile.call_base + int64_t(view.call_queues[role.queue_begin + queue]) * kTileLanes + lane;
  }
  TRN_HOST_DEVICE int64_t* slot(int32_t index) const {
    return view.times_ps + tile.slot_base + int64_t(index) * kTileLanes + lane;
  }
  TRN_HOST_DEVICE int32_t& key(int32_t queue) const { return view.keys[at_queue(queue)]; }

  TRN_HOST_DEVICE bool has_ended(const DepRow& dep) const {
    return view.heads[at_queue(dep.queue)] > dep.task;
  }
  TRN_HOST_DEVICE bool has_started(const DepRow& dep) const {
    const int64_t at = at_queue(dep.queue);
    return view.heads[at] > dep.task || (view.heads[at] == dep.task && view.started[at]);
  }

  TRN_HOST_DEVICE void run() const {
    int64_t ended = 0;
    for (int32_t queue = 0; queue < role.queue_count; ++queue) {
      const int32_t head = view.heads[at_queue(queue)];
      key(queue) = head < role.task_count ? head : kClosed;
    }
    for (int32_t task = first_open(); task != kClosed;) {
      const int32_t queue = tasks[task].queue;
      if (step(tasks[task], task, queue)) {
        ++ended;
      } else {
        key(queue) = kClosed;
      }
      task = next_open(task + 1);
    }
    share(ended);
  }

  // What the first lane stands for, written to all.
  TRN_HOST_DEVICE void share(int64_t ended) const {
    for (int i = 0; i < W; ++i) view.ended[tile.lane_base + lane + i] += ended;
    for (int32_t queue = 0; W > 1 && queue < role.queue_count; ++queue) {
      const int64_t at = at_queue(queue);
      for (int i = 1; i < W; ++i) {
        view.heads[at + i] = view.heads[at];
        view.started[at + i] = view.started[at];
      }
    }
  }

  TRN_HOST_DEVICE int32_t first_open() const {
    int32_t first = kClosed;
    for (int32_t queue = 0; queue < role.queue_count; ++queue) {
      const int32_t head = key(queue);
      if (head < first) first = head;
    }
    return first;
  }
  // Every open head is at or after `candidate`; usually it is one.
  TRN_HOST_DEVICE int32_t next_open(int32_t candidate) const {
    if (candidate < role.task_count && key(tasks[candidate].queue) == candidate) return candidate;
    return first_open();
  }

  // Starts and ends the task as far as it goes; false when its queue has to wait.
  TRN_HOST_DEVICE bool step(const TaskRow& task, int32_t index, int32_t queue) const {
    const int64_t at = at_queue(queue);
    if (!view.started[at]) {
      for (int32_t i = 0; i < task.start_deps; ++i) {
        const DepRow& dep = view.deps[task.deps_begin + i];
        if (!(dep.on_start ? has_started(dep) : has_ended(dep))) return false;
      }
      if (task.is_simple && !tile.changes) {
        task.is_scaled&& tile.is_scaled ? run_simple<true>(task, at) : run_simple<false>(task, at);
        move_on(task, at, queue);
        return true;
      }
    }
    return step_slowly(task, index, queue, at);
  }

  // No call, no bounds, at most two dependences: one pass over the lanes. What is absent reads the
  // queue's own time, or writes to a row that nobody reads.
  template <bool Scaled>
  TRN_HOST_DEVICE void run_simple(const TaskRow& task, int64_t at) const {
    int64_t nobody[W];
    int64_t* free_ps = view.free_ps + at;
    const int64_t* other[2] = {free_ps, free_ps};
    int64_t lag_ps[2] = {0, 0};
    for (int32_t i = 0; i < task.start_deps; ++i) {
      const DepRow& dep = view.deps[task.deps_begin + i];
      other[i] = slot(dep.slot);
      lag_ps[i] = dep.lag_ps;
    }
    const int64_t *other0 = other[0], *other1 = other[1];
    const int64_t lag0_ps = lag_ps[0], lag1_ps = lag_ps[1];
    int64_t* start_ps = task.start_slot == kNone ? nobody : slot(task.start_slot);
    int64_t* end_ps = task.end_slot == kNone ? nobody : slot(task.end_slot);
    uint64_t* hashes = view.hashes + tile.lane_base + lane;
    const int32_t* factors = view.factors + tile.lane_base + lane;
    const uint64_t seed = task.hash_seed;
    const uint32_t high = uint32_t(task.duration_ps >> 16),
                   low = uint32_t(task.duration_ps & 0xffff);
    const int64_t duration_ps = task.duration_ps;
    TRN_INDEPENDENT
    for (int i = 0; i < W; ++i) {
      int64_t time = free_ps[i];
      const int64_t least0 = other0[i] + lag0_ps, least1 = other1[i] + lag1_ps;
      time = time < least0 ? least0 : time;
      time = time < least1 ? least1 : time;
      start_ps[i] = time;
      if (Scaled) {
        const uint64_t factor = uint32_t(factors[i]);
        time += int64_t(high * factor + ((low * factor + 32768) >> 16));
      } else {
        time += duration_ps;
      }
      end_ps[i] = time;
      free_ps[i] = time;
      hashes[i] += mix_end(seed, time);
    }
  }

  TRN_HOST_DEVICE void move_on(const TaskRow& task, int64_t at, int32_t queue) const {
    view.heads[at] = task.next;
    view.started[at] = 0;
    key(queue) = task.next < role.task_count ? task.next : kClosed;
  }

  TRN_HOST_DEVICE bool step_slowly(const TaskRow& task, int32_t index, int32_t queue,
                                   int64_t at) const {
    int64_t base[W];
    if (!view.started[at]) {
      start(task, at, base);
      if (task.is_call) {
        arrive(index, queue, base);
        mark_started(at, base);
      } else {
        add_duration(task, base);
        if (task.bounds > 0) mark_started(at, base);
      }
    } else if (!task.is_call) {
      for (int i = 0; i < W; ++i) base[i] = view.base_ps[at + i];
    }
    if (task.is_call && !take_release(queue, base)) return false;
    for (int32_t i = 0; i < task.bounds; ++i) {
      if (!has_ended(view.deps[task.deps_begin + task.start_deps + i])) return false;
    }
    end(task, at, queue, base);
    return true;
  }

  TRN_HOST_DEVICE void wait_for(const DepRow& dep, int64_t (&time)[W]) const {
    const int64_t* other = slot(dep.slot);
    for (int i = 0; i < W; ++i) {
      const int64_t least = other[i] + dep.lag_ps;
      time[i] = time[i] < least ? least : time[i];
    }
  }

  TRN_HOST_DEVICE void start(const TaskRow& task, int64_t at, int64_t (&time)[W]) const {
    for (int i = 0; i < W; ++i) time[i] = view.free_ps[at + i];
    for (int32_t i = 0; i < task.start_deps; ++i) wait_for(view.deps[task.deps_begin + i], time);
    if (task.start_slot == kNone) return;
    int64_t* kept = slot(task.start_slot);
    for (int i = 0; i < W; ++i) kept[i] = time[i];
  }

  TRN_HOST_DEVICE void mark_started(int64_t at, const int64_t (&base)[W]) const {
    view.started[at] = 1;
    for (int i = 0; i < W; ++i) view.base_ps[at + i] = base[i];
  }

  // (d * f + 32768) >> 16: the high part of d times f is a multiple of 2^16.
  TRN_HOST_DEVICE void add_duration(const TaskRow& task, int64_t (&time)[W]) const {
    if (!task.is_scaled || !tile.is_scaled) {
      for (int i = 0; i < W; ++i) time[i] += task.duration_ps;
      return;
    }
    const int32_t* factors = view.factors + tile.lane_base + lane;
    const int64_t high = task.duration_ps >> 16, low = task.duration_ps & 0xffff;
    for (int i = 0; i < W; ++i) {
      const int64_t factor = tile.changes ? changed_factor(i, time[i]) : factors[i];
      time[i] += high * factor + ((low * factor + 32768) >> 16);
    }
  }

  TRN_HOST_DEVICE int32_t changed_factor(int i, int64_t start_ps) const {
    const int64_t at = tile.lane_base + lane + i;
    int32_t factor = view.factors[at];
    for (int32_t change = view.first_change[at];
         change < view.first_change[at + 1] && view.change_ps[change] <= start_ps; ++change) {
      factor = view.change_factors[change];
    }
    return factor;
  }

  TRN_HOST_DEVICE void arrive(int32_t index, int32_t queue, const int64_t (&time)[W]) const {
    const int64_t at = at_call(queue);
    for (int i = 0; i < W; ++i) {
      view.arrived[at + i] = index;
      view.arrival_ps[at + i] = time[i];
    }
  }

  TRN_HOST_DEVICE bool take_release(int32_t queue, int64_t (&time)[W]) const {
    const int64_t at = at_call(queue);
    if (view.release_ps[at] == kNone) return false;
    for (int i = 0; i < W; ++i) time[i] = view.release_ps[at + i];
    return true;
  }

  TRN_HOST_DEVICE void end(const TaskRow& task, int64_t at, int32_t queue,
                           int64_t (&time)[W]) const {
    for (int32_t i = 0; i < task.bounds; ++i) {
      wait_for(view.deps[task.deps_begin + task.start_deps + i], time);
    }
    if (task.end_slot != kNone) {
      int64_t* kept = slot(task.end_slot);
      for (int i = 0; i < W; ++i) kept[i] = time[i];
    }
    const int64_t first = tile.lane_base + lane;
    for (int i = 0; i < W; ++i) {
      view.free_ps[at + i] = time[i];
      view.hashes[first + i] += mix_end(task.hash_seed, time[i]);
    }
    if (task.is_call) {
      const int64_t call = at_call(queue);
      for (int i = 0; i < W; ++i) view.release_ps[call + i] = kNone;
    }
    move_on(task, at, queue);
  }
};

// Whether all lanes of the tile stand at the same tasks with the same calls released.
inline bool is_uniform(const BulkView& view, int32_t index) {
  const Tile& tile = view.tiles[index];
  const RoleTable& role = view.roles[tile.role];
  bool same = true;
  for (int32_t queue = 0; queue < role.call_queue_count && same; ++queue) {
    const int64_t at = tile.call_base + int64_t(queue) * kTileLanes;
    for (int32_t lane = 1; lane < tile.lanes; ++lane) {
      same &= (view.release_ps[at + lane] == kNone) == (view.release_ps[at] == kNone);
    }
  }
  for (int32_t queue = 0; queue < role.queue_count && same; ++queue) {
    const int64_t at = tile.queue_base + int64_t(queue) * kTileLanes;
    for (int32_t lane = 1; lane < tile.lanes; ++lane) {
      same &= view.heads[at + lane] == view.heads[at];
      same &= view.started[at + lane] == view.started[at];
    }
  }
  return same;
}

// Without one, every queue of a lane that has run before stays closed.
inline bool has_release(const BulkView& view, const Tile& tile, int32_t lane) {
  const int32_t queues = view.roles[tile.role].call_queue_count;
  for (int32_t queue = 0; queue < queues; ++queue) {
    if (view.release_ps[tile.call_base + int64_t(queue) * kTileLanes + lane] != kNone) return true;
  }
  return false;
}

// One CPU thread, one tile.
inline void advance_tile(const BulkView& view, int32_t tile) {
  if (is_uniform(view, tile)) {
    Advance<kTileLanes>(view, tile, 0).run();  // as in the first run
    return;
  }
  for (int32_t lane = 0; lane < view.tiles[tile].lanes; ++lane) {
    if (has_release(view, view.tiles[tile], lane)) Advance<1>(view, tile, lane).run();
  }
}

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
