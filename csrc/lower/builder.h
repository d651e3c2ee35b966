// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Builder: appends queues, tasks and dependences to a Program.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "lower/program.h"

namespace trnsim::lower {

class Builder {
 public:
  explicit Builder(Program& program) : program_(program) {}

  int32_t queue(QueueKind kind, int32_t index);
  // One of its own, which `queue` never returns.
  int32_t add_queue(Queue queue);
  // Returns the task's index. Dependences on task -1 are left out; doubles are merged.
  int32_t task(TaskKind kind, int32_t queue, int64_t duration_ps, int32_t op,
               const std::vector<Dep>& deps);
  int32_t call_task(int32_t queue, int32_t call, const std::vector<Dep>& deps);
  Program& program() { return program_; }
  // The last task of a queue, -1 when it has none.
  int32_t last_of(int32_t queue) const { return last_[size_t(queue)]; }

 private:
  Program& program_;
  std::map<std::pair<QueueKind, int32_t>, int32_t> queues_;
  std::vector<int32_t> last_;
};

}  // namespace trnsim::lower
