// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Scenarios: one step under many circumstances (seeds of jitter, slow chips, links that die), as
// lanes of one run. A tile's lanes are ranks of several scenarios where one has too few to fill it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "simulate/timeline.h"

namespace trnsim::simulate {

// The makespan of each, in ps, which is what simulate_step says of it alone. The Systems have the
// same Programs. They run in batches of about kLanesAtOnce ranks; those with more ranks than a tile
// has lanes fill their tiles by themselves and run one by one. An error is that of the first
// scenario of its batch that has one, in its own words. options: keep_times and exchange are not
// for this.
inline constexpr int64_t kLanesAtOnce = 1 << 13;
std::vector<int64_t> simulate_scenarios(
    const std::vector<std::shared_ptr<const fold::System>>& scenarios,
    const SimulateOptions& options);

// Those of with_jitter (jitter.h) for each seed, made a batch at a time.
std::vector<int64_t> simulate_seeds(const fold::System& system, const std::vector<uint64_t>& seeds,
                                    int32_t spread, const SimulateOptions& options);

}  // namespace trnsim::simulate
