// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What one solve sees: the links' capacities and the flows that are in the network.
//
// The allocation (DESIGN 3.4), in whole numbers. Flow f has rate r_f and weight w_lf on link l of
// capacity C_l.
//   H_l(u) = sum over flows on l of w_lf * min(r_f, u)   the load of l if all stopped at level u
//   b_l    = the smallest whole u with H_l(u) >= C_l     the level at which l closes
//   r_f    = the smallest b_l over the links of f
// In words: all rates rise together, one unit at a time; a link closes at the first level where its
// load reaches its capacity, and everything on it stops there. Unique, whatever the order: if r and
// r' both satisfy it, let s be the smallest value at which they differ, r_f = s < r'_f. Up to s
// they agree everywhere, so the link that stopped f at s in r stops it in r' too.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "fold/system.h"

namespace trnsim::simulate {

struct Problem {
  const std::vector<int128>* capacities = nullptr;  // by link; rate * 2^16
  const std::vector<fold::Variable>* variables = nullptr;
  std::vector<int32_t> flows;  // active variables, ascending
};

inline constexpr int64_t kNoRate = -1;  // not decided yet

// The definition, literally: H_l by its sum, b_l by bisection. O(links x flows x log rate). The
// normative solver. Rates come back in the order of problem.flows.
std::vector<int64_t> solve_reference(const Problem& problem);

// The same allocation by closing levels in ascending order with
//   share_l = max(largest rate already frozen on l, ceil(rest_l / W_l)),
// rest = capacity less frozen load, W = weight of the flows that still rise. The max is what makes
// ties free of order. O(uses x levels).
std::vector<int64_t> solve_levels(const Problem& problem);

}  // namespace trnsim::simulate
