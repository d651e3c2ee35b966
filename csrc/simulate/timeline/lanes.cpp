// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/timeline/lanes.h"

namespace trnsim::simulate {

void Lanes::change_speeds(const std::vector<int32_t>&, bool, int64_t) {
  TRN_ASSERT(false, "these lanes are not for a System with interference");
}

QueueIndex index_queues(const lower::Program& program) {
  QueueIndex index;
  index.first.assign(program.queues.size() + 1, 0);
  index.position.resize(program.tasks.size());
  index.tasks.resize(program.tasks.size());
  for (const lower::Task& task : program.tasks) ++index.first[size_t(task.queue) + 1];
  for (size_t q = 0; q < program.queues.size(); ++q) index.first[q + 1] += index.first[q];
  std::vector<int32_t> filled(program.queues.size(), 0);
  for (size_t task = 0; task < program.tasks.size(); ++task) {
    const size_t queue = size_t(program.tasks[task].queue);
    index.position[task] = filled[queue];
    index.tasks[size_t(index.first[queue] + filled[queue]++)] = int32_t(task);
  }
  return index;
}

}  // namespace trnsim::simulate
