// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "lower/ring_steps.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "lower/builder.h"
#include "workload/messages.h"

namespace trnsim::lower {
namespace {

using workload::CallKind;
using Ranks = std::vector<int64_t>;

// The parts of a group in which a phase goes round, each in order.
class Parts {
 public:
  Parts(const machine::Machine& machine, const machine::Placement& placement)
      : placement_(placement),
        torus_(machine::used_torus(machine, placement.chips)),
        pod_chips_(machine::pod_chips(machine, placement.chips)) {}

  // None when the phase has other senders.
  std::vector<Ranks> of(const PhaseTemplate& phase, const Ranks& group) const {
    switch (phase.pattern) {
      case Pattern::ring:
      case Pattern::ring_both:
      case Pattern::shift:
        return by_scope(phase.scope, group);
      case Pattern::exchange:
        return pairs(by_scope(phase.scope, group), phase.distance);
      case Pattern::axis_ring:
        return lines(size_t(phase.axis), group);
      default:
        return {};
    }
  }

 private:
  int64_t pod_of(int64_t rank) const { return placement_.chip_of(rank) / pod_chips_; }

  std::vector<Ranks> by_scope(Scope scope, const Ranks& group) const {
    if (scope == Scope::group) return {group};
    std::vector<Ranks> pods;  // in order of appearance
    std::map<int64_t, size_t> index;
    for (const int64_t rank : group) {
      const auto [found, is_new] = index.try_emplace(pod_of(rank), pods.size());
      if (is_new) pods.emplace_back();
      pods[found->second].push_back(rank);
    }
    if (scope == Scope::pod) return pods;
    std::vector<Ranks> places(pods[0].size());
    for (const Ranks& pod : pods) {
      TRN_ASSERT(pod.size() == places.size(), "pods of one group hold the same number of members");
      for (size_t place = 0; place < places.size(); ++place) places[place].push_back(pod[place]);
    }
    return places;
  }

  // The members that differ only on the axis, the k-th of each chip.
  std::vector<Ranks> lines(size_t axis, const Ranks& group) const {
    using Line = std::pair<std::array<int64_t, 4>, int64_t>;  // coordinates but one, and k
    std::map<int64_t, int64_t> members_of_chip;
    std::map<Line, std::map<int64_t, int64_t>> lines;  // rank by coordinate
    for (const int64_t rank : group) {
      const int64_t chip = placement_.chip_of(rank), in_pod = chip % pod_chips_;
      std::array<int64_t, 4> at{in_pod % torus_[0], in_pod / torus_[0] % torus_[1],
                                in_pod / torus_[0] / torus_[1], pod_of(rank)};
      const int64_t coordinate = std::exchange(at[axis], 0);
      lines[{at, members_of_chip[chip]++}][coordinate] = rank;
    }
    std::vector<Ranks> parts;
    for (const auto& [line, ranks] : lines) {
      Ranks& part = parts.emplace_back();
      for (const auto& [coordinate, rank] : ranks) part.push_back(rank);
    }
    return parts;
  }

  static std::vector<Ranks> pairs(const std::vector<Ranks>& joined, int64_t distance) {
    std::vector<Ranks> parts;
    for (const Ranks& ranks : joined) {
      for (size_t i = 0; i < ranks.size(); ++i) {
        const size_t peer = i ^ size_t(distance);
        if (peer >= ranks.size() || peer == i) return {};  // not everybody sends
        if (i < peer) parts.push_back({ranks[i], ranks[peer]});
      }
    }
    return parts;
  }

  const machine::Placement& placement_;
  const std::array<int64_t, 3> torus_;
  const int64_t pod_chips_;
};

// What one member sends and receives in a phase, in one direction.
struct Chain {
  int32_t send_queue = 0, recv_queue = 0;
  std::vector<int32_t> sends, recvs;  // templates, by step
};
using StepsOfPhase = std::vector<Chain>;

class InSteps {
 public:
  InSteps(const Program& from, const machine::Machine& machine, const machine::Placement& placement)
      : from_(from), parts_(machine, placement), builder_(to_) {}

  Program run() {
    to_ = from_;
    to_.queues.clear();
    to_.tasks.clear();
    to_.deps.clear();
    to_.calls.clear();
    for (const Queue& queue : from_.queues) builder_.add_queue(queue);
    for (const CallTemplate& call : from_.calls) plan(call);
    check_size();
    first_.resize(from_.tasks.size());
    last_.resize(from_.tasks.size());
    std::vector<int32_t> before(from_.queues.size(), -1);  // in its queue
    for (size_t index = 0; index < from_.tasks.size(); ++index) {
      int32_t& previous = before[size_t(from_.tasks[index].queue)];
      emit(index, previous);
      previous = int32_t(index);
    }
    add_guesses();
    check_program(to_);
    return std::move(to_);
  }

 private:
  bool is_stepped(const Task& task) const {
    return task.call >= 0 && !steps_[size_t(task.call)].empty();
  }

  // A task takes some hundred bytes in a run, for each class of ranks.
  void check_size() const {
    constexpr int64_t kMostTasks = int64_t(1) << 22;
    int64_t tasks = 0;
    for (const Task& task : from_.tasks) {
      if (!is_stepped(task)) continue;
      for (const StepsOfPhase& chains : steps_[size_t(task.call)]) {
        for (const Chain& chain : chains) tasks += 2 * int64_t(chain.sends.size());
      }
    }
    TRN_CHECK(tasks <= kMostTasks, lower,
              "collectives in steps send " + std::to_string(tasks / 2) +
                  " messages from each rank: too many to simulate",
              "use fluid collectives, or fewer ranks");
  }

  // Its messages, or the call itself where not all phases have steps.
  void plan(const CallTemplate& call) {
    std::vector<StepsOfPhase>& steps = steps_.emplace_back();
    kept_.push_back(-1);
    std::vector<int32_t> slots;
    // What comes from one member, or goes to one, cannot be sent before it is there.
    const bool has_root = call.kind == CallKind::broadcast || call.kind == CallKind::reduce;
    for (const PhaseTemplate& phase : call.phases) {
      if (has_root) break;
      const int32_t slot = slot_of(call.group, phase);
      if (slot < 0) break;
      slots.push_back(slot);
    }
    if (slots.size() < call.phases.size() || slots.empty()) {
      kept_.back() = int32_t(to_.calls.size());
      to_.calls.push_back(call);
      return;
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      const PhaseTemplate& phase = call.phases[i];
      const int64_t distance = phase.pattern == Pattern::shift ? phase.distance : 1;
      StepsOfPhase& chains = steps.emplace_back();
      chains.push_back(make_chain(call, phase, slots[i], distance, kStepTag));
      if (phase.pattern == Pattern::ring_both || phase.pattern == Pattern::axis_ring) {
        chains.push_back(make_chain(call, phase, slots[i], -distance, kStepTag + 1));
      }
    }
  }

  // The group round which the phase goes, with the captured rank in it; -1 when there is none that,
  // moved along, is every other rank's.
  int32_t slot_of(int32_t slot, const PhaseTemplate& phase) {
    const workload::Group& group = from_.groups[size_t(slot)];
    Ranks ranks;
    for (int64_t i = 0; i < group.ranks.size(); ++i) ranks.push_back(group.ranks.rank_at(i));
    const std::vector<Ranks> parts = parts_.of(phase, ranks);
    const auto own = std::find_if(parts.begin(), parts.end(), [&](const Ranks& part) {
      return std::find(part.begin(), part.end(), from_.rank) != part.end();
    });
    if (own == parts.end() || own->size() < 2 || phase.steps < 1) return -1;
    if (phase.pattern == Pattern::shift && phase.distance % int64_t(own->size()) == 0) return -1;
    for (const Ranks& part : parts) {
      if (part.size() != own->size()) return -1;
      for (size_t i = 0; i < part.size(); ++i) {
        if (part[i] - part[0] != (*own)[i] - (*own)[0]) return -1;
      }
    }
    if (*own == ranks) return slot;
    const auto [found, is_new] = slots_.try_emplace({slot, *own}, int32_t(to_.groups.size()));
    if (is_new) {
      const std::string name = group.name.empty() ? "world" : group.name;
      to_.groups.push_back({name + part_name(phase), workload::RankPattern::of(*own)});
    }
    return found->second;
  }

  static std::string part_name(const PhaseTemplate& phase) {
    if (phase.pattern == Pattern::axis_ring) return std::string(" along ") + "xyz"[phase.axis];
    std::string name;
    if (phase.scope != Scope::group)
      name = phase.scope == Scope::pod ? " in a pod" : " across pods";
    if (phase.pattern == Pattern::exchange)
      name += ", " + std::to_string(phase.distance) + " apart";
    return name;
  }

  Chain make_chain(const CallTemplate& call, const PhaseTemplate& phase, int32_t slot,
                   int64_t distance, int32_t tag) {
    const workload::RankPattern& ranks = to_.groups[size_t(slot)].ranks;
    const int64_t count = ranks.size(), own = ranks.index_of(from_.rank);
    const auto peer = [&](int64_t places) {
      return int32_t(ranks.rank_at(((own + places) % count + count) % count));
    };
    const int32_t to = peer(distance), from = peer(-distance);
    Chain chain;
    chain.send_queue = queue_of({QueueKind::send, to}, slot, tag);
    chain.recv_queue = queue_of({QueueKind::recv, from}, slot, tag);
    std::map<std::pair<int64_t, bool>, int32_t> made;  // the send; its receive follows it
    for (int64_t step = 0; step < phase.steps; ++step) {
      const int64_t bytes = phase.bytes / phase.steps + (step < phase.bytes % phase.steps);
      const auto [found, is_new] = made.try_emplace({bytes, step == 0}, int32_t(to_.calls.size()));
      if (is_new) {
        const std::string& name = call.algorithm;
        add_message(call, phase, {CallKind::send, slot, bytes, to, tag, name, {}}, step == 0);
        add_message(call, phase, {CallKind::recv, slot, bytes, from, tag, name, {}}, step == 0);
      }
      chain.sends.push_back(found->second);
      chain.recvs.push_back(found->second + 1);
    }
    return chain;
  }

  void add_message(const CallTemplate& call, const PhaseTemplate& phase, CallTemplate message,
                   bool is_first) {
    PhaseTemplate sent;
    sent.pattern = Pattern::message;
    sent.bytes = message.bytes;
    sent.steps = 1;
    sent.step_ps = phase.step_ps;
    sent.in_pod_sends = phase.in_pod_sends;
    sent.fabric_sends = phase.fabric_sends;
    if (is_first) {
      sent.hop_ps = phase.hop_ps;
      sent.fixed_ps = phase.fixed_ps;
    }
    message.phases = {sent};
    message.record = call.record;
    message.step_of = {call.kind, call.group};
    to_.calls.push_back(std::move(message));
  }

  // One for each peer, direction and group: what meets on one communicator stands on one queue.
  int32_t queue_of(Queue queue, int32_t slot, int32_t tag) {
    const auto key = std::tuple(queue.kind, queue.index, slot, tag);
    const auto found = queues_.find(key);
    if (found != queues_.end()) return found->second;
    return queues_[key] = builder_.add_queue(queue);
  }

  void add_ends(int32_t task, int64_t lag_ps, std::vector<Dep>& deps) const {
    for (const int32_t last : last_[size_t(task)]) deps.push_back({last, DepKind::end, lag_ps});
  }

  void emit(size_t index, int32_t previous) {
    const Task& task = from_.tasks[index];
    std::vector<Dep> deps;
    for (int32_t i = 0; i < task.deps_count; ++i) {
      const Dep& dep = from_.deps[size_t(task.deps_begin + i)];
      const auto& on = dep.kind == DepKind::start ? first_ : last_;
      for (const int32_t other : on[size_t(dep.task)])
        deps.push_back({other, dep.kind, dep.lag_ps});
    }
    const bool steps = is_stepped(task);
    // A queue keeps what stands on it in order; messages have left theirs.
    if (previous >= 0 && (steps || is_stepped(from_.tasks[size_t(previous)]))) {
      add_ends(previous, 0, deps);
    }
    if (steps) return emit_messages(index, std::move(deps));
    const int32_t made = builder_.task(task.kind, task.queue, task.duration_ps, task.op, deps);
    if (task.call >= 0) to_.tasks[size_t(made)].call = kept_[size_t(task.call)];
    first_[index] = last_[index] = {made};
  }

  void emit_messages(size_t index, std::vector<Dep> waits) {
    const auto& phases = steps_[size_t(from_.tasks[index].call)];
    for (const Dep& dep : waits) {
      TRN_ASSERT(dep.kind != DepKind::end_bound, "the network alone ends a call");
    }
    for (const StepsOfPhase& chains : phases) {
      std::vector<Dep> ends;
      for (const Chain& chain : chains) {
        int32_t send = -1, recv = -1;
        for (size_t step = 0; step < chain.sends.size(); ++step) {
          const std::vector<Dep> after = step == 0 ? waits : std::vector<Dep>{{recv}};
          send = builder_.call_task(chain.send_queue, chain.sends[step], after);
          recv = builder_.call_task(chain.recv_queue, chain.recvs[step],
                                    step == 0 ? waits : std::vector<Dep>{});
          if (&chains == &phases.front() && step == 0) {
            first_[index].insert(first_[index].end(), {send, recv});
          }
        }
        ends.insert(ends.end(), {{send}, {recv}});
      }
      waits = std::move(ends);
    }
    for (const Dep& dep : waits) last_[index].push_back(dep.task);
  }

  void add_guesses() {
    int64_t stepped = 0, calls = 0;
    std::set<std::string> others;
    for (const Task& task : from_.tasks) {
      if (task.kind != TaskKind::call) continue;
      const CallTemplate& call = from_.calls[size_t(task.call)];
      const bool is_message = workload::is_message(call.kind);
      if (is_message || from_.groups[size_t(call.group)].ranks.size() < 2) continue;
      ++calls;
      if (is_stepped(task)) {
        ++stepped;
      } else {
        others.insert(call.algorithm);
      }
    }
    const auto counted = [](int64_t count) {
      return std::to_string(count) + (count == 1 ? " call" : " calls");
    };
    if (stepped > 0) {
      to_.guesses.push_back(
          {"collectives in steps", counted(stepped), "each step is a message between neighbours"});
    }
    if (others.empty()) return;
    std::string names;
    for (const std::string& name : others) names += (names.empty() ? "" : ", ") + name;
    to_.guesses.push_back({"step mode",
                           counted(calls - stepped) + (calls - stepped == 1 ? " stays" : " stay") +
                               " fluid (" + names + ")",
                           "only what goes round between fixed neighbours is made of steps"});
  }

  const Program& from_;
  const Parts parts_;
  Program to_;
  Builder builder_;
  std::vector<std::vector<StepsOfPhase>> steps_;  // by call template; empty: it stays
  std::vector<int32_t> kept_;                     // by call template: where it stands now
  std::map<std::pair<int32_t, Ranks>, int32_t> slots_;
  std::map<std::tuple<QueueKind, int32_t, int32_t, int32_t>, int32_t> queues_;
  std::vector<std::vector<int32_t>> first_, last_;  // by task: whose starts and ends are its own
};

}  // namespace

Program in_steps(const Program& program, const machine::Machine& machine,
                 const machine::Placement& placement) {
  return InSteps(program, machine, placement).run();
}

}  // namespace trnsim::lower
