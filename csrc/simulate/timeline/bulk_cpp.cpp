// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/systems/cpp.h"

#include "simulate/timeline/bulk_cpu.h"
#include "simulate/timeline/timed_lanes.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_cpp_lanes(const fold::System& system, bool keep_times) {
  return bulk_cpp::make_lanes(system, keep_times);
}

}  // namespace trnsim::simulate
