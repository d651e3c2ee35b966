// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Transfers over given links, all started at time 0: the network half of a step, by itself.
//
//   network ROUTES BYTES BANDWIDTH_BPS ENDS folded|each
// ROUTES: the links of each transfer, one line a transfer. Writes each end in ps to ENDS; prints
// CPU seconds (reading the routes is not in them; folding and building the network are), solves,
// and how many of them looked at the whole network.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "fold/cohorts.h"
#include "simulate/network/repair.h"
#include "simulate/network/transfers.h"

namespace {

using namespace trnsim;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

fold::System read_system(const std::string& path, int64_t bytes, int64_t bandwidth_Bps) {
  fold::System system;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    fold::Variable& variable = system.variables.emplace_back();
    variable.bytes = bytes;
    std::istringstream words(line);
    for (int32_t link; words >> link;) {
      variable.uses.push_back({link, fold::kWeightOne});
      while (system.links.size() <= size_t(link)) {
        system.links.push_back({"link", bandwidth_Bps * kRateUnitsPerBps});
      }
    }
  }
  return system;
}

struct Result {
  std::vector<int64_t> ends;
  int64_t solves = 0, whole_solves = 0;
};

Result run(const fold::System& system) {
  Result result;
  result.ends.assign(system.variables.size(), -1);
  simulate::Transfers transfers(
      system,
      std::make_unique<simulate::Repair>(simulate::make_heap_solver(), simulate::RepairLimits{}),
      false);
  for (size_t i = 0; i < result.ends.size(); ++i) transfers.begin(int64_t(i), {int32_t(i)}, 0);
  std::vector<int64_t> ended;
  for (int64_t now_ps; (now_ps = transfers.next_ps()) != simulate::kNever;) {
    ended.clear();
    transfers.process(now_ps, ended);
    for (const int64_t i : ended) result.ends[size_t(i)] = now_ps;
    transfers.solve(now_ps);
  }
  result.solves = transfers.solve_count();
  result.whole_solves = transfers.whole_count();
  return result;
}

// Each transfer the only call of a rank of its own, so that a System says which are alike.
void give_ranks(fold::System& system) {
  system.roles = {std::make_shared<lower::Program>()};
  for (size_t i = 0; i < system.variables.size(); ++i) {
    fold::Rank& rank = system.ranks.emplace_back();
    rank.communicator_of_slot = {int32_t(i)};
    fold::Communicator& communicator = system.communicators.emplace_back();
    communicator.members = {int32_t(i)};
    system.variables[i].communicator = int32_t(i);
    system.plan.push_back({{int32_t(i)}});
  }
}

Result run_folded(const std::shared_ptr<const fold::System>& system) {
  const fold::Cohorts cohorts = fold::fold_system(system);
  Result result = run(*cohorts.system);
  std::vector<int64_t> ends(system->variables.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto& plan = cohorts.system->plan[size_t(cohorts.class_of_communicator[i])];
    ends[i] = result.ends[size_t(plan[0][0])];
  }
  result.ends = std::move(ends);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: network ROUTES BYTES BANDWIDTH_BPS ENDS folded|each\n");
    return 2;
  }
  const bool is_folded = argv[5] == std::string("folded");
  auto read = std::make_shared<fold::System>(
      read_system(argv[1], std::atoll(argv[2]), std::atoll(argv[3])));
  if (is_folded) give_ranks(*read);
  const std::shared_ptr<const fold::System> system = std::move(read);
  const double began = cpu_seconds();
  const Result result = is_folded ? run_folded(system) : run(*system);
  const double seconds = cpu_seconds() - began;

  std::printf("%.6f %lld %lld\n", seconds, static_cast<long long>(result.solves),
              static_cast<long long>(result.whole_solves));
  std::ofstream file(argv[4]);
  for (const int64_t end : result.ends) file << end << '\n';
  return 0;
}
