// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The bulk lanes and the rounds of the network on Thrust's CPP system: one thread.

// Thrust's types have one name on every system: without a namespace of its own, the linker would
// take one system's for all.
#define THRUST_CUB_WRAPPED_NAMESPACE trnsim_thrust_cpp
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#define TRNSIM_BULK_TARGET bulk_cpp

#include "simulate/network/dp_solver.h"
#include "simulate/timeline/bulk_cpu.h"
#include "simulate/timeline/timed_lanes.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_cpp_lanes(const fold::System& system, bool keep_times) {
  return bulk_cpp::make_lanes(system, keep_times);
}

std::unique_ptr<WholeSolver> make_cpp_dp_solver() { return std::make_unique<bulk_cpp::Dp>(); }

}  // namespace trnsim::simulate
