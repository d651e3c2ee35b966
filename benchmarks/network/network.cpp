// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Transfers over given links, all started at time 0: the network half of a step, by itself.
//
//   network ROUTES BYTES BANDWIDTH_BPS ENDS
// ROUTES: the links of each transfer, one line a transfer. Writes each end in ps to ENDS; prints
// CPU seconds (reading the routes is not in them, building the network is), solves, and how many of
// them looked at the whole network.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

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
        system.links.push_back({"link", bandwidth_Bps * kRateUnitsPerBps, 0});
      }
    }
  }
  return system;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: network ROUTES BYTES BANDWIDTH_BPS ENDS\n");
    return 2;
  }
  const fold::System system = read_system(argv[1], std::atoll(argv[2]), std::atoll(argv[3]));
  std::vector<int64_t> ends(system.variables.size(), -1);

  const double began = cpu_seconds();
  simulate::Transfers transfers(
      system,
      std::make_unique<simulate::Repair>(simulate::make_heap_solver(), simulate::RepairLimits{}),
      false);
  for (size_t i = 0; i < ends.size(); ++i) transfers.begin(int64_t(i), {int32_t(i)}, 0);
  std::vector<int64_t> ended;
  for (int64_t now_ps; (now_ps = transfers.next_ps()) != simulate::kNever;) {
    ended.clear();
    transfers.process(now_ps, ended);
    for (const int64_t i : ended) ends[size_t(i)] = now_ps;
    transfers.solve(now_ps);
  }
  const double seconds = cpu_seconds() - began;

  std::printf("%.6f %lld %lld\n", seconds, static_cast<long long>(transfers.solve_count()),
              static_cast<long long>(transfers.whole_count()));
  std::ofstream file(argv[4]);
  for (const int64_t end : ends) file << end << '\n';
  return 0;
}
