// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "scenes.h"
#include "simulate/jitter.h"
#include "simulate/timeline.h"

namespace trnsim::simulate {
namespace {

using lower::TaskKind;

constexpr int32_t kChips = 20'000, kSpread = 3277;

std::vector<int32_t> draw(int threads, uint64_t seed, TaskKind kind = TaskKind::compute) {
  std::vector<int32_t> factors(kChips);
#pragma omp parallel for schedule(dynamic, 7) num_threads(threads)
  for (int32_t i = 0; i < kChips; ++i) {
    const int32_t chip = kChips - 1 - i;
    factors[size_t(chip)] = chip_factor(seed, chip, kind, kSpread);
  }
  return factors;
}

TEST(Jitter, IsTheSameOnAnyNumberOfThreads) {
  const std::vector<int32_t> one = draw(1, 7);
  for (const int threads : {2, 3, 8}) EXPECT_EQ(draw(threads, 7), one);
}

TEST(Jitter, IsEvenAndInRange) {
  std::vector<int32_t> factors = draw(1, 7);
  int64_t sum = 0;
  for (const int32_t factor : factors) {
    ASSERT_GE(factor, 1 << 16);
    ASSERT_LE(factor, (1 << 16) + kSpread);
    sum += factor - (1 << 16);
  }
  EXPECT_NEAR(double(sum) / kChips, kSpread / 2.0, kSpread * 0.01);
  std::sort(factors.begin(), factors.end());
  EXPECT_LT(factors.front(), (1 << 16) + 5);
  EXPECT_GT(factors.back(), (1 << 16) + kSpread - 5);
  EXPECT_EQ(chip_factor(7, 3, TaskKind::compute, 0), 1 << 16);
  EXPECT_THROW(chip_factor(7, 3, TaskKind::compute, -1), Error);
}

TEST(Jitter, SeedsAndKindsDiffer) {
  const std::vector<int32_t> one = draw(1, 7);
  const auto shared = [&](const std::vector<int32_t>& other) {
    int64_t same = 0;
    for (size_t i = 0; i < one.size(); ++i) same += one[i] == other[i];
    return same;
  };
  EXPECT_LT(shared(draw(1, 8)), kChips / 500);  // chance: one in 3,278
  EXPECT_LT(shared(draw(1, 7, TaskKind::load)), kChips / 500);
}

TEST(Jitter, RanksOfAChipShareItAndBothEnginesAgree) {
  const auto system = scenes::throttled(*scenes::many_ranks(3, 200), 3);
  fold::System pairs = *system;
  for (auto& rank : pairs.ranks) rank.chip /= 2;
  const auto jittered = with_jitter(pairs, 11, kSpread);
  for (size_t rank = 0; rank + 1 < pairs.ranks.size(); rank += 2) {
    const int64_t times = chip_factor(11, pairs.ranks[rank].chip, TaskKind::compute, kSpread);
    for (const size_t i : {rank, rank + 1}) {
      EXPECT_EQ(jittered->ranks[i].factor, (pairs.ranks[i].factor * times + 32768) >> 16);
    }
  }
  SimulateOptions options;
  const uint64_t bulk = simulate_step(jittered, options).hash;
  options.engine = Engine::reference;
  EXPECT_EQ(simulate_step(jittered, options).hash, bulk);
}

// One of its ranks stands for several of the job.
TEST(Changes, OfAFoldedSystemAreRefused) {
  fold::System system = *scenes::many_ranks(3, 200);
  EXPECT_NO_THROW(with_jitter(system, 1, kSpread));
  system.ranks[7].count = 4;
  const auto said = [&](const auto& change) -> std::string {
    try {
      change();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string why = "rank 7 of a folded System stands for 4 ranks of the job";
  EXPECT_TRUE(said([&] { with_jitter(system, 1, kSpread); }).starts_with(why));
  EXPECT_TRUE(said([&] { fold::with_rank(system, 7, 1 << 17, 0); }).starts_with(why));
  EXPECT_TRUE(said([&] { fold::with_factor_changes(system, 7, {}); }).starts_with(why));
  EXPECT_TRUE(said([&] { fold::with_link_changes(system, 0, {}); }).starts_with(why));
  EXPECT_EQ(said([&] { fold::with_rank(system, 6, 1 << 17, 0); }), "");
}

TEST(Random, PicksEveryNumberAndNothingBeyond) {
  std::vector<int> counts(10, 0);
  for (uint64_t i = 0; i < 10'000; ++i) ++counts[size_t(pick(random_bits(1, 2, i), 10))];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(pick(~uint64_t(0), 10), 9u);
  EXPECT_EQ(pick(0, 10), 0u);
}

}  // namespace
}  // namespace trnsim::simulate
