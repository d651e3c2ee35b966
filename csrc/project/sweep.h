// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Sweep: what one rank does at each instant of a Timeline, as segments that tile [0, makespan).
//
// At each instant the first of these that holds:
//   compute        a compute engine or its DMA is busy, or else a copy to or from the host; the
//                  owner is the earliest op in Program order (later ones run ahead: they prefetch)
//   host           what the rank waits for is being launched
//   bubble         it waits for a message that is not yet sent, or is done with the step; a message
//                  that is a step of a collective counts as the collective
//   communication  it waits for a transfer, or for a late member of a collective
//   stall          as communication, where the late member runs at another speed (jitter, a fault)
//   latency        nothing runs and nothing is waited for but a lag (fill or drain): counts as
//   compute
// "What it waits for" is taken from the task that ends the gap (after the last one: from every task
// of the rank): its unfinished ancestors, by dependences and by the order of queues, that are
// running.
//
// Cost: O(tasks x engine queues) a rank, plus the ancestors of each gap, which run inside it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "simulate/timeline.h"

namespace trnsim::project {

enum class Activity : uint8_t { compute, host, bubble, communication, stall, latency };

struct Segment {
  int64_t begin_ps = 0, end_ps = 0;
  int32_t task = -1;  // owner: an engine task, a launch or a call; -1 = done with the step
  Activity activity = Activity::compute;
};

bool is_engine(lower::QueueKind kind);  // tensor, vector, scalar, gpsimd, dma, host_link

// The order of queues of one Program, worked out once for all its ranks.
struct RoleIndex {
  explicit RoleIndex(const lower::Program& program);
  std::vector<std::vector<int32_t>> engine_queues;  // tasks of each, in order
  std::vector<int32_t> last_tasks;                  // of every queue
  std::vector<int32_t> previous;                    // in the same queue, -1 = none
  std::vector<int64_t> sequence;  // of a call: how many on its communicator stand before it
};

class Sweep {
 public:
  explicit Sweep(const simulate::Timeline& timeline);
  // Tiles [0, makespan) in order; neighbours differ in activity or task.
  std::vector<Segment> segments(int64_t rank) const;
  const lower::Program& program_of(int64_t rank) const;
  const RoleIndex& index_of(int64_t rank) const;
  int64_t start_of(int64_t rank, int32_t task) const;
  int64_t end_of(int64_t rank, int32_t task) const;

 private:
  struct Wait {  // [begin, end) of a launch or a call that the rank waits for
    int64_t begin_ps, end_ps;
    int32_t task;
    Activity activity;
  };
  void gap(int64_t rank, int64_t begin_ps, int64_t end_ps, int32_t next_task,
           std::vector<Segment>& segments) const;
  std::vector<Wait> waits(int64_t rank, int64_t after_ps, int32_t next_task) const;
  void add_call(int64_t rank, int32_t task, std::vector<Wait>& waits) const;

  const simulate::Timeline& timeline_;
  std::vector<RoleIndex> roles_;
  std::map<std::pair<int32_t, int64_t>, int64_t> start_of_call_;  // (communicator, sequence)
  std::vector<uint8_t> is_disturbed_;  // of a communicator: its members run at different speeds
};

}  // namespace trnsim::project
