// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "report/tasks.h"

namespace trnsim::report {

using lower::QueueKind;
using lower::TaskKind;

int64_t first_task(const project::Run& run, int64_t rank) {
  return run.timeline->first_task[size_t(run.cohorts.class_of_rank[size_t(rank)])];
}

size_t role_of(const project::Run& run, int64_t rank) {
  const int32_t rank_class = run.cohorts.class_of_rank[size_t(rank)];
  return size_t(run.cohorts.system->ranks[size_t(rank_class)].role);
}

const lower::Program& program_of(const project::Run& run, int64_t rank) {
  return *run.roles[role_of(run, rank)].program;
}

const workload::Workload& workload_of(const project::Run& run, int64_t rank) {
  return *run.workloads[role_of(run, rank)];
}

fold::JobGroups groups_of(const project::Run& run) {
  const auto topology = machine::make_topology(run.machine, run.placement.chips);
  const auto count = int64_t(run.cohorts.class_of_rank.size());
  return fold::groups_of(fold::Job{run.machine, *topology, run.placement, count, run.roles});
}

const char* task_kind_name(TaskKind kind) {
  switch (kind) {
    case TaskKind::launch:
      return "launch";
    case TaskKind::host_wait:
      return "wait for the device";
    case TaskKind::load_weights:
      return "load weights";
    case TaskKind::load:
      return "load";
    case TaskKind::compute:
      return "compute";
    case TaskKind::store:
      return "store";
    case TaskKind::call:
      return "call";
  }
  return "compute";
}

std::string queue_name(const lower::Queue& queue) {
  const std::string name = lower::queue_kind_name(queue.kind);
  switch (queue.kind) {
    case QueueKind::host:
      return "host";
    case QueueKind::dma:
      return "DMA queue";
    case QueueKind::collective:
      return "collective stream " + std::to_string(queue.index);
    case QueueKind::send:
      return "send to " + std::to_string(queue.index);
    case QueueKind::recv:
      return "receive from " + std::to_string(queue.index);
    case QueueKind::host_link:
      return queue.index == 0 ? "copies to the host" : "copies from the host";
    default:
      return name + " engine";
  }
}

std::string slice_name(const lower::Program& program, const lower::Task& task) {
  if (task.kind == TaskKind::call) {
    const lower::CallTemplate& call = program.calls[size_t(task.call)];
    std::string name = workload::call_kind_name(call.kind);
    if (call.step_of) name = workload::call_kind_name(call.asked_kind()) + (" " + name);
    if (!call.algorithm.empty()) name += " (" + call.algorithm + ")";
    return name;
  }
  if (task.op < 0) return task_kind_name(task.kind);
  const std::string& op = program.ops[size_t(task.op)].name;
  const bool is_copy = program.queues[size_t(task.queue)].kind == QueueKind::host_link;
  return task.kind == TaskKind::compute || is_copy
             ? op
             : std::string(task_kind_name(task.kind)) + " " + op;
}

void check_rank(const project::Run& run, int64_t rank) {
  const size_t count = run.cohorts.class_of_rank.size();
  TRN_CHECK(rank >= 0 && rank < int64_t(count), report,
            "rank " + std::to_string(rank) + " is not of this run",
            "choose ranks below " + std::to_string(count));
}

}  // namespace trnsim::report
