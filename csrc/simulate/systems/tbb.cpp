// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// As cpp.cpp, on Thrust's TBB system.
#ifdef TRNSIM_WITH_TBB

// Thrust's types have one name on every system: without a namespace of its own, the linker would
// take one system's for all.
#define THRUST_CUB_WRAPPED_NAMESPACE trnsim_thrust_tbb
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_TBB
#define TRNSIM_BULK_TARGET bulk_tbb

#include "simulate/network/dp_solver.h"
#include "simulate/timeline/bulk_cpu.h"
#include "simulate/timeline/timed_lanes.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_tbb_lanes(const fold::System& system, bool keep_times) {
  return bulk_tbb::make_lanes(system, keep_times);
}

std::unique_ptr<WholeSolver> make_tbb_dp_solver() { return std::make_unique<bulk_tbb::Dp>(); }

}  // namespace trnsim::simulate
#endif
