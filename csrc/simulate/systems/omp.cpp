// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// As cpp.cpp, on Thrust's OMP system; one thread with a compiler without OpenMP.

// Thrust's types have one name on every system: without a namespace of its own, the linker would
// take one system's for all.
#define THRUST_CUB_WRAPPED_NAMESPACE trnsim_thrust_omp
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#if defined(_OPENMP)
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_OMP
#else
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#endif
#define TRNSIM_BULK_TARGET bulk_omp

#include "simulate/network/dp_solver.h"
#include "simulate/timeline/bulk_cpu.h"
#include "simulate/timeline/timed_lanes.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_omp_lanes(const fold::System& system, bool keep_times) {
  return bulk_omp::make_lanes(system, keep_times);
}

std::unique_ptr<WholeSolver> make_omp_dp_solver() { return std::make_unique<bulk_omp::Dp>(); }

}  // namespace trnsim::simulate
