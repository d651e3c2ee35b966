// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Jitter: chips of one kind that are not equally fast. A chip's factor comes from (seed, chip, task
// kind) alone, so a scenario is its seed, and every rank of a chip has the same.
#pragma once

#include <cstdint>
#include <memory>

#include "fold/system.h"

namespace trnsim::simulate {

// In 2^-16: 1 and up to `spread` more, evenly. The chip that draws 0 is one as it should be.
int32_t chip_factor(uint64_t seed, int32_t chip, lower::TaskKind kind, int32_t spread);

// A copy in which every rank's factor, and what it changes to in mid-run, is times its chip's for
// TaskKind::compute. Throws SimulateError where a factor leaves 31 bits, for spread below 0, and
// for a folded System, in which one draw would be that of many chips.
std::shared_ptr<fold::System> with_jitter(const fold::System& system, uint64_t seed,
                                          int32_t spread);

}  // namespace trnsim::simulate
