// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#define TRNSIM_BULK_TARGET bulk_cpp
#include "simulate/timeline/bulk_cpu.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_cpp_lanes(const fold::System& system, bool keep_times) {
  return std::make_unique<bulk_cpp::BulkLanes>(system, keep_times);
}

}  // namespace trnsim::simulate
