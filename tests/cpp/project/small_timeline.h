// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Small Timelines by hand: a Program, some ranks, and a scheduler of twenty lines that places every
// task at the first moment that its queue and dependences allow. Transfers take what the call says.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "simulate/timeline.h"

namespace trnsim::project {

using lower::DepKind;
using lower::QueueKind;
using lower::TaskKind;

struct SmallRun {
  std::shared_ptr<lower::Program> program = std::make_shared<lower::Program>();
  std::vector<int64_t> transfer_ps;          // of each call template
  std::vector<std::vector<int64_t>> delays;  // [rank][task], added to the durations

  int32_t queue(QueueKind kind, int32_t index = 0) {
    for (size_t q = 0; q < program->queues.size(); ++q) {
      if (program->queues[q].kind == kind && program->queues[q].index == index) return int32_t(q);
    }
    program->queues.push_back({kind, index});
    return int32_t(program->queues.size()) - 1;
  }
  int32_t op(const char* name, int32_t module = 0) {
    lower::Op op;
    op.name = name;
    op.module = module;
    program->ops.push_back(op);
    return int32_t(program->ops.size()) - 1;
  }
  int32_t task(QueueKind kind, TaskKind task_kind, int64_t duration_ps, int32_t op,
               std::vector<lower::Dep> deps = {}) {
    lower::Task task;
    task.queue = queue(kind);
    task.kind = task_kind;
    task.duration_ps = duration_ps;
    task.op = op;
    task.deps_begin = int32_t(program->deps.size());
    task.deps_count = int32_t(deps.size());
    program->deps.insert(program->deps.end(), deps.begin(), deps.end());
    program->tasks.push_back(task);
    return int32_t(program->tasks.size()) - 1;
  }
  int32_t compute(QueueKind kind, int64_t duration_ps, std::vector<lower::Dep> deps = {}) {
    return task(kind, TaskKind::compute, duration_ps, op("op"), std::move(deps));
  }
  int32_t all_reduce(int64_t transfer, std::vector<lower::Dep> deps = {}) {
    lower::CallTemplate call;
    call.kind = workload::CallKind::all_reduce;
    program->calls.push_back(call);
    transfer_ps.push_back(transfer);
    const int32_t id = task(QueueKind::collective, TaskKind::call, 0, -1, std::move(deps));
    program->tasks[size_t(id)].call = int32_t(program->calls.size()) - 1;
    return id;
  }

  simulate::Timeline run(int64_t rank_count) {
    if (program->groups.empty()) program->groups.push_back({});
    auto system = std::make_shared<fold::System>();
    system->roles.push_back(program);
    fold::Communicator world;
    for (int64_t r = 0; r < rank_count; ++r) {
      fold::Rank rank;
      rank.chip = int32_t(r);
      rank.communicator_of_slot = {0};
      system->ranks.push_back(rank);
      world.members.push_back(int32_t(r));
    }
    system->communicators.push_back(world);
    simulate::Timeline timeline;
    timeline.system = system;
    const int64_t tasks = int64_t(program->tasks.size());
    for (int64_t r = 0; r <= rank_count; ++r) timeline.first_task.push_back(r * tasks);
    timeline.starts_ps.assign(size_t(rank_count * tasks), -1);
    timeline.ends_ps.assign(size_t(rank_count * tasks), -1);
    std::vector<std::map<int32_t, int64_t>> free(size_t(rank_count), std::map<int32_t, int64_t>{});
    int64_t sequence = 0;
    for (int64_t t = 0; t < tasks; ++t) schedule(t, rank_count, timeline, free, sequence);
    for (const int64_t end : timeline.ends_ps) {
      timeline.makespan_ps = std::max(timeline.makespan_ps, end);
    }
    return timeline;
  }

 private:
  void schedule(int64_t t, int64_t rank_count, simulate::Timeline& timeline,
                std::vector<std::map<int32_t, int64_t>>& free, int64_t& sequence) {
    const int64_t tasks = int64_t(program->tasks.size());
    const lower::Task& task = program->tasks[size_t(t)];
    int64_t last_arrival = 0, first_arrival = INT64_MAX;
    for (int64_t r = 0; r < rank_count; ++r) {
      int64_t start = free[size_t(r)][task.queue], bound = 0;
      for (int32_t d = task.deps_begin; d < task.deps_begin + task.deps_count; ++d) {
        const lower::Dep& dep = program->deps[size_t(d)];
        const size_t on = size_t(r * tasks + dep.task);
        if (dep.kind == DepKind::end) start = std::max(start, timeline.ends_ps[on] + dep.lag_ps);
        if (dep.kind == DepKind::start)
          start = std::max(start, timeline.starts_ps[on] + dep.lag_ps);
        if (dep.kind == DepKind::end_bound)
          bound = std::max(bound, timeline.ends_ps[on] + dep.lag_ps);
      }
      const int64_t delay = delays.empty() ? 0 : delays[size_t(r)][size_t(t)];
      timeline.starts_ps[size_t(r * tasks + t)] = start;
      timeline.ends_ps[size_t(r * tasks + t)] = std::max(start + task.duration_ps + delay, bound);
      last_arrival = std::max(last_arrival, start);
      first_arrival = std::min(first_arrival, start);
    }
    for (int64_t r = 0; r < rank_count; ++r) {
      int64_t& end = timeline.ends_ps[size_t(r * tasks + t)];
      if (task.kind == TaskKind::call) end = last_arrival + transfer_ps[size_t(task.call)];
      free[size_t(r)][task.queue] = end;
    }
    if (task.kind != TaskKind::call) return;
    simulate::CallSpan span;
    span.call = task.call;
    span.sequence = sequence++;
    span.first_arrival_ps = first_arrival;
    span.start_ps = last_arrival;
    span.end_ps = last_arrival + transfer_ps[size_t(task.call)];
    timeline.calls.push_back(span);
  }
};

}  // namespace trnsim::project
