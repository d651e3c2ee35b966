// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/deadlock.h"

#include <set>
#include <utility>

namespace trnsim::simulate {
namespace {

class Walk {
 public:
  Walk(const fold::System& system, const CallTable& calls, const Lanes& lanes)
      : system_(system), calls_(calls), lanes_(lanes) {
    for (const auto& program : system.roles) queues_.push_back(index_queues(*program));
  }

  std::string explain() {
    find_start();
    std::string text = "deadlock: ";
    std::set<std::pair<int32_t, int32_t>> seen;
    while (seen.insert({rank_, task_}).second) {
      text += name(rank_, task_) + (seen.size() == 1 ? " " : ", which ");
      const std::string end = follow(text);
      if (!end.empty()) return text + end;
    }
    return text + name(rank_, task_) + " (cycle)";
  }

 private:
  const lower::Program& program(int32_t rank) const {
    return *system_.roles[size_t(system_.ranks[size_t(rank)].role)];
  }
  const lower::Task& task(int32_t rank, int32_t index) const {
    return program(rank).tasks[size_t(index)];
  }
  // The task at the head of a queue, -1 when the queue is done.
  int32_t head(int32_t rank, int32_t queue) const {
    const QueueIndex& index = queues_[size_t(system_.ranks[size_t(rank)].role)];
    const int32_t at = index.first[size_t(queue)] + lanes_.head(rank, queue);
    return at < index.first[size_t(queue) + 1] ? index.tasks[size_t(at)] : -1;
  }
  bool ended(int32_t rank, int32_t index) const {
    const auto& queues = queues_[size_t(system_.ranks[size_t(rank)].role)];
    return queues.position[size_t(index)] < lanes_.head(rank, task(rank, index).queue);
  }
  bool started(int32_t rank, int32_t index) const {
    const int32_t queue = task(rank, index).queue;
    return ended(rank, index) || (head(rank, queue) == index && lanes_.head_started(rank, queue));
  }

  void find_start() {
    for (rank_ = 0; size_t(rank_) < system_.ranks.size(); ++rank_) {
      for (int32_t queue = 0; size_t(queue) < program(rank_).queues.size(); ++queue) {
        task_ = head(rank_, queue);
        if (task_ >= 0) return;
      }
    }
    TRN_ASSERT(false, "a deadlock without a blocked task");
  }

  std::string name(int32_t rank, int32_t index) const {
    const lower::Task& at = task(rank, index);
    const lower::Queue& queue = program(rank).queues[size_t(at.queue)];
    std::string text = "rank " + std::to_string(rank) + " " + lower::queue_kind_name(queue.kind) +
                       " " + std::to_string(queue.index) + " task " + std::to_string(index);
    if (at.kind == lower::TaskKind::call) {
      const auto& call = program(rank).calls[size_t(at.call)];
      const int64_t instance = calls_.instance_of(rank, index);
      const auto& on = system_.communicators[size_t(calls_.communicator_of(instance))];
      text += std::string(" (") + workload::call_kind_name(call.kind) + " " +
              std::to_string(calls_.sequence_of(instance)) + " on " + on.name + ")";
    } else if (at.op >= 0) {
      text += " (" + program(rank).ops[size_t(at.op)].name + ")";
    }
    return text;
  }

  // Moves on to what the task waits for and says so in text; returns the last words, if any.
  std::string follow(std::string& text) {
    const lower::Task& at = task(rank_, task_);
    const int32_t first = head(rank_, at.queue);
    if (first != task_) {
      text += "stands behind ";
      task_ = first;
      return {};
    }
    const bool is_running = lanes_.head_started(rank_, at.queue);
    if (is_running && at.kind == lower::TaskKind::call) {
      const std::string end = follow_call(text);
      if (!end.empty() || task_ != first) return end;
    }
    for (int32_t i = 0; i < at.deps_count; ++i) {
      const lower::Dep& dep = program(rank_).deps[size_t(at.deps_begin + i)];
      const bool on_start = dep.kind == lower::DepKind::start;
      if (on_start ? started(rank_, dep.task) : ended(rank_, dep.task)) continue;
      text += "waits for ";
      task_ = dep.task;
      return {};
    }
    return "waits for nothing that is known";
  }

  std::string follow_call(std::string& text) {
    const int64_t instance = calls_.instance_of(rank_, task_);
    const auto& on = system_.communicators[size_t(calls_.communicator_of(instance))];
    for (size_t i = 0; i < on.members.size(); ++i) {
      const int32_t member = on.members[i];
      const int32_t theirs = calls_.task_of(instance, i);
      if (theirs < 0) return "waits for rank " + std::to_string(member) + ", which never calls it";
      if (started(member, theirs)) continue;
      text += "waits for ";
      rank_ = member;
      task_ = theirs;
      return {};
    }
    return {};
  }

  const fold::System& system_;
  const CallTable& calls_;
  const Lanes& lanes_;
  std::vector<QueueIndex> queues_;  // by role
  int32_t rank_ = 0, task_ = -1;
};

}  // namespace

std::string explain_deadlock(const fold::System& system, const CallTable& calls,
                             const Lanes& lanes) {
  return Walk(system, calls, lanes).explain();
}

std::string explain_stall(const fold::System& system, const Transfers::Stall& stall) {
  const fold::Variable& variable = system.variables[size_t(stall.variable)];
  const fold::Communicator& on = system.communicators[size_t(variable.communicator)];
  const int32_t role = system.ranks[size_t(on.members[0])].role;
  const lower::CallTemplate& call = system.roles[size_t(role)]->calls[size_t(variable.call)];
  return std::string("a transfer of ") + workload::call_kind_name(call.kind) + " (" +
         std::to_string(call.bytes) + " bytes) of " + on.name + " is stalled on link " +
         system.links[size_t(stall.link)].name + " from " +
         std::to_string(stall.since_ps / 1'000'000) + " us on";
}

}  // namespace trnsim::simulate
