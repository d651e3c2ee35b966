// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Sensitivity: how far single figures of the machine move the step, each at its own bounds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "project/projection.h"
#include "project/variants.h"

namespace trnsim::project {

struct FigureEffect {
  InputFigure figure;
  int64_t faster_ps = 0, slower_ps = 0;  // the step with this figure alone moved
};

// Of kinds of figures that move the step by less than this share, none is moved alone.
inline constexpr double kLeastEffect = 0.005;

// The figures that move the step, in the machine's order: those of the kinds that matter
// (Projection::inputs, without which there are none) are moved one by one, each twice, and
// simulated from lowering on; of a kind of more than four first a half at a time, and what leaves
// the step as it is is not taken apart. `progress` may be null. Throws what project_step throws.
std::vector<FigureEffect> figure_effects(const Run& run, std::shared_ptr<Progress> progress);

}  // namespace trnsim::project
