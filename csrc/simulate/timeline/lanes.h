// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Lanes: the engine queues of every rank, without the network. A lane is a rank.
//
// Queues are in order of the Program. A task starts when it is at the head of its queue, the engine
// is free and its dependences hold; end = max(start + scaled duration, end bounds), and it holds
// its engine from start to end. A call arrives like a task starts and ends when it is released,
// held back by its own end bounds. A lane runs every queue to a fixpoint: a queue that is blocked
// never holds back another.
//
// Implementations: reference.h, which walks time event by event; bulk.h, which runs ahead to the
// next call, in another way where there is interference. All give the same picosecond.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fold/system.h"
#include "simulate/timeline.h"

namespace trnsim::simulate {

struct Arrival {
  int32_t rank = 0, task = 0;
  int64_t time_ps = 0;
};

class Lanes {
 public:
  virtual ~Lanes() = default;
  // Runs what can run (reference: up to now_ps) and appends calls that arrived.
  virtual void run(int64_t now_ps, std::vector<Arrival>& arrivals) = 0;
  // The call that each of these ranks arrived at with its task ends at time_ps, not before it
  // arrived.
  virtual void release(const std::vector<int32_t>& ranks, const std::vector<int32_t>& tasks,
                       int64_t time_ps) = 0;
  // With interference: the engines of these ranks run slowed, or at full speed again, from time_ps
  // on, to which every lane has run until nothing more happens at it. No task ends by it at once.
  virtual void change_speeds(const std::vector<int32_t>& ranks, bool are_slow, int64_t time_ps);
  // The next time at which something happens without the network; kNever when there is none.
  virtual int64_t next_ps() const = 0;

  virtual int64_t ended_count() const = 0;
  // Tasks of the queue that have ended.
  virtual int32_t head(int32_t rank, int32_t queue) const = 0;
  // Whether the head of the queue has started (a call: arrived).
  virtual bool head_started(int32_t rank, int32_t queue) const = 0;
  // Fills hash, last_end, first_task, starts and ends.
  virtual void write(Timeline& timeline) const = 0;
};

// (d * f + 32768) >> 16 without overflow: the high part of d times f is a multiple of 2^16.
inline int64_t scale_duration(int64_t duration_ps, int32_t factor) {
  return (duration_ps >> 16) * factor + (((duration_ps & 0xffff) * factor + 32768) >> 16);
}

// Interference (fold/system.h), for less than 2^61 ps, in 64 bits: what is done in a time at a
// speed, floor(elapsed * speed / 2^16), and how long work takes, ceil(work * 2^16 / speed).
constexpr int64_t work_done(int64_t elapsed_ps, int32_t speed) {
  return (elapsed_ps >> 16) * speed + (((elapsed_ps & 0xffff) * speed) >> 16);
}
constexpr int64_t time_of_work(int64_t work_ps, int32_t speed) {
  return ((work_ps / speed) << 16) + (((work_ps % speed) << 16) + speed - 1) / speed;
}

// Queues of a Program as lists of tasks.
struct QueueIndex {
  std::vector<int32_t> first;     // of queue q in tasks; size queues + 1
  std::vector<int32_t> tasks;     // in order, by queue
  std::vector<int32_t> position;  // of a task in its queue
};
QueueIndex index_queues(const lower::Program& program);

}  // namespace trnsim::simulate
