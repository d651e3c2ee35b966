// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Rates: what the step achieves per second, per dollar and per joule. Doubles are fine here: they
// are ratios of exact sums, for printing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "project/gradient_flow.h"
#include "project/projection.h"
#include "project/variants.h"

namespace trnsim::project {

// model_flops (128-bit sum over ops and ranks), mfu and mfu_causal against the published dense peak
// of Program::peak_dtype on the chips in use. Null with a line in guesses when there is no FLOP or
// no such peak.
void add_flops(const fold::System& system, const machine::Machine& machine, Projection& projection);

// How many ranks work on different samples: 1 for one rank; of the ranks that run alike
// (`replicas`, or those of the role) those over which the gradients are reduced (`flow`, of the
// role) and that do not have parts of the same sequences, or all where nobody sends activations to
// others; where the step does not show it, the product of the groups that are named for data
// (group_names.h), "dp" alone where there is one. Otherwise null, with the reason.
std::optional<int64_t> data_parallel_degree(const CaseRole& role, const GradientFlow& flow,
                                            int64_t replicas, std::vector<lower::Guess>& guesses);

struct StepTotals {  // of all ranks, where the user gives them; -1: counted
  int64_t samples = -1, tokens = -1;
};

// tokens_per_s and samples_per_s over all ranks. Ranks of context parallelism have tokens of their
// own, of the same samples. Null, with the reason, where ranks that embed tokens send each other
// messages, unless the group of context parallelism is called so.
void add_throughput(const Case& of, const StepTotals& given, Projection& projection);

// cost = chips_used * price * step, energy = chips_used * power * step; null where unknown.
void add_cost(const machine::Machine& machine, Projection& projection);

// Of a workload::StorageKind, as users name it: "parameters", "activations".
const char* memory_kind_name(size_t storage_kind);

// Peak by the caching-allocator model of each role; of the one that takes most by kind, and whether
// it fits a rank. What copies to the host still read is held (held.h).
void add_memory(const Case& of, const machine::Machine& machine, const Simulated& simulated,
                Projection& projection);

}  // namespace trnsim::project
