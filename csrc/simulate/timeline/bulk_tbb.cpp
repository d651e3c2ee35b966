// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#ifdef TRNSIM_WITH_TBB
#include "simulate/systems/tbb.h"

#include "simulate/timeline/bulk_cpu.h"
#include "simulate/timeline/timed_lanes.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_tbb_lanes(const fold::System& system, bool keep_times) {
  return bulk_tbb::make_lanes(system, keep_times);
}

}  // namespace trnsim::simulate
#endif
