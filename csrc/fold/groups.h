// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The process groups of a job, rank by rank, as communicators are made of them (job.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fold/job.h"

namespace trnsim::fold {

struct JobGroups {
  std::vector<std::vector<int32_t>> members;  // ranks of each group, in group order
  std::vector<std::string> names;             // of each: two of the same ranks are two groups
  // By rank and slot of its role's Program, an index in members; -1: no call is made on that slot.
  std::vector<std::vector<int32_t>> of_slot;
};

// Throws SimulateError when groups that are called on do not tile the ranks of their role.
JobGroups groups_of(const Job& job);

}  // namespace trnsim::fold
