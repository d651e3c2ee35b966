// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Proof, in integers and without tolerance, that a network's rates are its allocation.
//
// With M_l the largest rate on link l and load_l = sum of w_lf r_f:
//   (i)   load_l less the weight of the flows at M_l is below C_l: one level lower it was not full
//   (ii)  each flow has a link with load_l >= C_l on which its rate is M_l
// (i) and (ii) together hold for the allocation and for nothing else. A link of capacity 0 carries
// rate 0 only, and (i) is not asked of it: there is no level below 0.
#pragma once

#include <limits>
#include <string>

#include "simulate/network/network.h"

namespace trnsim::simulate {

inline constexpr int64_t kOpen =
    std::numeric_limits<int64_t>::max();  // closing level of a link that does not close

// The level at which the link closes by the flows' rates: M_l when load_l >= C_l, else kOpen. -1
// when (i) fails. O(members).
int64_t closing_level(const Network& network, int32_t link);

// Empty when certified, else which condition fails and where. O(uses of active flows).
std::string find_violation(const Network& network);

}  // namespace trnsim::simulate
