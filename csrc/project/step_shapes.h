// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Steps of a script that ask for different work: DDP's second step lays its buckets anew, a GAN
// trains its networks in turn, batches have other lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "project/projection.h"

namespace trnsim::project {

struct StepShape {
  workload::Step first;   // the first step of this shape
  int64_t index = 0;      // what --step takes for it
  int64_t count = 0;      // whole steps of this shape
  bool is_first = false;  // all of them create an optimizer's state
  bool has_measured = false;
};
// Whole steps by what they ask for: ops, calls and host reads in order, with their signatures. The
// script's last step counts only when it is the measured one: it ends before the next batch.
std::vector<StepShape> step_shapes(const workload::Workload& workload,
                                   const workload::Step& measured);

// What a step that ends with the script lacks of what the step before runs after its optimizer (its
// next batch made on the device, logging): that many ops and calls; 0 for every other step.
int64_t work_missing_at_end(const workload::Workload& workload, const workload::Step& step);

// How often the optimizer that stepped most did so in the step.
int64_t most_optimizer_steps(const workload::Workload& workload, const workload::Step& step);

}  // namespace trnsim::project
