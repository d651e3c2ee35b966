// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/jitter.h"

#include <limits>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "simulate/timeline/lanes.h"

namespace trnsim::simulate {

int32_t chip_factor(uint64_t seed, int32_t chip, lower::TaskKind kind, int32_t spread) {
  TRN_CHECK(spread >= 0 && spread < std::numeric_limits<int32_t>::max() - (1 << 16), simulate,
            "a jitter of " + std::to_string(spread) + " / 65536", "give one of at least 0");
  const uint64_t bits = random_bits(seed, uint64_t(kind), uint64_t(chip));
  return (1 << 16) + int32_t(pick(bits, uint64_t(spread) + 1));
}

std::shared_ptr<fold::System> with_jitter(const fold::System& system, uint64_t seed,
                                          int32_t spread) {
  fold::check_unfolded(system);
  auto result = std::make_shared<fold::System>(system);
  for (fold::Rank& rank : result->ranks) {
    const int32_t times = chip_factor(seed, rank.chip, lower::TaskKind::compute, spread);
    const auto scale = [&](int32_t& factor) {
      const int64_t scaled = scale_duration(factor, times);
      TRN_CHECK(scaled <= std::numeric_limits<int32_t>::max(), simulate,
                "chip " + std::to_string(rank.chip) + " is " + std::to_string(scaled >> 16) +
                    " times as slow as it should be",
                "give a smaller jitter or factor");
      factor = int32_t(scaled);
    };
    scale(rank.factor);
    for (fold::FactorChange& change : rank.changes) scale(change.factor);
  }
  return result;
}

}  // namespace trnsim::simulate
