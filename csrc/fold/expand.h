// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// From a phase of a call template to its variable: who sends to whom, over which links.
//
// Every send of a phase carries the same `bytes`, so a link's load is a count of sends. The link
// with the largest count/capacity is critical (ties: the smallest count). Its weight is 2^16, and
// progress is bytes on it; another link's weight is floor(2^16 count / critical count), at least 1.
// Cost: one route per send.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "fold/system.h"

namespace trnsim::fold {

struct Footprint {
  std::vector<std::pair<int32_t, int64_t>> sends;  // {link, count}, ascending by link
  int64_t hops = 0;                                // the longest route
};

struct Geometry {
  const machine::Topology& topology;
  const machine::Placement& placement;
  std::array<int64_t, 3> extents;  // of the used torus, in one pod
};

// `root`: index in members of the root, for one_to_all and all_to_one.
Footprint trace_phase(const lower::PhaseTemplate& phase, const std::vector<int32_t>& members,
                      int64_t root, const Geometry& geometry);

// Bytes, weights and latency of the phase; communicator, call and phase index are the caller's.
Variable weigh_phase(const lower::PhaseTemplate& phase, const Footprint& footprint,
                     const std::vector<LinkInfo>& links);

}  // namespace trnsim::fold
