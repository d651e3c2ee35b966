// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Stack: the software that a job runs under, as the figures `stack.*` say. A machine file has none;
// a stack sheet (trnsim/machine/stacks) lays them over it. All may be left out.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/units.h"

namespace trnsim::machine {

// How ops become kernels: each its own, or pointwise ops and rows joined to what they read.
enum class Level : uint8_t { unstated, eager, fused };

inline constexpr std::array<const char*, 6> kStackFactors = {"gemm_factor",      "float8_factor",
                                                             "attention_factor", "grouped_factor",
                                                             "link_factor",      "network_factor"};

struct Stack {
  std::string name;
  Level level = Level::unstated;  // unstated: as the record says, or the machine's own
  // What is left of the chip's own rates inside a training step: of matrix products, of those in 8
  // bits, of attention; and, beside the first two, of products of which one op has many, as the
  // experts' are.
  Rational gemm_factor{1, 1}, float8_factor{1, 1}, attention_factor{1, 1}, grouped_factor{1, 1};
  // How often the host launches something for each product of an op of many; 0: once for all.
  Rational grouped_launches{0, 1};
  // Whether parameters are copied out of what an all-gather gives, and gradients into what a
  // reduce-scatter takes, as torch's FSDP does; XLA's are in place.
  bool copies_parameters = true;
  // Of the rate of links inside of a pod or server, and of those between them. More than 1
  // is what a step hides (line_rate.h).
  Rational link_factor{1, 1}, network_factor{1, 1};
  // What nine in ten published steps stay within of ours, as a logarithm: those under this software
  // on chips whose factors were fitted, or else on machines that never were. 0: not known.
  Rational error{0, 1}, error_of_other_machines{0, 1};
};

class Reader;
Stack read_stack(Reader& reader);

}  // namespace trnsim::machine
