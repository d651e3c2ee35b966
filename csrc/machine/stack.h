// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Stack: the software that a job runs under, as the figures `stack.*` say. A machine file has none;
// a stack sheet (trnsim/machine/stacks) lays them over it. All may be left out.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"

namespace trnsim::machine {

// How ops become kernels: each its own, or pointwise ops and rows joined to what they read.
enum class Level : uint8_t { unstated, eager, fused };

struct Stack {
  std::string name;
  Level level = Level::unstated;  // unstated: as the record says, or the machine's own
  // What is left of the chip's own rates inside a training step: of matrix products, of those in 8
  // bits, and of attention.
  Rational gemm_factor{1, 1}, float8_factor{1, 1}, attention_factor{1, 1};
};

class Reader;
Stack read_stack(Reader& reader);

}  // namespace trnsim::machine
