// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Collectives alone against alpha-beta formulas, 1 ps a phase; and what must not change, or must
// change by a known factor, when the job does.
#include <gtest/gtest.h>

#include <algorithm>

#include "machine/topology.h"
#include "scenes.h"

namespace trnsim::simulate {
namespace {

using lower::Pattern;
using lower::PhaseTemplate;
using scenes::ProgramBuilder;

constexpr int64_t kStep = 1'500'000, kHop = 200'000;  // ps

machine::Machine torus() {
  machine::Machine machine;
  machine.server.chips = 16;
  machine.torus = {4, 4, 4};
  machine.torus_axis_Bps = {
      Rational{128'000'000'000, 1}, {128'000'000'000, 1}, {64'000'000'000, 1}};
  return machine;
}

PhaseTemplate ring_phase(Pattern pattern, int64_t bytes, int64_t steps) {
  PhaseTemplate phase;
  phase.pattern = pattern;
  phase.bytes = bytes;
  phase.steps = steps;
  phase.step_ps = kStep;
  phase.hop_ps = kHop;
  return phase;
}

// End of one call on a group of the 64 chips, begun at 0, in ps.
int64_t time_alone(const workload::RankPattern& ranks, const std::vector<PhaseTemplate>& phases,
                   int64_t times_bandwidth = 1) {
  ProgramBuilder builder;
  const int32_t stream = builder.queue(lower::QueueKind::collective, 0);
  builder.program.groups.push_back({"group", ranks});
  lower::CallTemplate call = scenes::all_reduce(0, 1 << 20);
  call.phases = phases;
  builder.call(stream, builder.call_template(call));
  machine::Placement placement;
  placement.chips = placement.ranks = 64;
  auto machine = torus();
  for (Rational& rate : machine.torus_axis_Bps) rate = rate * Rational{times_bandwidth, 1};
  const auto topology = machine::make_topology(machine, 64);
  const auto system = std::make_shared<fold::System>(
      fold::make_system(builder.build(), machine, *topology, placement, 64));
  return simulate_step(system, {}).makespan_ps;
}

TEST(ClosedForm, ARingAllGatherOnARowIsStepsTimesAlphaPlusBytesTimesBeta) {
  // (n - 1) alpha + one hop + (n - 1)/n B / bandwidth, with B = 4 MiB on 4 chips.
  const int64_t bytes = 3 << 20;
  const int64_t expected = 3 * kStep + kHop + duration_ps(bytes, {128'000'000'000, 1});
  EXPECT_NEAR(double(time_alone({0, {{1, 4}}, {}}, {ring_phase(Pattern::ring, bytes, 3)})),
              double(expected), 1.0);
}

TEST(ClosedForm, BothWaysRoundUseTwiceTheLinksForHalfTheTime) {
  const int64_t bytes = 3 << 20;
  const auto both = ring_phase(Pattern::ring_both, bytes / 2, 3);
  const int64_t expected = 3 * kStep + kHop + duration_ps(bytes / 2, {128'000'000'000, 1});
  EXPECT_NEAR(double(time_alone({0, {{1, 4}}, {}}, {both})), double(expected), 1.0);
}

TEST(ClosedForm, AHierarchicalAllReduceIsTheSumOfItsPhases) {
  // Reduce-scatter along X, Y, Z, all-gather back: each phase alone on its axis.
  std::vector<PhaseTemplate> phases;
  double expected = 0;
  int64_t bytes = 12 << 20;
  for (const int8_t axis : {0, 1, 2, 2, 1, 0}) {
    auto phase = ring_phase(Pattern::axis_ring, bytes, 3);
    phase.axis = axis;
    phases.push_back(phase);
    const Rational bandwidth{(axis == 2 ? 64 : 128) * int64_t(1'000'000'000), 1};
    expected += double(3 * kStep + kHop + duration_ps(bytes, bandwidth));
    if (phases.size() < 3) bytes /= 4;
    if (phases.size() > 3) bytes *= 4;
  }
  EXPECT_NEAR(double(time_alone({0, {{1, 64}}, {}}, phases)), expected, 6.0);
}

TEST(ClosedForm, AllToAllOnARowIsBoundByItsBusiestLink) {
  // Ring of 4: each way, a link carries its own neighbour's send and one of the sends over two hops
  // of every other chip (even ones go +, odd ones -): + links of chips 0 and 2 carry their own
  // two-hop send, those of 1 and 3 pass it on. 2 sends of 1 MiB a link; hops 2.
  const int64_t bytes = 1 << 20;
  const int64_t expected = 2 * kStep + 2 * kHop + duration_ps(2 * bytes, {128'000'000'000, 1});
  EXPECT_NEAR(double(time_alone({0, {{1, 4}}, {}}, {ring_phase(Pattern::pairwise, bytes, 2)})),
              double(expected), 1.0);
}

// Times of a System without factors, so that everything scales.
std::shared_ptr<fold::System> plain(uint64_t seed) {
  auto system = std::make_shared<fold::System>(*scenes::random_system(seed));
  for (fold::Rank& rank : system->ranks) rank.factor = 1 << 16;
  return system;
}

int64_t events_of(const Timeline& timeline) {
  return timeline.event_count + int64_t(timeline.ends_ps.size());
}

SimulateOptions by_events() {
  SimulateOptions options;
  options.use_private = false;
  return options;
}

TEST(Metamorphic, AnUnusedLinkChangesNothing) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto system = plain(seed);
    const uint64_t before = simulate_step(system, {}).hash;
    system->links.push_back({"unused", 1});
    ASSERT_EQ(simulate_step(system, {}).hash, before) << "seed " << seed;
  }
}

TEST(Metamorphic, DoubledBytesAndCapacitiesTakeTheSameTime) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto system = plain(seed);
    const Timeline before = simulate_step(system, by_events());
    for (auto& link : system->links) link.rate *= 2;
    for (auto& variable : system->variables) variable.bytes *= 2;
    const Timeline after = simulate_step(system, by_events());
    ASSERT_NEAR(double(after.makespan_ps), double(before.makespan_ps), double(events_of(before)))
        << "seed " << seed;
  }
}

TEST(Metamorphic, EverythingTwiceAsLongTakesTwiceAsLong) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto system = plain(seed);
    const Timeline before = simulate_step(system, by_events());
    for (auto& role : system->roles) {
      auto doubled = std::make_shared<lower::Program>(*role);
      for (auto& task : doubled->tasks) task.duration_ps *= 2;
      for (auto& dep : doubled->deps) dep.lag_ps *= 2;
      role = doubled;
    }
    for (auto& rank : system->ranks) rank.start_ps *= 2;
    for (auto& variable : system->variables) {
      variable.bytes *= 2;
      variable.latency_ps *= 2;
    }
    const Timeline after = simulate_step(system, by_events());
    ASSERT_NEAR(double(after.makespan_ps), 2.0 * double(before.makespan_ps),
                double(events_of(before)))
        << "seed " << seed;
  }
}

TEST(Metamorphic, ACopyOfTheJobOnItsOwnLinksChangesNothingButTheHash) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto system = plain(seed);
    const Timeline before = simulate_step(system, {});
    const Timeline after = simulate_step(scenes::twice(*system), {});
    ASSERT_EQ(after.makespan_ps, before.makespan_ps) << "seed " << seed;
    ASSERT_EQ(after.hash, 2 * before.hash) << "seed " << seed;
  }
}

TEST(Metamorphic, MoreBandwidthIsNeverSlowerForOneTransferAtATime) {
  const auto phase = ring_phase(Pattern::ring, 1 << 20, 3);
  int64_t last = std::numeric_limits<int64_t>::max();
  for (const int64_t times : {1, 2, 4, 8}) {
    const int64_t time = time_alone({0, {{1, 4}}, {}}, {phase}, times);
    EXPECT_LT(time, last);
    last = time;
  }
}

}  // namespace
}  // namespace trnsim::simulate
