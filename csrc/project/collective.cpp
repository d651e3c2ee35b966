// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/collective.h"

#include <algorithm>
#include <map>
#include <optional>

#include "fold/job.h"
#include "lower/collectives.h"
#include "lower/ring_steps.h"
#include "machine/line_rate.h"
#include "project/variants.h"
#include "simulate/timeline.h"

namespace trnsim::project {
namespace {

using workload::CallKind;

// A Program of nothing but calls of all ranks, each a template of its own, in order on one stream;
// or, of sendrecv, of one message to the next rank and one from the rank before.
class CallsOnly {
 public:
  CallsOnly(const CollectiveRequest& request, const machine::Machine& machine,
            const machine::Placement& placement)
      : request_(request), machine_(machine) {
    program_->role = "all ranks";
    program_->groups.push_back({"all ranks", {0, {{1, placement.ranks}}, {}}});
    shapes_ = lower::shapes_of(program_->groups[0].ranks, machine, placement);
  }
  void add(CallKind kind, int64_t bytes, lower::Queue queue) {
    workload::Call call;
    call.kind = kind;
    call.bytes = bytes;
    if (!request_.shares.empty()) call.splits = shared_out(bytes, request_.shares);
    call.peer = queue.kind == lower::QueueKind::collective ? 0 : queue.index;
    if (program_->queues.empty() || kind == CallKind::recv) program_->queues.push_back(queue);
    lower::Task task;
    task.kind = lower::TaskKind::call;
    task.call = int32_t(program_->calls.size());
    task.queue = int32_t(program_->queues.size()) - 1;
    program_->tasks.push_back(task);
    // No member's splits: what all send to the same one.
    program_->calls.push_back(lower::make_call(call, -1, shapes_, machine_, request_.algorithm));
  }
  std::shared_ptr<const lower::Program> done() const {
    lower::check_program(*program_);
    return program_;
  }

 private:
  const CollectiveRequest& request_;
  const machine::Machine& machine_;
  lower::GroupShapes shapes_;
  std::shared_ptr<lower::Program> program_ = std::make_shared<lower::Program>();
};

// Of one send of the phase, on a link of the tier: of an uneven one the largest.
int128 bytes_of_one(const lower::PhaseTemplate& phase, machine::Tier tier) {
  const bool is_of_fabric = machine::is_of_fabric(tier);
  int128 bytes = int128(phase.bytes) * (is_of_fabric ? phase.fabric_sends : phase.in_pod_sends);
  if (phase.pattern == lower::Pattern::rails) return bytes * phase.parts[is_of_fabric ? 1 : 0];
  if (phase.parts.empty()) return bytes;
  return bytes * *std::max_element(phase.parts.begin(), phase.parts.end());
}

// Of all links, the longest that one send takes there, or as much as comes over it.
int64_t one_send_ps(const fold::System& system, const fold::Variable& variable,
                    const lower::PhaseTemplate& phase) {
  int64_t longest_ps = 0;
  for (const fold::LinkUse& use : variable.uses) {
    const fold::LinkInfo& link = system.links[size_t(use.link)];
    const int128 on_link = int128(variable.bytes) * use.weight / fold::kWeightOne;
    const int128 bytes = std::min(bytes_of_one(phase, link.tier), on_link);
    longest_ps = std::max(longest_ps, duration_ps(bytes, {link.rate, kRateUnitsPerBps}));
  }
  return longest_ps;
}

int64_t uncontended_ps(const fold::System& system, const lower::CallTemplate& call,
                       const std::vector<int32_t>& variables, bool with_hops = true) {
  int64_t total_ps = 0;
  for (size_t i = 0; i < variables.size(); ++i) {
    const fold::Variable& variable = system.variables[size_t(variables[i])];
    const lower::PhaseTemplate& phase = call.phases[i];
    total_ps += with_hops ? variable.latency_ps : phase.steps * phase.step_ps + phase.fixed_ps;
    if (variable.bytes > 0) total_ps += one_send_ps(system, variable, phase);
  }
  return total_ps;
}

// Of each template, the call that takes longest: of all messages of a sendrecv.
std::vector<CollectiveRun> runs_of(const lower::Program& program,
                                   const simulate::Timeline& timeline) {
  std::vector<CollectiveRun> runs;
  for (const lower::CallTemplate& call : program.calls) {
    runs.push_back({call.bytes, call.algorithm});
    runs.back().engine = timeline.engine;
  }
  const fold::System& system = *timeline.system;
  for (const simulate::CallSpan& span : timeline.calls) {
    CollectiveRun& run = runs[size_t(span.call)];
    const auto& variables = system.plan[size_t(span.communicator)][size_t(span.call)];
    const int64_t alone_ps = uncontended_ps(system, program.calls[size_t(span.call)], variables);
    run.time_ps = std::max(run.time_ps, span.end_ps - span.start_ps);
    run.uncontended_ps = std::max(run.uncontended_ps, alone_ps);
  }
  return runs;
}

// Runs one collective on variants of a machine, which one Mould serves where they call alike.
class Runner {
 public:
  Runner(const CollectiveRequest& request, const machine::Placement& placement, Progress* progress)
      : request_(request),
        placement_(placement),
        conditions_(conditions_of({{}, request.faults})),
        step_mode_(request.step_mode && request.kind != CallKind::send),
        progress_(progress) {
    if (progress != nullptr) simulate_options_.progress = &progress->tasks;
  }

  std::vector<CollectiveRun> run(const machine::Machine& as_in_step) {
    const machine::Machine machine = machine::at_line_rate(as_in_step);
    if (step_mode_) return run_in_steps(machine);
    if (request_.kind != CallKind::send) {
      CallsOnly calls(request_, machine, placement_);
      for (const int64_t bytes : request_.sizes)
        calls.add(request_.kind, bytes, {lower::QueueKind::collective, 0});
      return simulated(machine, calls.done());
    }
    std::vector<CollectiveRun> runs;  // messages do not wait for all others: one size at a time
    for (const int64_t bytes : request_.sizes) {
      CallsOnly calls(request_, machine, placement_);
      calls.add(CallKind::send, bytes, {lower::QueueKind::send, 1});
      calls.add(CallKind::recv, bytes, {lower::QueueKind::recv, int32_t(placement_.ranks) - 1});
      runs.push_back(simulated(machine, calls.done()).front());
    }
    return runs;
  }
  // Of one `run`.
  int64_t simulations() const {
    const bool one_by_one = step_mode_ || request_.kind == CallKind::send;
    return one_by_one ? int64_t(request_.sizes.size()) : 1;
  }

 private:
  std::shared_ptr<const fold::System> folded(const fold::Job& job) {
    if (!mould_ || !mould_->fits(job)) mould_.emplace(job);
    return mould_->cast(job).system;
  }

  std::vector<CollectiveRun> simulated(const machine::Machine& machine,
                                       const std::shared_ptr<const lower::Program>& program) {
    const auto topology = machine::make_topology(machine, placement_.chips, conditions_);
    const fold::Job job = fold::one_role(program, machine, *topology, placement_, placement_.ranks);
    const auto timeline = simulate::simulate_step(folded(job), simulate_options_);
    if (progress_) ++progress_->done;
    return runs_of(*program, timeline);
  }

  // One size at a time: members end at times of their own, so calls in a row would overlap.
  std::vector<CollectiveRun> run_in_steps(const machine::Machine& machine) {
    const auto topology = machine::make_topology(machine, placement_.chips, conditions_);
    std::vector<CollectiveRun> runs;
    for (const int64_t bytes : request_.sizes) {
      CallsOnly calls(request_, machine, placement_);
      calls.add(request_.kind, bytes, {lower::QueueKind::collective, 0});
      fold::Job job =
          fold::one_role(calls.done(), machine, *topology, placement_, placement_.ranks);
      const std::shared_ptr<const lower::Program> program = job.roles[0].program;
      const lower::CallTemplate& call = program->calls[0];
      CollectiveRun& run = runs.emplace_back(CollectiveRun{bytes, call.algorithm});
      auto system = folded(job);
      int64_t without_hops_ps = 0;
      for (const auto& of_call : system->plan) {
        const int64_t alone_ps = uncontended_ps(*system, call, of_call[0]);
        run.uncontended_ps = std::max(run.uncontended_ps, alone_ps);
        without_hops_ps =
            std::max(without_hops_ps, uncontended_ps(*system, call, of_call[0], false));
      }
      const auto stepped =
          std::make_shared<const lower::Program>(lower::in_steps(*program, machine, placement_));
      run.in_steps = stepped->calls[0].step_of.has_value();
      if (run.in_steps) {
        job.roles[0].program = stepped;
        system = fold::make_cohorts(job).system;
      }
      const auto timeline = simulate::simulate_step(system, simulate_options_);
      run.time_ps = timeline.makespan_ps;
      run.engine = timeline.engine;
      // Nobody waits for hops that only others take, nor, in each phase, for those at a slow link.
      if (!request_.faults.empty()) without_hops_ps = 0;
      run.uncontended_ps = std::max(without_hops_ps, std::min(run.uncontended_ps, run.time_ps));
      if (progress_) ++progress_->done;
    }
    return runs;
  }

  const CollectiveRequest& request_;
  const machine::Placement& placement_;
  const machine::Conditions conditions_;
  const bool step_mode_;
  Progress* progress_;
  simulate::SimulateOptions simulate_options_;
  std::optional<fold::Mould> mould_;
};

bool moves_transfers(const InputGroup& group) {
  return group.name == "links" || group.name == "collective latency" ||
         group.name == "collective efficiency";
}

}  // namespace

CallKind parse_collective(const std::string& name) {
  static const std::map<std::string, CallKind> kNames = {
      {"all_reduce", CallKind::all_reduce}, {"allr", CallKind::all_reduce},
      {"all_gather", CallKind::all_gather}, {"allg", CallKind::all_gather},
      {"redsct", CallKind::reduce_scatter}, {"reduce_scatter", CallKind::reduce_scatter},
      {"broadcast", CallKind::broadcast},   {"reduce", CallKind::reduce},
      {"gather", CallKind::gather},         {"scatter", CallKind::scatter},
      {"all_to_all", CallKind::all_to_all}, {"alltoall", CallKind::all_to_all},
      {"sendrecv", CallKind::send}};
  std::string plain = name;
  std::replace(plain.begin(), plain.end(), '-', '_');
  const auto found = kNames.find(plain);
  TRN_CHECK(found != kNames.end(), lower, "there is no collective '" + name + "'",
            "use all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, "
            "all_to_all or sendrecv");
  return found->second;
}

const char* collective_name(CallKind kind) {
  return kind == CallKind::send ? "sendrecv" : workload::call_kind_name(kind);
}

namespace {

void check(const CollectiveRequest& request, const machine::Placement& placement) {
  const std::string name = collective_name(request.kind);
  TRN_CHECK(request.algorithm.empty() || lower::has_algorithms(request.kind), lower,
            name + " has one algorithm only", "leave out the algorithm");
  TRN_CHECK(placement.ranks > 1, lower, "a collective of 1 rank moves nothing",
            "use 2 ranks or more");
  const auto& sizes = request.sizes;
  TRN_CHECK(!sizes.empty() && *std::min_element(sizes.begin(), sizes.end()) > 0, lower,
            "a collective needs sizes of 1 byte or more", "give at least one");
  for (const TimedLinkFault& at : request.faults) {
    TRN_CHECK(at.time_ps == 0, project, "a collective alone has no time at which a link fails",
              "leave out @TIME: links are slow or dead from the start");
  }
  const auto& shares = request.shares;
  if (shares.empty()) return;
  TRN_CHECK(request.kind == CallKind::all_to_all, lower, name + " has no uneven routing",
            "give one to all_to_all only");
  TRN_CHECK(request.algorithm.empty() || request.algorithm == "direct", lower,
            "an uneven all_to_all goes direct, not " + request.algorithm,
            "leave out the algorithm");
  TRN_CHECK(int64_t(shares.size()) == placement.ranks, lower,
            "a routing over " + std::to_string(shares.size()) + " ranks does not fit " +
                std::to_string(placement.ranks),
            "give one number for each rank");
  TRN_CHECK(*std::min_element(shares.begin(), shares.end()) >= 0 &&
                *std::max_element(shares.begin(), shares.end()) > 0,
            lower, "a routing needs shares of 0 or more, and one above 0", "change its numbers");
}

}  // namespace

std::vector<int64_t> shared_out(int64_t bytes, const std::vector<int64_t>& shares) {
  int128 total = 0;
  for (const int64_t share : shares) total += share;
  std::vector<int64_t> parts;
  std::vector<std::pair<int128, size_t>> lost;  // negative, so that the largest comes first
  int64_t left = bytes;
  for (size_t i = 0; i < shares.size(); ++i) {
    const int128 scaled = int128(bytes) * shares[i];
    parts.push_back(int64_t(scaled / total));
    lost.emplace_back(-(scaled % total), i);
    left -= parts.back();
  }
  std::sort(lost.begin(), lost.end());
  for (int64_t i = 0; i < left; ++i) ++parts[lost[size_t(i)].second];
  return parts;
}

std::vector<CollectiveRun> run_collective(const CollectiveRequest& request,
                                          const machine::Machine& machine,
                                          const machine::Placement& placement, Progress* progress) {
  check(request, placement);
  std::vector<InputGroup> groups;
  std::vector<Change> changes;
  if (request.interval) {
    groups = input_groups(machine);
    changes = possible_changes(machine, placement.chips);
  }
  std::erase_if(groups, [](const InputGroup& group) { return !moves_transfers(group); });
  std::erase_if(changes, [](const Change& change) { return change.relieves != "links"; });
  Runner runner(request, placement, progress);
  if (progress)
    progress->total = runner.simulations() * int64_t(1 + 2 * groups.size() + changes.size());
  std::vector<CollectiveRun> runs = runner.run(machine);
  const size_t sizes = request.sizes.size();
  std::vector<std::vector<int64_t>> faster(sizes), slower(sizes);
  for (const InputGroup& group : groups) {
    const auto quick = runner.run(group.faster), slow = runner.run(group.slower);
    for (size_t i = 0; i < sizes; ++i) {
      faster[i].push_back(quick[i].time_ps);
      slower[i].push_back(slow[i].time_ps);
    }
  }
  for (const Change& change : changes) {
    const auto relieved = runner.run(change.machine);
    for (size_t i = 0; i < sizes; ++i) {
      runs[i].reliefs.push_back({change.text, relieved[i].time_ps, relieved[i].algorithm});
    }
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    combine_interval(runs[i].time_ps, faster[i], slower[i], 0, runs[i].low_ps, runs[i].high_ps);
  }
  return runs;
}

Rational bus_factor(CallKind kind, int64_t ranks) {
  switch (kind) {
    case CallKind::broadcast:
    case CallKind::reduce:
    case CallKind::send:
      return {1, 1};
    case CallKind::all_reduce:
      return {2 * (ranks - 1), ranks};
    default:
      return {ranks - 1, ranks};
  }
}

}  // namespace trnsim::project
