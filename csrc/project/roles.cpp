// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/roles.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "project/gradient_flow.h"
#include "workload/messages.h"
#include "workload/whole_steps.h"

namespace trnsim::project {
namespace {

workload::RankPattern first_ranks(int64_t count) {
  if (count == 1) return {};
  return {0, {{1, count}}, {}};
}

void check_one_job(const Workloads& workloads) {
  TRN_CHECK(!workloads.empty(), project, "a projection of no Workload", "give at least one");
  for (const auto& workload : workloads) {
    TRN_CHECK(workload->world_size == workloads[0]->world_size, project,
              "role " + workload->role + " is of a job of " + std::to_string(workload->world_size) +
                  " ranks, role " + workloads[0]->role + " of one of " +
                  std::to_string(workloads[0]->world_size),
              "give the Workloads of one run");
    TRN_CHECK(workloads.size() == 1 || workload->played_by, project,
              "role " + workload->role + " does not say which ranks play it",
              "set played_by of every Workload of a job with several roles");
  }
  const workload::Workload& only = *workloads[0];
  const bool is_part = workloads.size() == 1 && only.played_by && only.world_size > 1 &&
                       only.played_by->size() < only.world_size;
  TRN_CHECK(!is_part, project,
            "role " + only.role + " is played by some of the " + std::to_string(only.world_size) +
                " ranks only",
            "give all Workloads of the run: trnsim.project(path) reads them");
}

}  // namespace

void choose_steps(Case& of, int64_t asked) {
  CaseRole& first = of.roles[0];
  const auto steps = workload::find_steps(*first.workload);
  first.step = workload::choose_step(steps, asked);
  const int64_t index = workload::index_among_whole(steps, first.step);
  for (size_t i = 1; i < of.roles.size(); ++i) {
    CaseRole& role = of.roles[i];
    const auto theirs = workload::find_steps(*role.workload);
    const int64_t count = workload::count_whole(theirs);
    TRN_CHECK(index < 0 ? count == 0 : count > index, workload,
              "rank " + std::to_string(role.workload->rank) + " ran " + std::to_string(count) +
                  " whole steps, rank " + std::to_string(first.workload->rank) + " ran " +
                  std::to_string(workload::count_whole(steps)),
              "let every rank run the same steps, or choose one that all ran with --step");
    role.step = workload::choose_step(theirs, index);
  }
}

Case make_case(const Workloads& workloads, const ProjectOptions& options) {
  check_one_job(workloads);
  const workload::Workload& first = *workloads[0];
  Case result;
  const bool is_distributed = first.world_size > 1;
  result.placement = options.placement;
  TRN_CHECK(!is_distributed || result.placement.ranks == first.world_size, project,
            "the script ran as " + std::to_string(first.world_size) + " ranks, but " +
                std::to_string(result.placement.chips) + " chips hold " +
                std::to_string(result.placement.ranks),
            "run the script again with --chips " + std::to_string(result.placement.chips));
  result.used_ranks = is_distributed ? result.placement.ranks : 1;
  for (const auto& workload : workloads) {
    const bool is_lone = workloads.size() == 1 || !workload->played_by;
    result.roles.push_back(
        {workload, {}, is_lone ? first_ranks(result.used_ranks) : *workload->played_by});
  }
  choose_steps(result, options.step);
  result.step_mode = options.step_mode;
  result.fold = options.fold;
  result.scenario = options.scenario;
  return result;
}

namespace {

// Whole models that reduce their gradients over all ranks, whatever else they say to each other.
bool are_copies(const Case& of) {
  return std::all_of(of.roles.begin(), of.roles.end(), [&](const CaseRole& role) {
    return role.workload->parameter_count == of.roles[0].workload->parameter_count &&
           follow_gradients(*role.workload, role.step).degree.value_or(1) >= of.used_ranks;
  });
}

}  // namespace

std::vector<std::vector<size_t>> pipelines_of(const Case& of) {
  std::vector<size_t> root(of.roles.size());
  std::iota(root.begin(), root.end(), size_t(0));
  const auto find = [&](size_t at) {
    while (root[at] != at) at = root[at];
    return at;
  };
  const bool copies = of.roles.size() > 1 && are_copies(of);
  for (size_t i = 0; i < of.roles.size() && !copies; ++i) {
    const CaseRole& role = of.roles[i];
    for (const auto& [group, peer] : workload::peers_in_step(*role.workload, role.step)) {
      for (size_t j = 0; j < of.roles.size(); ++j) {
        if (of.roles[j].ranks.index_of(peer) >= 0) root[find(j)] = find(i);
      }
    }
  }
  std::map<size_t, std::vector<size_t>> sets;
  for (size_t i = 0; i < of.roles.size(); ++i) sets[find(i)].push_back(i);
  std::vector<std::vector<size_t>> result;
  for (auto& [at, set] : sets) result.push_back(std::move(set));
  return result;
}

int64_t replicas_of(const Case& of) {
  int64_t count = 0;
  for (const auto& pipeline : pipelines_of(of)) count += of.roles[pipeline[0]].ranks.size();
  return count;
}

int64_t parameters_of(const Case& of) {
  int64_t most = 0;
  for (const auto& pipeline : pipelines_of(of)) {
    int64_t sum = 0;
    for (const size_t role : pipeline) sum += of.roles[role].workload->parameter_count;
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace trnsim::project
