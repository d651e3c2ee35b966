// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The region of a graph that the script captured and replays. It is launched as a whole, but no
// compiler has seen it: unlike other regions it fuses nothing.
#pragma once

#include "workload/workload.h"

namespace trnsim::workload {

inline constexpr const char* kCapturedGraph = "captured graph";

inline bool is_captured_graph(const Workload& workload, const Record& record) {
  return record.region >= 0 && workload.regions[size_t(record.region)] == kCapturedGraph;
}

}  // namespace trnsim::workload
