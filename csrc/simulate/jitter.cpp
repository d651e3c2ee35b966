// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/jitter.h"

#include <algorithm>
#include <bit>
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

int32_t normal_factor(uint64_t seed, int32_t chip, int32_t sigma) {
  constexpr int kWords = 16, kBits = 64 * kWords, kDeviation = 16;  // of the count: sqrt(kBits) / 2
  constexpr uint64_t kStream = 1 << 8;                              // no TaskKind
  TRN_CHECK(sigma >= 0 && sigma <= (1 << 16) / 10, simulate,
            "a jitter of standard deviation " + std::to_string(double(sigma) / (1 << 16)),
            "give one from 0 to 0.1");
  const uint64_t first = uint64_t(uint32_t(chip)) * (kWords + 1);
  int64_t ones = 0;
  for (int word = 0; word < kWords; ++word) {
    ones += std::popcount(random_bits(seed, kStream, first + uint64_t(word)));
  }
  // Between whole counts evenly, or there would be sixteen values to a standard deviation.
  const auto between = int64_t(pick(random_bits(seed, kStream, first + kWords), 1 << 16));
  const int64_t off = ((ones - kBits / 2) << 16) + between - (1 << 15);
  const int64_t scaled = (sigma * off / kDeviation + (1 << 15)) >> 16;
  return int32_t(std::max<int64_t>((1 << 16) + scaled, 1 << 14));
}

std::shared_ptr<fold::System> with_chip_factors(const fold::System& system,
                                                const std::function<int32_t(int32_t)>& factor_of) {
  fold::check_unfolded(system);
  auto result = std::make_shared<fold::System>(system);
  for (fold::Rank& rank : result->ranks) {
    const int32_t times = factor_of(rank.chip);
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

std::shared_ptr<fold::System> with_jitter(const fold::System& system, uint64_t seed,
                                          int32_t spread) {
  return with_chip_factors(system, [&](int32_t chip) {
    return chip_factor(seed, chip, lower::TaskKind::compute, spread);
  });
}

}  // namespace trnsim::simulate
