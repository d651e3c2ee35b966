// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/network/solver.h"

namespace trnsim::simulate {

void WholeSolver::solve(Network& network, std::vector<int32_t>& changed) {
  const std::vector<int64_t>& rates = allocate(network);
  for (size_t i = 0; i < rates.size(); ++i) {
    const int32_t flow = network.active()[i];
    if (network.rate(flow) == rates[i]) continue;
    network.set_rate(flow, rates[i]);
    changed.push_back(flow);
  }
  network.forget_changes();
  ++whole_count_;
}

}  // namespace trnsim::simulate
