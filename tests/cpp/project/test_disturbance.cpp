// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "machine/figures.h"
#include "project/disturbance.h"

namespace trnsim::project {
namespace {

using machine::Topology;

constexpr int64_t kStepPs = 1'000'000;

// Servers of 4 chips on a switch, each a pod; 8 leaves a cluster (planes), 4 spines a plane.
machine::Machine pods(int count) {
  std::vector<machine::Figure> figures = machine::gpu_figures(4);
  machine::add_fabric(figures, count, 4);
  return machine::make_machine("toy-fabric", "", figures);
}

std::string message_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

Draw draw_of(const machine::Machine& machine, const Topology& topology, const std::string& text,
             uint64_t seed) {
  Grounds grounds(machine, topology, topology.chip_count(), kStepPs);
  const DisturbanceSet set = parse_disturbance(text);
  grounds.check(set);
  return grounds.draw(set, seed);
}

// What is left of the slowest of the pairs (chip, the chip so far on), as a share of a NIC.
Rational slowest_share(const Topology& topology, int32_t shift) {
  std::map<int32_t, int64_t> flows;
  std::vector<std::vector<int32_t>> routes;
  const auto chips = int32_t(topology.chip_count());
  for (int32_t chip = 0; chip < chips; ++chip) {
    topology.route(chip, (chip + shift) % chips, routes.emplace_back());
    for (const int32_t link : routes.back()) ++flows[link];
  }
  Rational least{1, 1};
  for (const auto& route : routes) {
    for (const int32_t id : route) {
      const machine::Link link = topology.link(id);
      const Rational share = Rational::of(link.rate, int128(link.healthy_rate) * flows[id]);
      if (share < least) least = share;
    }
  }
  return least;
}

machine::Conditions conditions(const Draw& draw) {
  machine::Conditions result = conditions_of(parse_scenario(draw.slow_chips, draw.faults));
  for (const machine::LinkFault& fault : draw.sprayed) result.faults.push_back(fault);
  return result;
}

}  // namespace

TEST(Disturbance, says_what_is_wrong_with_a_text) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"gremlins", "'gremlins' is no disturbance: use one of jitter, straggler"},
      {"straggler", "'straggler' does not say its factor"},
      {"straggler:share=2", "straggler has no 'share=2': give it factor=, chips=, such as"},
      {"straggler:factor=0.5", "'straggler:factor=0.5' has a factor that is not from 1 to 1000"},
      {"throttle:factor=fast", "'throttle:factor=fast' has a factor that is not from 1 to 1000"},
      {"throttle:factor=2@1ms", "'throttle:factor=2@1ms' has a factor that is not from 1 to 1000"},
      {"straggler:factor=2,chips=0", "'chips=0' is no count"},
      {"dead-chip:chips=2,chips=3", "'dead-chip:chips=2,chips=3' says its chips twice"},
      {"jitter:sigma=0.2", "sigma '0.2' is no standard deviation from 0 to 0.1"},
      {"slow-link:share=2", "'slow-link:share=2' has a share that is not from 0 to 1"},
      {"dead-domain", "'dead-domain' does not say its pods"},
      {"dead-switch:tier=leaf,by=magic", "(spray or ecmp)"},
      {"dead-chip+jitter:sigma=0.01", "pods out of service beside other things"},
      {"jitter:sigma=0.01+jitter:sigma=0.02", "has two jitters"},
  };
  for (const auto& [text, part] : wrong) {
    const std::string said = message_of([&] { parse_disturbance(text); });
    EXPECT_NE(said.find(part), std::string::npos) << text << ": " << said;
  }
}

TEST(Disturbance, that_the_job_cannot_have_is_refused) {
  const machine::Machine machine = pods(8);
  const auto topology = make_topology(machine, 32);
  const auto said = [&](const char* text) {
    return message_of([&] { draw_of(machine, *topology, text, 0); });
  };
  EXPECT_NE(said("straggler:factor=2,chips=33").find("takes 33 of 32"), std::string::npos);
  EXPECT_NE(said("straggler:factor=2,chips=17+throttle:factor=2,chips=16").find("33 of 32"),
            std::string::npos);
  EXPECT_NE(said("dead-link:tier=x").find("no links of tier 'x'"), std::string::npos);
  EXPECT_NE(said("dead-switch:tier=spine").find("no switch 'spine'"), std::string::npos);
}

TEST(Disturbance, draws_the_same_of_a_seed_and_everything_over_seeds) {
  const machine::Machine machine = pods(64);
  const auto topology = make_topology(machine, 128);
  std::map<std::string, int> chips;
  for (uint64_t seed = 0; seed < 3200; ++seed) {
    const std::string text = "straggler:factor=1.25,chips=4";
    const Draw draw = draw_of(machine, *topology, text, seed);
    EXPECT_EQ(draw.slow_chips, draw_of(machine, *topology, text, seed).slow_chips);
    for (const std::string& chip : draw.slow_chips) ++chips[chip];
    EXPECT_EQ(std::set(draw.slow_chips.begin(), draw.slow_chips.end()).size(), 4u);
  }
  EXPECT_EQ(chips.size(), 128u);  // each 100 times in the mean, with a deviation of 10
  for (const auto& [chip, count] : chips) EXPECT_NEAR(count, 100, 50) << chip;
}

TEST(Disturbance, throttles_within_the_step_and_links_by_their_tier) {
  const machine::Machine machine = pods(64);
  const auto topology = make_topology(machine, 128);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Draw draw = draw_of(machine, *topology,
                              "throttle:factor=1.5,chips=3+slow-link:share=0.5,tier=nic up", seed);
    const Scenario scenario = parse_scenario(draw.slow_chips, draw.faults);
    ASSERT_EQ(scenario.chips.size(), 3u);
    for (const ChipFault& fault : scenario.chips) EXPECT_LT(fault.time_ps, kStepPs);
    EXPECT_TRUE(draw.faults[0].starts_with("nic up ")) << draw.faults[0];
    EXPECT_EQ(make_topology(machine, 128, conditions(draw))->faults().size(), 1u);
  }
}

// Of 4 spines a plane one is dead, or of 8 leaves a cluster: what saturates the fabric keeps 3/4,
// or 7/8. With one path for each pair two of them share a link.
TEST(Disturbance, dead_switches_leave_the_closed_form_of_the_bandwidth) {
  const machine::Machine machine = pods(64);
  const auto whole = make_topology(machine, 128);
  const int32_t shift = 64;  // half of the clusters on: every flow passes a spine
  EXPECT_EQ(slowest_share(*whole, shift), (Rational{1, 1}));
  for (const auto& [tier, share] : {std::pair("spine", Rational{3, 4}), {"leaf", Rational{7, 8}}}) {
    const std::string text = std::string("dead-switch:tier=") + tier;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const auto sprayed =
          make_topology(machine, 128, conditions(draw_of(machine, *whole, text, seed)));
      EXPECT_EQ(slowest_share(*sprayed, shift), share) << text << " " << seed;
      const auto by_path = make_topology(
          machine, 128, conditions(draw_of(machine, *whole, text + ",by=ecmp", seed)));
      EXPECT_EQ(slowest_share(*by_path, shift), (Rational{1, 2})) << text << " " << seed;
    }
  }
  const auto two = make_topology(
      machine, 128, conditions(draw_of(machine, *whole, "dead-switch:tier=leaf,switches=16", 3)));
  EXPECT_LT(slowest_share(*two, shift), (Rational{7, 8}));
}

TEST(Disturbance, takes_whole_pods_and_domains_out) {
  const machine::Machine machine = pods(64);
  const auto topology = make_topology(machine, 40);  // 10 pods
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Draw chips = draw_of(machine, *topology, "dead-chip:chips=3", seed);
    EXPECT_EQ(chips.what.size(), 3u);
    EXPECT_TRUE(!chips.pods_out.empty() && chips.pods_out.size() <= 3);
    EXPECT_TRUE(std::is_sorted(chips.pods_out.begin(), chips.pods_out.end()));
    const Draw domain = draw_of(machine, *topology, "dead-domain:pods=4", seed);
    EXPECT_EQ(domain.pods_out.size(), domain.pods_out[0] == 8 ? 2u : 4u);
    EXPECT_EQ(domain.pods_out[0] % 4, 0);
  }
}

// Flows of the 8 chips under a ToR to as many other clusters, each over one of 8 leaves by its
// hash: the fullest link has what the fullest of 8 bins has of 8 balls.
TEST(Disturbance, hashed_routes_collide_as_balls_in_bins) {
  std::vector<machine::Figure> figures = machine::gpu_figures(4);
  machine::add_fabric(figures, 64, 4);
  machine::set(figures, "fabric.ecmp", "hashed", "word");
  const machine::Machine machine = machine::make_machine("toy-fabric", "", figures);
  const auto topology = make_topology(machine, 128);
  constexpr int kFlows = 8, kSeeds = 2000;
  double by_hash = 0, by_chance = 0;
  std::mt19937 random(5);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Draw draw = draw_of(machine, *topology, "ecmp-hash", seed);
    const auto hashed = make_topology(machine, 128, {{}, draw.hash_seed});
    std::map<int32_t, int> on_link;
    std::array<int, kFlows> bins{};
    for (int32_t chip = 0; chip < kFlows; ++chip) {
      std::vector<int32_t> route;
      hashed->route(chip, 64 + 8 * (chip % 8) + chip % 4, route);
      for (const int32_t link : route) on_link[link] += hashed->tier(link) == machine::Tier::tor_up;
      ++bins[random() % bins.size()];
    }
    int most = 0;
    for (const auto& [link, flows] : on_link) most = std::max(most, flows);
    by_hash += most;
    by_chance += *std::max_element(bins.begin(), bins.end());
  }
  EXPECT_NEAR(by_hash / kSeeds, by_chance / kSeeds, 0.08);  // each has a deviation of 0.017
  EXPECT_GT(by_hash / kSeeds, 2);
  const machine::Machine even = pods(64);
  const auto plain = make_topology(even, 128);
  EXPECT_NE(message_of([&] { draw_of(even, *plain, "ecmp-hash", 0); }).find("are hashed"),
            std::string::npos);
}

}  // namespace trnsim::project
