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

#ifndef TRNSIM_WITH_CUDA
std::unique_ptr<WholeSolver> make_cuda_dp_solver() {
  throw Error(ErrorKind::simulate, "this build has no CUDA", "build with TRNSIM_CUDA=on");
}
#endif

#ifndef TRNSIM_WITH_TBB
std::unique_ptr<WholeSolver> make_tbb_dp_solver() {
  throw Error(ErrorKind::simulate, "this build has no TBB", "install libtbb-dev and build again");
}
#endif

std::unique_ptr<WholeSolver> make_dp_solver(Backend backend) {
  switch (backend) {
    case Backend::cpp:
      return make_cpp_dp_solver();
    case Backend::omp:
      return make_omp_dp_solver();
    case Backend::tbb:
      return make_tbb_dp_solver();
    case Backend::automatic:
      break;
    case Backend::cuda:
      return make_cuda_dp_solver();
  }
  TRN_ASSERT(false, "a backend is chosen before");
  return nullptr;
}

}  // namespace trnsim::simulate
