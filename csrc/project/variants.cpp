// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/variants.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "simulate/shard.h"

namespace trnsim::project {
namespace {

// A run that cannot end says why with the ranks of the job, which only the System of all of them
// knows: it is made for that alone.
simulate::Timeline simulate_folded(const fold::Cohorts& cohorts, const fold::Job& job,
                                   const simulate::SimulateOptions& options) {
  try {
    return simulate::simulate_step(cohorts.system, options);
  } catch (const Error&) {
    simulate::simulate_step(std::make_shared<const fold::System>(fold::make_system(job)), {});
    throw;
  }
}

}  // namespace

Simulated simulate_case(const Case& of, const machine::Machine& machine, Progress* progress) {
  simulate::SimulateOptions options;
  if (progress != nullptr) options.progress = &progress->tasks;
  Simulated result;
  for (const CaseRole& role : of.roles) {
    auto program = std::make_shared<const lower::Program>(lower::lower_step(
        *role.workload, role.step, machine, of.placement, {"", "", of.step_mode}));
    result.roles.push_back({std::move(program), role.ranks});
  }
  const auto topology =
      machine::make_topology(machine, of.placement.chips, conditions_of(of.scenario));
  fold::Job job{machine, *topology, of.placement, of.used_ranks, result.roles};
  add_scenario(of.scenario, job);
  simulate::Timeline timeline;
  if (of.fold) {
    result.mould =
        of.mould && of.mould->fits(job) ? of.mould : std::make_shared<const fold::Mould>(job);
    result.cohorts = result.mould->cast(job);
    timeline = simulate_folded(result.cohorts, job, options);
  } else {
    result.cohorts =
        fold::leave_unfolded(std::make_shared<const fold::System>(fold::make_system(job)));
    timeline = simulate::simulate_step(result.cohorts.system, options);
  }
  result.timeline = std::make_shared<const simulate::Timeline>(std::move(timeline));
  if (progress != nullptr) ++progress->done;
  return result;
}

namespace {

// Those of one process, by its threads.
std::vector<int64_t> simulate_share(const Case& of,
                                    const std::vector<const machine::Machine*>& machines,
                                    Progress* progress) {
  std::vector<int64_t> makespans(machines.size(), 0);
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    for (size_t i = next++; i < machines.size(); i = next++) {
      try {
        makespans[i] = simulate_case(of, *machines[i], progress).timeline->makespan_ps;
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next = machines.size();
      }
    }
  };
  const int hardware = int(std::max(1u, std::thread::hardware_concurrency()));
  // Unfolded, each takes the memory of all its ranks, and of all steps of collectives.
  const int64_t ranks = of.step_mode ? 1 : 1 << 18;
  const int64_t room = of.fold ? hardware : std::max<int64_t>(1, ranks / of.used_ranks);
  const int count = int(std::min({int64_t(machines.size()), int64_t(hardware), room}));
  std::vector<std::thread> pool;
  for (int i = 1; i < count; ++i) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
  return makespans;
}

}  // namespace

std::vector<int64_t> simulate_variants(const Case& of,
                                       const std::vector<machine::Machine>& machines,
                                       const ProjectOptions& options) {
  std::vector<const machine::Machine*> share;
  for (size_t i = size_t(options.process); i < machines.size(); i += size_t(options.processes)) {
    share.push_back(&machines[i]);
  }
  if (options.progress) options.progress->total += int64_t(share.size());
  const std::vector<int64_t> mine = simulate_share(of, share, options.progress.get());
  if (!options.exchange) return mine;
  const std::vector<int64_t> all = options.exchange->all_gather(mine);
  std::vector<int64_t> makespans(machines.size());
  size_t at = 0;
  for (size_t process = 0; process < size_t(options.processes); ++process) {
    for (size_t i = process; i < machines.size(); i += size_t(options.processes)) {
      makespans[i] = all[at++];
    }
  }
  return makespans;
}

}  // namespace trnsim::project
