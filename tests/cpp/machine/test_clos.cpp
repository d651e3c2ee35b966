// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "figures.h"
#include "routes.h"

namespace trnsim::machine {
namespace {

constexpr int64_t kGBps = 1'000'000'000 * kRateUnitsPerBps;

// Servers of 4 chips on a switch, each a pod; `change` alters a figure.
Machine servers(int pods, int rails = 1,
                const std::vector<std::array<std::string, 3>>& changes = {}) {
  std::vector<Figure> figures = gpu_figures(4);
  add_fabric(figures, pods, 4, rails);
  for (const auto& [key, value, unit] : changes) set(figures, key, value, unit);
  return make_machine("toy-fabric", "", figures);
}

Machine two_tiers(int pods) {
  std::vector<Figure> figures = gpu_figures(4);
  add_fabric(figures, pods, 4);
  set(figures, "fabric.kind", "leaf_spine", "word");
  std::erase_if(figures, [](const Figure& f) { return f.key.starts_with("fabric.tor."); });
  return make_machine("toy-fabric", "", figures);
}

std::map<Tier, int64_t> links_by_tier(const Topology& topology) {
  std::map<Tier, int64_t> count;
  for (int32_t id = 0; id < topology.link_count(); ++id) ++count[topology.link(id).tier];
  return count;
}

void expect_random_routes_are_paths(const Topology& topology, int pairs) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int32_t> chip(0, int32_t(topology.chip_count()) - 1);
  for (int i = 0; i < pairs; ++i) expect_path(topology, chip(random), chip(random));
}

std::string message_of(const std::vector<std::array<std::string, 3>>& changes, int pods = 4,
                       int rails = 1) {
  try {
    servers(pods, rails, changes);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

}  // namespace

// 16 ToRs in 4 clusters of 4; 8 planes; 4 leaf ports up.
TEST(Clos, has_as_many_links_as_its_ports) {
  const auto topology = make_topology(servers(64), 128);
  const std::map<Tier, int64_t> expected = {
      {Tier::switch_up, 128},     {Tier::switch_down, 128},    {Tier::nic_up, 128},
      {Tier::nic_down, 128},      {Tier::tor_up, 16 * 8},      {Tier::tor_down, 16 * 8},
      {Tier::leaf_up, 4 * 8 * 4}, {Tier::leaf_down, 4 * 8 * 4}};
  EXPECT_EQ(links_by_tier(*topology), expected);
  EXPECT_EQ(topology->tiers().size(), expected.size());
  // switches: one a pod, ToRs, leaves, spines
  expect_links_from_is_complete(*topology, 32 + 16 + 4 * 8 + 8 * 4);
}

// The 8 links up of a ToR are one, as are the 32 of a cluster's leaves.
TEST(Clos, sprayed_has_one_wide_link_for_all_that_carry_the_same) {
  const Machine machine = servers(64, 1, {{"fabric.ecmp", "sprayed", "word"}});
  const auto topology = make_topology(machine, 128), single = make_topology(servers(64), 128);
  const std::map<Tier, int64_t> expected = {
      {Tier::switch_up, 128}, {Tier::switch_down, 128}, {Tier::nic_up, 128}, {Tier::nic_down, 128},
      {Tier::tor_up, 16},     {Tier::tor_down, 16},     {Tier::leaf_up, 4},  {Tier::leaf_down, 4}};
  EXPECT_EQ(links_by_tier(*topology), expected);
  expect_links_from_is_complete(*topology, 32 + 16 + 4 + 1);
  for (const Tier tier : single->tiers()) {
    int64_t wide = 0, many = 0;  // rate of the tier
    for (int32_t id = 0; id < topology->link_count(); ++id) {
      if (topology->link(id).tier == tier) wide += topology->link(id).rate;
    }
    for (int32_t id = 0; id < single->link_count(); ++id) {
      if (single->link(id).tier == tier) many += single->link(id).rate;
    }
    EXPECT_EQ(wide, many) << tier_name(tier);
  }
  for (const int64_t chips : {4, 8, 32, 128}) {
    expect_random_routes_are_paths(*make_topology(machine, chips), 200);
  }
}

// Without oversubscription as much goes up from each tier as comes from below.
TEST(Clos, carries_through_its_middle_what_the_chips_send) {
  const auto count = links_by_tier(*make_topology(servers(64), 256));
  EXPECT_EQ(count.at(Tier::tor_up), 256);
  EXPECT_EQ(count.at(Tier::leaf_up), 256);
  const Machine thin =
      servers(32, 1, {{"fabric.tor.radix", "32", "1"}, {"fabric.tor.oversubscription", "3", "1"}});
  EXPECT_EQ(links_by_tier(*make_topology(thin, 96)).at(Tier::tor_up), 96 / 3);
}

TEST(Clos, has_only_the_tiers_that_the_chips_in_use_need) {
  const Machine machine = servers(64);
  EXPECT_EQ(make_topology(machine, 4)->tiers(), (std::vector{Tier::switch_up, Tier::switch_down}));
  EXPECT_EQ(links_by_tier(*make_topology(machine, 8)).count(Tier::tor_up), 0u);
  EXPECT_EQ(names(*make_topology(machine, 8), 1, 6), "nic up 1 nic down 6 ");
  EXPECT_EQ(links_by_tier(*make_topology(machine, 32)).count(Tier::leaf_up), 0u);
  EXPECT_EQ(make_topology(machine, 32)->hops(0, 31), 4);
}

TEST(Clos, goes_up_as_far_as_it_must) {
  const auto topology = make_topology(servers(64), 128);
  EXPECT_EQ(names(*topology, 0, 3), "up 0 down 3 ");
  EXPECT_EQ(names(*topology, 0, 5), "nic up 0 nic down 5 ");
  EXPECT_EQ(names(*topology, 0, 13), "nic up 0 tor 0>leaf 5 leaf 5>tor 1 nic down 13 ");
  // chip 45 is place 5 under ToR 5, which is place 1 of cluster 1
  EXPECT_EQ(names(*topology, 0, 45),
            "nic up 0 tor 0>leaf 5 leaf 5>spine 21 spine 21>leaf 13 leaf 13>tor 5 nic down 45 ");
}

TEST(Clos, gives_nics_and_ports_their_rates) {
  const auto topology = make_topology(servers(64), 128);
  for (int32_t id = 0; id < topology->link_count(); ++id) {
    const Link link = topology->link(id);
    const bool nic = link.tier == Tier::nic_up || link.tier == Tier::nic_down;
    if (link.tier <= Tier::switch_down) continue;
    EXPECT_EQ(link.rate, (nic ? 20 : 10) * kGBps);
  }
}

TEST(Clos, connects_random_pairs) {
  for (const auto& machine : {servers(64), servers(64, 2), servers(64, 4), two_tiers(8)}) {
    for (const int64_t chips : {8, 24, 32}) {
      expect_random_routes_are_paths(*make_topology(machine, chips), 300);
    }
  }
  expect_random_routes_are_paths(*make_topology(servers(64), 256), 2000);
  expect_random_routes_are_paths(
      *make_topology(servers(64, 1, {{"fabric.ecmp", "hashed", "word"}}), 256), 2000);
}

// Every chip of a Clos without oversubscription receives over links of its own, so any permutation
// of the chips loads each link with one flow at most on the way down.
TEST(Clos, keeps_a_permutation_apart_on_the_way_down) {
  const auto topology = make_topology(servers(64), 256);
  std::vector<int32_t> order(256);
  for (int32_t i = 0; i < 256; ++i) order[size_t(i)] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  std::vector<int64_t> load(size_t(topology->link_count()), 0);
  for (int32_t from = 0; from < 256; ++from) {
    for (const int32_t id : route_of(*topology, from, order[size_t(from)])) ++load[size_t(id)];
  }
  for (int32_t id = 0; id < topology->link_count(); ++id) {
    const Tier tier = topology->link(id).tier;
    if (tier != Tier::tor_down && tier != Tier::leaf_down) continue;
    EXPECT_LE(load[size_t(id)], 1);
  }
}

// Every chip sends to the chip of the same place k pods on: no two flows share a link.
TEST(Clos, carries_shifts_by_whole_pods_without_sharing) {
  const auto topology = make_topology(servers(64), 256);
  for (const int32_t shift : {4, 12, 32, 100}) {
    std::vector<int64_t> load(size_t(topology->link_count()), 0);
    for (int32_t from = 0; from < 256; ++from) {
      for (const int32_t id : route_of(*topology, from, (from + shift) % 256)) ++load[size_t(id)];
    }
    EXPECT_EQ(*std::max_element(load.begin(), load.end()), 1) << shift;
  }
}

// The choice depends on places only: moved by a whole cluster, a route is the same route moved.
TEST(Clos, routes_alike_from_every_cluster) {
  const auto topology = make_topology(servers(64), 256);  // clusters of 32 chips
  const auto tiers = [&](int32_t from, int32_t to) {
    std::vector<std::pair<Tier, int32_t>> steps;
    for (const int32_t id : route_of(*topology, from, to)) {
      const Link link = topology->link(id);
      const bool between = link.from_node < 0 && link.to_node < 0;
      steps.push_back({link.tier, between ? -std::min(link.from_node, link.to_node) % 8 : 0});
    }
    return steps;
  };
  for (int32_t from = 0; from < 32; ++from) {
    for (int32_t to = 128; to < 160; ++to) EXPECT_EQ(tiers(from, to), tiers(from + 32, to + 64));
  }
}

TEST(Clos, spreads_hashed_routes_by_the_seed) {
  const Machine machine = servers(64, 1, {{"fabric.ecmp", "hashed", "word"}});
  const auto one = make_topology(machine, 256), again = make_topology(machine, 256);
  const auto other = make_topology(machine, 256, {{}, 1});
  std::set<std::string> spines;
  int differ = 0;
  for (int32_t to = 32; to < 256; ++to) {
    EXPECT_EQ(route_of(*one, 0, to), route_of(*again, 0, to));
    differ += route_of(*one, 0, to) != route_of(*other, 0, to);
    spines.insert(one->node_name(one->link(route_of(*one, 0, to)[2]).to_node));
  }
  EXPECT_GT(differ, 180);         // of 224, 31 in 32 are expected to
  EXPECT_GT(spines.size(), 28u);  // of 32
}

// Rail i of two blocks of 8 servers: chip i of each server meets at one ToR.
TEST(Clos, joins_chips_of_one_rail_below_the_leaves) {
  const auto topology = make_topology(servers(32, 4), 128);
  EXPECT_EQ(names(*topology, 1, 29), "nic up 1 nic down 29 ");
  EXPECT_EQ(topology->hops(1, 30), 4);  // another rail of the same servers
  EXPECT_EQ(topology->node_name(topology->link(topology->links_from(1, Tier::nic_up)[0]).to_node),
            "tor 1");
  EXPECT_EQ(topology->node_name(topology->link(topology->links_from(33, Tier::nic_up)[0]).to_node),
            "tor 5");
}

TEST(Clos, of_two_tiers_has_leaves_and_spines) {
  const auto topology = make_topology(two_tiers(8), 32);
  EXPECT_EQ(names(*topology, 0, 31), "nic up 0 leaf 0>spine 3 spine 3>leaf 7 nic down 31 ");
  const auto count = links_by_tier(*topology);
  EXPECT_EQ(count.at(Tier::leaf_up), 8 * 4);
  EXPECT_EQ(count.count(Tier::tor_up), 0u);
}

TEST(Clos, leaves_out_links_that_never_fill) {
  const Machine tor = servers(64, 1, {{"fabric.tor.links", "non_blocking", "word"}});
  const auto topology = make_topology(tor, 128);
  EXPECT_EQ(links_by_tier(*topology).count(Tier::tor_up), 0u);
  EXPECT_EQ(names(*topology, 0, 13), "nic up 0 nic down 13 ");
  EXPECT_EQ(names(*topology, 0, 45), "nic up 0 leaf 5>spine 21 spine 21>leaf 13 nic down 45 ");
  const Machine both = servers(64, 1,
                               {{"fabric.tor.links", "non_blocking", "word"},
                                {"fabric.leaf.links", "non_blocking", "word"}});
  EXPECT_EQ(names(*make_topology(both, 128), 0, 45), "nic up 0 nic down 45 ");
  EXPECT_EQ(make_topology(both, 128)->link_count(), 4 * 128);
}

TEST(Clos, refuses_figures_that_do_not_fit) {
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos ? "" : text;
  };
  EXPECT_EQ(has(message_of({{"fabric.tor.oversubscription", "2", "1"}}), "whole ones"), "");
  EXPECT_EQ(has(message_of({{"fabric.tor.radix", "6", "1"}}), "too few ports"), "");
  EXPECT_EQ(has(message_of({}, 4, 3), "fabric.rails = 3 does not divide the 4 chips"), "");
  EXPECT_EQ(has(message_of({}, 65),
                "fabric.pods = 65 is more than the switches reach: write at "
                "most 64"),
            "");
  EXPECT_EQ(has(message_of({{"fabric.ecmp", "random", "word"}}), "d_mod_k or hashed or sprayed"),
            "");
  EXPECT_EQ(has(message_of({{"fabric.nic.bandwidth", "10", "GB"}}), "write it in MB/s"), "");
  EXPECT_EQ(has(message_of({{"fabric.tor.raddix", "16", "1"}}), "did you mean"), "");
  EXPECT_EQ(has(message_of({{"fabric.kind", "ring", "word"}}), "tor_leaf_spine or leaf_spine"), "");
}

// Of chips in different pods: what is at one place of a pod goes as what is at another, moved.
TEST(Clos, routes_among_chips_of_one_place_are_moved_to_another) {
  int64_t moved = 0, hashed = 0;
  for (const auto& machine : {servers(64), servers(64, 2), servers(64, 4), two_tiers(8),
                              servers(64, 1, {{"fabric.leaf.links", "non_blocking", "word"}}),
                              servers(64, 1, {{"fabric.ecmp", "hashed", "word"}})}) {
    const bool is_hashed = machine.fabric.paths == Paths::hashed;
    const int64_t chips = max_chips(machine);
    for (const std::vector<LinkFault>& faults :
         {std::vector<LinkFault>{},
          {{"nic up 9", {0, 1}}},
          {{"nic down 1", {1, 2}}},
          {{machine.fabric.has_tor ? "tor 1>leaf 2" : "leaf 1>spine 2", {0, 1}}}}) {
      const auto topology = make_topology(machine, chips, {faults, 0});
      std::mt19937 random(7);
      std::uniform_int_distribution<int32_t> pod(0, int32_t(topology->pod_count()) - 1);
      for (int i = 0; i < 2000; ++i) {
        const int32_t a = pod(random) * 4, b = pod(random) * 4, x = pod(random) % 4,
                      y = pod(random) % 4;
        const auto from = topology->shift_between(a + x, a + y),
                   to = topology->shift_between(b + x, b + y);
        if (a == b || !from || from != to) continue;
        std::vector<int32_t> expected = route_of(*topology, a + x, b + x);
        for (int32_t& link : expected) link += (*from)[size_t(topology->tier(link))];
        ASSERT_EQ(route_of(*topology, a + y, b + y), expected);
        (is_hashed ? hashed : moved) += 1;
      }
    }
  }
  EXPECT_GT(moved, 5000);
  EXPECT_EQ(hashed, 0);
}

TEST(Clos, says_the_tier_and_rate_of_each_link) {
  for (const auto& machine : {servers(64), two_tiers(8), servers(64, 2)}) {
    const auto topology = make_topology(machine, max_chips(machine));
    for (int32_t id = 0; id < topology->link_count(); ++id) {
      const Link link = topology->link(id);
      ASSERT_EQ(topology->tier(id), link.tier);
      ASSERT_EQ(topology->healthy_rate(link.tier), link.healthy_rate);
    }
    EXPECT_EQ(topology->healthy_rate(Tier::w), 0);
  }
}

// A job of pods at other places has the routes of the whole fabric between the chips there, under
// its own numbers.
TEST(Clos, joins_pods_wherever_they_stand) {
  for (const int rails : {1, 2, 4}) {
    const Machine machine = servers(64, rails);
    const auto whole = make_topology(machine, 256);
    const std::vector<int64_t> places = {3, 0, 17, 40, 63};
    const auto job = make_topology(machine, 20, {{}, 0, places});
    const auto at = [&](int32_t chip) { return int32_t(places[size_t(chip / 4)] * 4 + chip % 4); };
    const auto named = [&](const Topology& topology, int32_t from, int32_t to) {
      std::vector<int32_t> links;
      topology.route(from, to, links);
      std::vector<std::string> nodes;
      for (const int32_t id : links) {
        const Link link = topology.link(id);
        for (const int32_t node : {link.from_node, link.to_node}) {
          const bool is_of_job = &topology == job.get() && node >= 0;
          // the switch of a pod is numbered by the pod
          const bool is_pod = topology.node_name(node).starts_with("switch");
          if (!is_pod) nodes.push_back(topology.node_name(is_of_job ? at(node) : node));
        }
      }
      return nodes;
    };
    for (int32_t from = 0; from < 20; ++from) {
      for (int32_t to = 0; to < 20; ++to) {
        EXPECT_EQ(named(*job, from, to), named(*whole, at(from), at(to))) << from << " " << to;
        if (from != to) expect_path(*job, from, to);
      }
    }
    for (int32_t id = 0; id < job->link_count(); ++id) {  // each leaves its node, once
      std::vector<int32_t> links;
      job->links_from(job->link(id).from_node, links);
      EXPECT_EQ(std::count(links.begin(), links.end(), id), 1) << job->link_name(id);
    }
  }
  const Machine machine = servers(8);
  const auto first = make_topology(machine, 12),
             same = make_topology(machine, 12, {{}, 0, {0, 1, 2}});
  ASSERT_EQ(first->link_count(), same->link_count());
  for (int32_t id = 0; id < first->link_count(); ++id) {
    EXPECT_EQ(first->link_name(id), same->link_name(id));
  }
  for (const std::vector<int64_t>& wrong :
       {std::vector<int64_t>{0, 1}, {0, 1, 1}, {-1, 0, 1}, {0, 1, 8}}) {
    EXPECT_THROW(make_topology(machine, 12, {{}, 0, wrong}), Error);
  }
}

}  // namespace trnsim::machine
