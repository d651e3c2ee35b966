// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/collective.h"

#include <algorithm>
#include <map>

#include "fold/job.h"
#include "lower/collectives.h"
#include "simulate/timeline.h"

namespace trnsim::project {
namespace {

using workload::CallKind;

// All calls on one stream, each a template of its own.
std::shared_ptr<const lower::Program> make_program(CallKind kind, const std::vector<int64_t>& sizes,
                                                   const machine::Machine& machine,
                                                   const machine::Placement& placement,
                                                   const std::string& algorithm) {
  auto program = std::make_shared<lower::Program>();
  program->role = "all ranks";
  program->groups.push_back({"all ranks", {0, {{1, placement.ranks}}, {}}});
  program->queues.push_back({lower::QueueKind::collective, 0});
  for (const int64_t bytes : sizes) {
    workload::Call call;
    call.kind = kind;
    call.bytes = bytes;
    call.peer = 0;
    lower::Task task;
    task.kind = lower::TaskKind::call;
    task.call = int32_t(program->calls.size());
    program->tasks.push_back(task);
    program->calls.push_back(
        lower::make_call(call, program->groups[0], machine, placement, algorithm));
  }
  lower::check_program(*program);
  return program;
}

int64_t uncontended_ps(const fold::System& system, const lower::CallTemplate& call,
                       const std::vector<int32_t>& variables) {
  int64_t total_ps = 0;
  for (size_t phase = 0; phase < variables.size(); ++phase) {
    const fold::Variable& variable = system.variables[size_t(variables[phase])];
    total_ps += variable.latency_ps;
    if (variable.bytes == 0) continue;
    int64_t slowest = INT64_MAX;
    for (const fold::LinkUse& use : variable.uses) {
      slowest = std::min(slowest, system.links[size_t(use.link)].rate);
    }
    total_ps += duration_ps(call.phases[phase].bytes, {slowest, kRateUnitsPerBps});
  }
  return total_ps;
}

}  // namespace

CallKind parse_collective(const std::string& name) {
  static const std::map<std::string, CallKind> kNames = {
      {"all_reduce", CallKind::all_reduce}, {"allr", CallKind::all_reduce},
      {"all_gather", CallKind::all_gather}, {"allg", CallKind::all_gather},
      {"redsct", CallKind::reduce_scatter}, {"reduce_scatter", CallKind::reduce_scatter},
      {"broadcast", CallKind::broadcast},   {"reduce", CallKind::reduce},
      {"gather", CallKind::gather},         {"scatter", CallKind::scatter},
      {"all_to_all", CallKind::all_to_all}, {"alltoall", CallKind::all_to_all}};
  std::string plain = name;
  std::replace(plain.begin(), plain.end(), '-', '_');
  const auto found = kNames.find(plain);
  TRN_CHECK(found != kNames.end(), lower, "there is no collective '" + name + "'",
            "use all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter or "
            "all_to_all");
  return found->second;
}

std::vector<CollectiveRun> run_collective(CallKind kind, const std::vector<int64_t>& sizes,
                                          const machine::Machine& machine,
                                          const machine::Placement& placement,
                                          const std::string& algorithm) {
  TRN_CHECK(algorithm.empty() || lower::has_algorithms(kind), lower,
            std::string(workload::call_kind_name(kind)) + " has one algorithm only",
            "leave out the algorithm");
  TRN_CHECK(placement.ranks > 1, lower, "a collective of 1 rank moves nothing",
            "use 2 ranks or more");
  TRN_CHECK(!sizes.empty() && *std::min_element(sizes.begin(), sizes.end()) > 0, lower,
            "a collective needs sizes of 1 byte or more", "give at least one");
  const auto program = make_program(kind, sizes, machine, placement, algorithm);
  const auto topology = machine::make_topology(machine, placement.chips);
  const workload::RankPattern all{0, {{1, placement.ranks}}, {}};
  const fold::Cohorts cohorts =
      fold::make_cohorts({machine, *topology, placement, placement.ranks, {{program, all}}});
  const simulate::Timeline timeline = simulate::simulate_step(cohorts.system, {});
  std::vector<CollectiveRun> runs;
  for (const lower::CallTemplate& call : program->calls) {
    runs.push_back({call.bytes, call.algorithm, 0, 0});
  }
  for (const simulate::CallSpan& span : timeline.calls) {
    CollectiveRun& run = runs[size_t(span.call)];
    run.time_ps = span.end_ps - span.start_ps;
    run.uncontended_ps = uncontended_ps(*cohorts.system, program->calls[size_t(span.call)],
                                        cohorts.system->plan[0][size_t(span.call)]);
  }
  return runs;
}

Rational bus_factor(CallKind kind, int64_t ranks) {
  switch (kind) {
    case CallKind::broadcast:
    case CallKind::reduce:
      return {1, 1};
    case CallKind::all_reduce:
      return {2 * (ranks - 1), ranks};
    default:
      return {ranks - 1, ranks};
  }
}

}  // namespace trnsim::project
