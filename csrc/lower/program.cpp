// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "lower/program.h"

namespace trnsim::lower {

const char* queue_kind_name(QueueKind kind) {
  static constexpr const char* kNames[kQueueKindCount] = {
      "host", "tensor",     "vector", "scalar", "gpsimd",
      "dma",  "collective", "send",   "recv",   "host_link"};
  return kNames[size_t(kind)];
}

namespace {

std::string task_name(size_t index) { return "task " + std::to_string(index); }

void check_task(const Program& program, size_t index) {
  const Task& task = program.tasks[index];
  TRN_CHECK(task.duration_ps >= 0, lower, task_name(index) + " has a negative duration");
  TRN_CHECK(
      task.queue >= 0 && size_t(task.queue) < program.queues.size(), lower,
      task_name(index) + " is on queue " + std::to_string(task.queue) + ", which is not there");
  TRN_CHECK(
      task.op >= -1 && task.op < int32_t(program.ops.size()), lower,
      task_name(index) + " belongs to op " + std::to_string(task.op) + ", which is not there");
  const bool is_call = task.kind == TaskKind::call;
  TRN_CHECK(is_call == (task.call >= 0) && task.call < int32_t(program.calls.size()), lower,
            task_name(index) + " names call " + std::to_string(task.call));
  TRN_CHECK(!is_call || task.duration_ps == 0, lower,
            task_name(index) + " is a call, whose duration is its network's");
  TRN_CHECK(task.deps_begin >= 0 && task.deps_count >= 0 &&
                size_t(task.deps_begin) + size_t(task.deps_count) <= program.deps.size(),
            lower, task_name(index) + " has dependences outside the table");
  for (int32_t i = 0; i < task.deps_count; ++i) {
    const Dep& dep = program.deps[size_t(task.deps_begin + i)];
    TRN_CHECK(dep.task >= 0 && size_t(dep.task) < index, lower,
              task_name(index) + " depends on task " + std::to_string(dep.task) +
                  ", which is not before it");
    TRN_CHECK(dep.lag_ps >= 0, lower, task_name(index) + " has a negative lag");
  }
}

}  // namespace

void check_program(const Program& program) {
  for (size_t i = 0; i < program.tasks.size(); ++i) check_task(program, i);
  for (const CallTemplate& call : program.calls) {
    TRN_CHECK(call.group >= 0 && size_t(call.group) < program.groups.size(), lower,
              "a call is on group " + std::to_string(call.group) + ", which is not there");
    for (const PhaseTemplate& phase : call.phases) {
      TRN_CHECK(phase.bytes >= 0 && phase.steps >= 0 && phase.step_ps >= 0 && phase.hop_ps >= 0 &&
                    phase.fixed_ps >= 0 && phase.in_pod_sends > 0 && phase.fabric_sends > 0,
                lower, "a phase of " + call.algorithm + " has a negative size or latency");
    }
  }
}

}  // namespace trnsim::lower
