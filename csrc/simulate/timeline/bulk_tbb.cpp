// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#ifdef TRNSIM_WITH_TBB
#include "simulate/systems/tbb.h"

#include "simulate/timeline/bulk_cpu.h"
#include "simulate/timeline/timed_lanes.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_tbb_lanes(const fold::System& system, bool keep_times) {
  return std::make_unique<bulk_tbb::BulkLanes>(system, keep_times);
}

std::unique_ptr<Lanes> make_timed_tbb_lanes(const fold::System& system, bool keep_times) {
  return std::make_unique<bulk_tbb::TimedLanes>(system, keep_times);
}

}  // namespace trnsim::simulate
#endif
