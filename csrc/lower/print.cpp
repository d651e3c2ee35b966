// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "lower/print.h"

#include <algorithm>
#include <map>

namespace trnsim::lower {

std::vector<RuleShare> coverage(const Program& program) {
  std::map<std::string, RuleShare> by_rule;
  for (const Op& op : program.ops) {
    RuleShare& share = by_rule[op.rule];
    share.rule = op.rule;
    share.rule_class = std::max(share.rule_class, op.rule_class);
    ++share.op_count;
    share.bound_ps += op.bound_ps;
  }
  std::vector<RuleShare> shares;
  for (const auto& [rule, share] : by_rule) shares.push_back(share);
  std::stable_sort(shares.begin(), shares.end(),
                   [](const RuleShare& a, const RuleShare& b) { return a.bound_ps > b.bound_ps; });
  return shares;
}

const char* rule_class_name(RuleClass rule_class) {
  static constexpr const char* kNames[] = {"measured", "formula", "fallback"};
  return kNames[size_t(rule_class)];
}

const char* task_kind_name(TaskKind kind) {
  static constexpr const char* kNames[] = {"launch",  "host_wait", "load_weights", "load",
                                           "compute", "store",     "call"};
  return kNames[size_t(kind)];
}

const char* dep_kind_name(DepKind kind) {
  static constexpr const char* kNames[] = {"end", "start", "end_bound"};
  return kNames[size_t(kind)];
}

const char* pattern_name(Pattern pattern) {
  static constexpr const char* kNames[] = {
      "ring",        "ring_both", "axis_ring",  "axes_spread", "pairwise",    "uneven",
      "uneven_back", "exchange",  "shift",      "to_parents",  "to_children", "rails",
      "multicast",   "axis_all",  "one_to_all", "all_to_one",  "message",     "none"};
  return kNames[size_t(pattern)];
}

std::string print_task(const Program& program, size_t index) {
  const Task& task = program.tasks[index];
  const Queue& queue = program.queues[size_t(task.queue)];
  std::string line = std::to_string(index) + " " + queue_kind_name(queue.kind);
  const bool numbered = size_t(queue.kind) >= size_t(QueueKind::collective);
  if (numbered) line += " " + std::to_string(queue.index);
  line +=
      std::string(" ") + task_kind_name(task.kind) + " " + std::to_string(task.duration_ps) + " ps";
  if (task.op >= 0) line += " [" + program.ops[size_t(task.op)].name + "]";
  if (task.call >= 0) line += " [" + print_call(program.calls[size_t(task.call)]) + "]";
  for (int32_t i = 0; i < task.deps_count; ++i) {
    const Dep& dep = program.deps[size_t(task.deps_begin + i)];
    line += std::string(i ? ", " : " after ") + dep_kind_name(dep.kind) + " of " +
            std::to_string(dep.task);
    if (dep.lag_ps) line += " + " + std::to_string(dep.lag_ps) + " ps";
  }
  return line;
}

std::string print_call(const CallTemplate& call) {
  std::string line = std::string(workload::call_kind_name(call.kind)) + " " +
                     std::to_string(call.bytes) + " B on group " + std::to_string(call.group) +
                     " by " + call.algorithm;
  for (const PhaseTemplate& phase : call.phases) {
    line += std::string("; ") + pattern_name(phase.pattern) + " " + std::to_string(phase.bytes) +
            " B, ";
    if (phase.in_pod_sends != phase.fabric_sends) {
      line += std::to_string(phase.in_pod_sends) + " times in a pod and " +
              std::to_string(phase.fabric_sends) + " times between pods, ";
    }
    line += std::to_string(phase.steps) + " steps of " + std::to_string(phase.step_ps) + " ps";
    if (phase.fixed_ps) line += " and " + std::to_string(phase.fixed_ps) + " ps";
  }
  return line;
}

}  // namespace trnsim::lower
