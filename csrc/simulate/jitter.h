// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Jitter: chips of one kind that are not equally fast. A chip's factor comes from (seed, chip, task
// kind) alone, so a scenario is its seed, and every rank of a chip has the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "fold/system.h"

namespace trnsim::simulate {

// In 2^-16: 1 and up to `spread` more, evenly. The chip that draws 0 is one as it should be.
int32_t chip_factor(uint64_t seed, int32_t chip, lower::TaskKind kind, int32_t spread);

// In 2^-16: normal, of mean 1 and standard deviation sigma / 2^16, at least 1/4. By counting 1,024
// random bits, in whole numbers, so that it is the same everywhere: the tail at four standard
// deviations has 2 % less than that of a normal, which moves the largest of 65,536 by a hundredth
// of one. Throws SimulateError for sigma below 0 or above a tenth.
int32_t normal_factor(uint64_t seed, int32_t chip, int32_t sigma);

// A copy in which every rank's factor, and what it changes to in mid-run, is times its chip's.
// Throws as with_jitter does.
std::shared_ptr<fold::System> with_chip_factors(const fold::System& system,
                                                const std::function<int32_t(int32_t)>& factor_of);

// A copy in which every rank's factor, and what it changes to in mid-run, is times its chip's for
// TaskKind::compute. Throws SimulateError where a factor leaves 31 bits, for spread below 0, and
// for a folded System, in which one draw would be that of many chips.
std::shared_ptr<fold::System> with_jitter(const fold::System& system, uint64_t seed,
                                          int32_t spread);

}  // namespace trnsim::simulate
