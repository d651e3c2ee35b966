// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/systems/omp.h"

#include "simulate/timeline/bulk_cpu.h"
#include "simulate/timeline/timed_lanes.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_omp_lanes(const fold::System& system, bool keep_times) {
  return bulk_omp::make_lanes(system, keep_times);
}

}  // namespace trnsim::simulate
