// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Over how many ranks gradients are reduced, as the records show it: a reduction adds its group to
// those of the storage, ops that only move, add or scale pass them on, all others begin anew, and
// the sizes of the groups of what the optimizer then reads are multiplied. So a reduction of
// activations, as tensor parallelism has it, ends in the next matrix multiplication. Of a buffer of
// several gradients, what holds for most of it holds. What hooks do to gradients that autograd has
// finished with (DDP's, which compress them to factors, or gather what they have picked) passes
// everything on, and a gather there counts as a reduction. Groups that are named for tensor
// parallelism or pipelines (group_names.h) never count. What the optimizer's own calls reduce
// counts for the gradients that it has moved, added or scaled there.
//
// Ranks that exchange keys, values or queries, as an attention reads them, hold parts of the same
// sequences: context parallelism, which reduces its gradients over these ranks, too.
#pragma once

#include <cstdint>
#include <optional>

#include "workload/workload.h"

namespace trnsim::project {

struct GradientFlow {
  // The number of ranks over which most bytes of the gradients are reduced in the step; 1 where
  // they are not, though ranks exchange something else in it (tensor parallelism). Null where the
  // step shows neither.
  std::optional<int64_t> degree;
  // Of them, how many have parts of the same sequences: the groups that attention shows, else the
  // one that is called cp; 1 without.
  int64_t context = 1;
  // Activations go to ranks over which gradients are not reduced.
  bool exchanges_beyond = false;
};
// Cost: one pass over the step's records.
GradientFlow follow_gradients(const workload::Workload& workload, const workload::Step& step);

// Ranks that share a sequence: the size of the group that is called cp and nothing else; 1 without.
int64_t context_degree(const workload::Workload& workload);

}  // namespace trnsim::project
