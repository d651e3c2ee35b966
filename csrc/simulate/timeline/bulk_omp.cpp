// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#if defined(_OPENMP)
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_OMP
#else
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP  // a compiler without OpenMP: one thread
#endif
#define TRNSIM_BULK_TARGET bulk_omp
#include "simulate/timeline/bulk_cpu.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_omp_lanes(const fold::System& system, bool keep_times) {
  return std::make_unique<bulk_omp::BulkLanes>(system, keep_times);
}

}  // namespace trnsim::simulate
