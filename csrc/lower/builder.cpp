// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "lower/builder.h"

#include <algorithm>

namespace trnsim::lower {

int32_t Builder::queue(QueueKind kind, int32_t index) {
  const auto [found, added] = queues_.try_emplace({kind, index}, int32_t(program_.queues.size()));
  if (added) add_queue({kind, index});
  return found->second;
}

int32_t Builder::add_queue(Queue queue) {
  program_.queues.push_back(queue);
  last_.push_back(-1);
  return int32_t(program_.queues.size()) - 1;
}

int32_t Builder::task(TaskKind kind, int32_t queue, int64_t duration_ps, int32_t op,
                      const std::vector<Dep>& deps) {
  const int32_t index = int32_t(program_.tasks.size());
  Task task;
  task.kind = kind;
  task.queue = queue;
  task.duration_ps = duration_ps;
  task.op = op;
  task.deps_begin = int32_t(program_.deps.size());
  for (const Dep& dep : deps) {
    if (dep.task < 0) continue;
    TRN_ASSERT(dep.task < index, "a dependence points forward");
    const auto begin = program_.deps.begin() + task.deps_begin;
    const auto same = std::find_if(begin, program_.deps.end(), [&](const Dep& other) {
      return other.task == dep.task && other.kind == dep.kind;
    });
    if (same != program_.deps.end()) {
      same->lag_ps = std::max(same->lag_ps, dep.lag_ps);
    } else {
      program_.deps.push_back(dep);
    }
  }
  task.deps_count = int32_t(program_.deps.size()) - task.deps_begin;
  program_.tasks.push_back(task);
  last_[size_t(queue)] = index;
  return index;
}

int32_t Builder::call_task(int32_t queue, int32_t call, const std::vector<Dep>& deps) {
  const int32_t index = task(TaskKind::call, queue, 0, -1, deps);
  program_.tasks[size_t(index)].call = call;
  return index;
}

}  // namespace trnsim::lower
