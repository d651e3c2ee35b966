// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "fold/side_by_side.h"
#include "scenes.h"
#include "simulate/jitter.h"
#include "simulate/scenarios.h"
#include "simulate/timeline.h"

namespace trnsim::simulate {
namespace {

using Scenarios = std::vector<std::shared_ptr<const fold::System>>;

// One after the other, on the reference engine: the slow obvious way.
struct Alone {
  std::vector<int64_t> makespans_ps;
  uint64_t hash = 0;  // the sum of theirs
};
Alone one_by_one(const Scenarios& scenarios) {
  SimulateOptions options;
  options.engine = Engine::reference;
  Alone alone;
  for (const auto& scenario : scenarios) {
    const Timeline timeline = simulate_step(scenario, options);
    alone.makespans_ps.push_back(timeline.makespan_ps);
    alone.hash += timeline.hash;
  }
  return alone;
}

TEST(Scenarios, AreEachWhatTheyAreAlone) {
  for (uint64_t seed = 1; seed <= scenes::seeds(40); ++seed) {
    fold::System unfolded = *scenes::random_system(seed);
    for (fold::Rank& rank : unfolded.ranks) rank.count = 1;
    auto base = std::make_shared<const fold::System>(std::move(unfolded));
    if (seed % 4 == 1) base = scenes::with_interference(*base, seed);
    if (seed % 4 == 2) base = scenes::throttled(*base, seed);
    Scenarios scenarios{base};
    for (uint64_t draw = 1; draw <= 5; ++draw) scenarios.push_back(with_jitter(*base, draw, 9000));
    scenarios.push_back(fold::with_rank(*base, 0, 3 << 16, 1'000'000));
    if (!base->links.empty()) {
      const int64_t rate = base->links[0].rate;
      scenarios.push_back(
          fold::with_link_changes(*base, 0, {{1'000, rate / 2 + 1}, {900'000, rate + 7}}));
    }
    const Alone alone = one_by_one(scenarios);
    for (const Backend backend : {Backend::cpp, Backend::omp}) {
      SimulateOptions options;
      options.backend = backend;
      EXPECT_EQ(simulate_scenarios(scenarios, options), alone.makespans_ps) << seed;
      options.keep_times = seed % 2 == 0;  // every end of every task, by the hash
      EXPECT_EQ(simulate_step(fold::place_side_by_side(scenarios).system, options).hash, alone.hash)
          << seed;
    }
    SimulateOptions reference;
    reference.engine = Engine::reference;
    EXPECT_EQ(simulate_scenarios(scenarios, reference), alone.makespans_ps) << seed;
  }
}

TEST(Scenarios, OfSeedsAreThoseOfJitter) {
  const auto base = scenes::many_ranks(3, 60);
  std::vector<uint64_t> seeds;
  Scenarios scenarios;
  for (uint64_t seed = 0; seed < 200; ++seed) {  // more than one batch of lanes
    seeds.push_back(seed * 0x9e3779b97f4a7c15);
    scenarios.push_back(with_jitter(*base, seeds.back(), 3277));
  }
  ASSERT_GT(int64_t(seeds.size() * base->ranks.size()), kLanesAtOnce);
  EXPECT_EQ(simulate_seeds(*base, seeds, 3277, {}), one_by_one(scenarios).makespans_ps);
  EXPECT_TRUE(simulate_seeds(*base, {}, 3277, {}).empty());
  // These fill their tiles by themselves; the last one stands beside smaller ones.
  const auto large = scenes::many_ranks(3, 200);
  const Scenarios one{with_jitter(*large, 0, 3277), with_jitter(*large, 5, 3277)};
  EXPECT_EQ(simulate_seeds(*large, {0, 5}, 3277, {}), one_by_one(one).makespans_ps);
}

TEST(Scenarios, OfDifferentProgramsAreRefused) {
  EXPECT_THROW(simulate_scenarios({scenes::many_ranks(3, 20), scenes::many_ranks(4, 20)}, {}),
               Error);
}

// What one scenario cannot end by is said as it is alone, though it is the second of three.
TEST(Scenarios, AnErrorIsThatOfTheScenarioAlone) {
  const auto base = scenes::many_ranks(3, 20);
  ASSERT_FALSE(base->links.empty());
  Scenarios scenarios{base, nullptr, base};
  for (int64_t link = 0; scenarios[1] == nullptr; ++link) {
    ASSERT_LT(link, int64_t(base->links.size())) << "no link stalls it";
    const auto dead = fold::with_link_changes(*base, link, {{0, 0}});
    try {
      simulate_step(dead, {});
    } catch (const Error&) {
      scenarios[1] = dead;
    }
  }
  const auto message = [](const auto& run) -> std::string {
    try {
      run();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string alone = message([&] { simulate_step(scenarios[1], {}); });
  EXPECT_FALSE(alone.empty());
  EXPECT_EQ(message([&] { simulate_scenarios(scenarios, {}); }), alone);
}

}  // namespace
}  // namespace trnsim::simulate
