// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Folded is unfolded where calls slow the engines of whole chips.
#include <gtest/gtest.h>

#include <algorithm>

#include "fold/refine.h"
#include "jobs.h"
#include "same_times.h"
#include "simulate/scenes.h"
#include "simulate/timeline.h"
#include "training.h"

namespace trnsim::fold {
namespace {

using simulate::Timeline;

Timeline run(const std::shared_ptr<const System>& system,
             simulate::Engine engine = simulate::Engine::bulk) {
  simulate::SimulateOptions options;
  options.engine = engine;
  return simulate_step(system, options);
}

// So many neighbours on a chip. Those of the last one may be fewer.
std::shared_ptr<const System> on_chips_of(const System& system, int32_t ranks_per_chip) {
  System result = system;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    result.ranks[rank].chip = int32_t(rank) / ranks_per_chip;
  }
  return std::make_shared<const System>(std::move(result));
}

TEST(FoldedInterference, IsUnfoldedToTheLastPicosecond) {
  int64_t ranks = 0, classes = 0, moved = 0;
  for (uint64_t seed = 0; seed < scenes::seeds(1000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto placed = on_chips_of(*jobs::random_job(seed).system, int32_t(1 + seed % 4));
    const auto system = scenes::with_interference(*placed, seed);
    const Cohorts cohorts = fold_system(system);
    check_fold(*system, cohorts);
    const Timeline unfolded = run(system);
    const bool by_reference = seed % 8 == 0 && cohorts.system->ranks.size() < 32;
    expect_same_tasks(
        unfolded,
        run(cohorts.system, by_reference ? simulate::Engine::reference : simulate::Engine::bulk),
        cohorts);
    if (HasFailure()) return;
    ranks += int64_t(system->ranks.size());
    classes += int64_t(cohorts.system->ranks.size());
    moved += unfolded.hash != run(placed).hash;
  }
  EXPECT_LT(classes * 2, ranks);
  EXPECT_GT(moved * 4, int64_t(scenes::seeds(1000)) * 3);
}

TEST(FoldedInterference, ARandomSystemAndItsCopyFoldIntoOne) {
  for (uint64_t seed = 0; seed < scenes::seeds(1000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto single = scenes::with_interference(*scenes::random_system(seed), seed);
    const auto system = scenes::twice(*single);
    const Cohorts cohorts = fold_system(system);
    EXPECT_LE(cohorts.system->ranks.size(), single->ranks.size());
    expect_same_tasks(run(system), run(cohorts.system), cohorts);
    if (HasFailure()) return;
  }
}

TEST(FoldedInterference, CollidingHashesAndFoldingTwiceChangeNothing) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto placed = on_chips_of(*jobs::random_job(seed).system, int32_t(1 + seed % 4));
    const auto system = scenes::with_interference(*placed, seed);
    const Cohorts exact = fold_system(system), coarse = fold_system(system, 1, true);
    EXPECT_EQ(exact.class_of_rank, coarse.class_of_rank) << seed;
    EXPECT_EQ(fold_system(exact.system).system, exact.system) << seed;
  }
}

// Ranks alike but for whom they share their chip with.
TEST(FoldedInterference, NeighboursOnAChipTellRanksApart) {
  scenes::ProgramBuilder quiet, loud;
  for (auto* builder : {&quiet, &loud}) {
    builder->task(builder->queue(lower::QueueKind::tensor, 0), 6000);
    builder->group("pair");
  }
  loud.call(loud.queue(lower::QueueKind::collective, 0),
            loud.call_template(scenes::all_reduce(0, 4)));
  auto system = std::make_shared<System>();
  system->roles = {quiet.build(), loud.build()};
  system->links = {{"link", 1'000'000'000 * int64_t(1024)}};
  // Chips: {quiet, loud}, {quiet, loud}, {quiet, quiet}.
  for (const int32_t role : {0, 1, 0, 1, 0, 0}) scenes::add_rank(*system, role);
  for (size_t rank = 0; rank < 6; ++rank) system->ranks[rank].chip = int32_t(rank) / 2;
  scenes::add_variable(*system, scenes::add_group(*system, 0, {1, 3}, "pair"), 0, 0, 4,
                       {{0, kWeightOne}});
  EXPECT_EQ(fold_system(system).class_of_rank, (std::vector<int32_t>{0, 1, 0, 1, 0, 0}));
  system->speeds[0] = 1 << 15;
  const Cohorts cohorts = fold_system(system);
  EXPECT_EQ(cohorts.class_of_rank, (std::vector<int32_t>{0, 1, 0, 1, 2, 2}));
  EXPECT_EQ(cohorts.system->ranks[0].chip, cohorts.system->ranks[1].chip);
  EXPECT_NE(cohorts.system->ranks[0].chip, cohorts.system->ranks[2].chip);
  const Timeline unfolded = run(system);
  EXPECT_EQ(unfolded.ends_ps[0], 8000);
  EXPECT_EQ(unfolded.ends_ps.back(), 6000);
  expect_same_tasks(unfolded, run(cohorts.system), cohorts);

  Cohorts bad = cohorts;
  auto quotient = std::make_shared<System>(*cohorts.system);
  quotient->ranks[2].chip = quotient->ranks[0].chip;
  bad.system = quotient;
  EXPECT_EQ(find_inequity(*system, bad), "what shares the chip of rank 0");
  quotient->speeds[0] += 1;
  EXPECT_EQ(find_inequity(*system, bad), "the speeds of engines");
}

// A Mould made without interference serves machines with it, and the other way round.
TEST(FoldedInterference, OneMouldServesEverySpeed) {
  int64_t moved = 0;
  for (uint64_t seed = 0; seed < scenes::seeds(200); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Training training = random_training(seed), other = random_training(seed);
    (seed % 2 == 0 ? other : training).machine.chip.interference[0] = 20000 + int32_t(seed);
    const Job job = training.job(), other_job = other.job();
    const Mould mould(job);
    ASSERT_TRUE(mould.fits(other_job));
    std::vector<uint64_t> hashes;
    for (const Job* each : {&job, &other_job}) {
      const auto every = std::make_shared<const System>(make_system(*each));
      EXPECT_EQ(every->speeds, each->machine.chip.interference);
      const Cohorts cast = mould.cast(*each), full = fold_system(every, 64, false);
      EXPECT_EQ(cast.class_of_rank, full.class_of_rank);
      const Timeline unfolded = run(every);
      expect_same_tasks(unfolded, run(cast.system), cast);
      if (HasFailure()) return;
      hashes.push_back(unfolded.hash);
    }
    moved += hashes[0] != hashes[1];
  }
  EXPECT_GT(moved * 10, int64_t(scenes::seeds(200)) * 9);
}

}  // namespace
}  // namespace trnsim::fold
