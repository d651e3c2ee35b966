// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// One lane of a System with interference, up to the first call that the network has not heard of
// and back: the one source for every processor, beside bulk_functors.h, whose order of tasks and
// helpers it takes.
//
// posted     the last call of a queue that the network has heard of; another that has started is
//            provisional, and its start is when the network will hear of it
// horizon    the earliest such start: what would start later waits for the next run. Also where a
//            lane has run ahead by as many tasks as it may: few after a change of speed, since
//            another may take them back, and twice as many each time that they were not
// cut        the task of a queue that ran when the speed changed last, with what was left of it
//            then. Every other task has had one speed from its start.
//
// With every time kept, a task's slots say when the one before it in its queue has ended, and what
// has to be taken back at a change of speed: heads step back while the end before them is later.
#pragma once

#include "simulate/timeline/bulk_functors.h"
#include "simulate/timeline/lanes.h"

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

inline constexpr int64_t kNoTime = 0x7fffffffffffffff;
inline constexpr int32_t kFewAhead = 4, kManyAhead = 1 << 20;

// free_ps, base_ps and hashes of BulkView are not used.
struct TimedView : BulkView {
  const int32_t* previous = nullptr;  // [task] the one before it in its queue, or kNone
  const int32_t* last = nullptr;      // [queue of a role] its last task
  const int32_t* speeds = nullptr;    // [queue of a role] of a slowed lane, in 2^-16
  const int64_t* begin_ps = nullptr;  // [lane] start of the rank

  int32_t* cut = nullptr;       // [queue][lane] a task, or kNone
  int64_t* since_ps = nullptr;  // [queue][lane] from when on, of the cut task,
  int64_t* work_ps = nullptr;   // [queue][lane] this was left
  int32_t* posted = nullptr;    // [call queue][lane] a call, or kNone
  uint8_t* is_slow = nullptr;   // [lane]
  int32_t* ahead = nullptr;     // [lane] tasks that it may run ahead
  int64_t* next_ps = nullptr;   // [lane] the horizon
};

struct TimedLane : Advance<1> {
  const TimedView& timed;
  int64_t own;  // in arrays of lanes
  int64_t now_ps, horizon_ps = kNoTime;
  int32_t left = 0;  // of `ahead`

  TRN_HOST_DEVICE TimedLane(const TimedView& of, int32_t index, int64_t now)
      : Advance<1>(of, index / kTileLanes, index % kTileLanes),
        timed(of),
        own(index),
        now_ps(now) {}

  // Everything up to now_ps, and ahead to the horizon.
  TRN_HOST_DEVICE void advance() {
    horizon_ps = kNoTime;
    left = timed.ahead[own];
    for (int32_t queue = 0; queue < role.queue_count; ++queue) {
      const int64_t at = at_queue(queue);
      const int32_t head = view.heads[at];
      key(queue) = head < role.task_count ? head : kClosed;
      if (head == role.task_count || !view.started[at] || !tasks[head].is_call) continue;
      if (timed.posted[at_call(queue)] != head) post(head, queue, *slot(tasks[head].start_slot));
    }
    for (int32_t task = first_open(); task != kClosed;) {
      const int32_t queue = tasks[task].queue;
      if (!step_timed(tasks[task], task, queue)) key(queue) = kClosed;
      task = next_open(task + 1);
    }
    timed.next_ps[own] = horizon_ps;
    if (left < 0 && timed.ahead[own] < kManyAhead) timed.ahead[own] *= 2;
  }

  // From now_ps on, which the lane has reached, at the other speed.
  TRN_HOST_DEVICE void change_speed(bool is_slow) {
    for (int32_t queue = 0; queue < role.queue_count; ++queue) take_back(queue);
    timed.is_slow[own] = is_slow;
    timed.ahead[own] = kFewAhead;
    advance();
  }

  TRN_HOST_DEVICE int64_t free_ps(int32_t index) const {
    const int32_t before = timed.previous[role.task_begin + index];
    return before == kNone ? timed.begin_ps[own] : *slot(tasks[before].end_slot);
  }
  TRN_HOST_DEVICE int32_t speed_of(int32_t queue) const {
    return timed.is_slow[own] ? timed.speeds[role.queue_begin + queue] : machine::kFullSpeed;
  }

  // A call that has started: the network hears of it, or it is the horizon.
  TRN_HOST_DEVICE void post(int32_t index, int32_t queue, int64_t start_ps) {
    if (start_ps > now_ps) {
      horizon_ps = start_ps < horizon_ps ? start_ps : horizon_ps;
      return;
    }
    const int64_t at = at_call(queue);
    timed.posted[at] = index;
    view.release_ps[at] = kNone;
    view.arrived[at] = index;
    view.arrival_ps[at] = start_ps;
  }

  // Starts and ends the task as far as it goes; false when its queue has to wait.
  TRN_HOST_DEVICE bool step_timed(const TaskRow& task, int32_t index, int32_t queue) {
    const int64_t at = at_queue(queue);
    if (!view.started[at] && !start_timed(task, index, queue, at)) return false;
    int64_t time[1];
    if (task.is_call) {
      const int64_t call = at_call(queue);
      if (timed.posted[call] != index || view.release_ps[call] == kNone) return false;
      time[0] = view.release_ps[call];
    } else {
      time[0] = end_of_work(task, index, queue);
    }
    for (int32_t i = 0; i < task.bounds; ++i) {
      const DepRow& dep = view.deps[task.deps_begin + task.start_deps + i];
      if (!has_ended(dep)) return false;
      wait_for(dep, time);
    }
    *slot(task.end_slot) = time[0];
    ++view.ended[own];
    move_on(task, at, queue);
    return true;
  }

  TRN_HOST_DEVICE bool start_timed(const TaskRow& task, int32_t index, int32_t queue, int64_t at) {
    int64_t time[1] = {free_ps(index)};
    for (int32_t i = 0; i < task.start_deps; ++i) {
      const DepRow& dep = view.deps[task.deps_begin + i];
      if (!(dep.on_start ? has_started(dep) : has_ended(dep))) return false;
      wait_for(dep, time);
    }
    if (time[0] > horizon_ps) return false;
    if (time[0] > now_ps && --left < 0) horizon_ps = time[0];
    *slot(task.start_slot) = time[0];
    view.started[at] = 1;
    if (task.is_call) post(index, queue, time[0]);
    return true;
  }

  // When a task that has started would end but for its bounds, as long as the speed stays.
  TRN_HOST_DEVICE int64_t end_of_work(const TaskRow& task, int32_t index, int32_t queue) const {
    const int64_t at = at_queue(queue);
    const int32_t speed = speed_of(queue);
    if (timed.cut[at] == index) return timed.since_ps[at] + time_of_work(timed.work_ps[at], speed);
    const int64_t start_ps = *slot(task.start_slot);
    int64_t time[1] = {start_ps};
    add_duration(task, time);
    return start_ps + time_of_work(time[0] - start_ps, speed);
  }

  // What of a queue is later than now_ps, and what is left of the task that runs.
  TRN_HOST_DEVICE void take_back(int32_t queue) const {
    const int64_t at = at_queue(queue);
    int32_t head = view.heads[at];
    for (int32_t before = head == role.task_count ? timed.last[role.queue_begin + queue]
                                                  : timed.previous[role.task_begin + head];
         before != kNone && *slot(tasks[before].end_slot) > now_ps;
         before = timed.previous[role.task_begin + before]) {
      head = before;
      view.started[at] = 1;
      --view.ended[own];
    }
    view.heads[at] = head;
    if (head == role.task_count || !view.started[at]) return;
    const TaskRow& task = tasks[head];
    const bool is_posted = task.is_call && timed.posted[at_call(queue)] == head;
    if (*slot(task.start_slot) >= now_ps && !is_posted) {
      view.started[at] = 0;
    } else if (!task.is_call) {
      cut_task(task, head, queue);
    }
  }

  TRN_HOST_DEVICE void cut_task(const TaskRow& task, int32_t index, int32_t queue) const {
    if (timed.speeds[role.queue_begin + queue] == machine::kFullSpeed) return;
    const int64_t at = at_queue(queue), end_ps = end_of_work(task, index, queue);
    int64_t since_ps = *slot(task.start_slot), work_ps;
    if (timed.cut[at] == index) {
      since_ps = timed.since_ps[at];
      work_ps = timed.work_ps[at];
    } else {
      int64_t time[1] = {since_ps};
      add_duration(task, time);
      work_ps = time[0] - since_ps;
    }
    const bool is_done = end_ps <= now_ps;  // and held back by its bounds
    timed.cut[at] = index;
    timed.work_ps[at] = is_done ? 0 : work_ps - work_done(now_ps - since_ps, speed_of(queue));
    timed.since_ps[at] = is_done ? end_ps : now_ps;
  }
};

struct AdvanceTimed {
  TimedView view;
  const int32_t* lanes;
  int64_t now_ps;
  TRN_HOST_DEVICE void operator()(int32_t index) const {
    TimedLane(view, lanes[index], now_ps).advance();
  }
};

struct ChangeSpeed {
  TimedView view;
  const int32_t* lanes;
  int64_t now_ps;
  bool is_slow;
  TRN_HOST_DEVICE void operator()(int32_t index) const {
    TimedLane(view, lanes[index], now_ps).change_speed(is_slow);
  }
};

// Of a lane that is done: the sum of mix_end, and its last end.
struct SumUp {
  TimedView view;
  uint64_t* hashes;
  int64_t* last_ps;
  TRN_HOST_DEVICE void operator()(int32_t index) const {
    const TimedLane lane(view, index, 0);
    uint64_t hash = 0;
    int64_t last = 0;
    for (int32_t task = 0; task < lane.role.task_count; ++task) {
      const int64_t end = *lane.slot(lane.tasks[task].end_slot);
      hash += mix_end(lane.tasks[task].hash_seed, end);
      last = end > last ? end : last;
    }
    hashes[index] = hash;
    last_ps[index] = last;
  }
};

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
