// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/systems/omp.h"

#include "simulate/timeline/bulk_cpu.h"
#include "simulate/timeline/timed_lanes.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_omp_lanes(const fold::System& system, bool keep_times) {
  return std::make_unique<bulk_omp::BulkLanes>(system, keep_times);
}

std::unique_ptr<Lanes> make_timed_omp_lanes(const fold::System& system, bool keep_times) {
  return std::make_unique<bulk_omp::TimedLanes>(system, keep_times);
}

}  // namespace trnsim::simulate
