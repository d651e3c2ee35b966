// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Proof, in integers and without tolerance, that rates are the allocation of problem.h.
//
// With M_l the largest rate on link l and load_l = sum of w_lf r_f:
//   (i)  load_l less the weight of the flows at M_l is below C_l   (one level lower it was not
//   full) (ii) each flow has a link with load_l >= C_l on which its rate is M_l
// (i) and (ii) together hold for the allocation and for nothing else. A link of capacity 0 carries
// rate 0 only, and (i) is not asked of it: there is no level below 0. O(uses).
#pragma once

#include <string>
#include <vector>

#include "simulate/network/problem.h"

namespace trnsim::simulate {

// Empty when certified, else which condition fails and where.
std::string find_violation(const Problem& problem, const std::vector<int64_t>& rates);

}  // namespace trnsim::simulate
