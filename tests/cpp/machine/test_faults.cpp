// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <functional>

#include "figures.h"
#include "routes.h"

namespace trnsim::machine {
namespace {

constexpr Rational kDead{0, 1};
constexpr int64_t kGBps = 1'000'000'000 * kRateUnitsPerBps;

Machine pods_of_servers(int pods, int rails = 1) {
  std::vector<Figure> figures = gpu_figures(4);
  add_fabric(figures, pods, 4, rails);
  return make_machine("toy-fabric", "", figures);
}

Machine pods_on_a_torus(int pods) {
  std::vector<Figure> figures = torus_figures(4, 2, 1, 8);
  add_fabric(figures, pods, 8);
  return make_machine("toy-pods", "", figures);
}

std::unique_ptr<Topology> broken(const Machine& machine, int64_t chips,
                                 const std::vector<std::string>& dead) {
  Conditions conditions;
  for (const std::string& where : dead) conditions.faults.push_back({where, kDead});
  return make_topology(machine, chips, conditions);
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::machine);
    return error.what();
  }
  return "nothing thrown";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> dead_links(const Topology& topology) {
  std::vector<std::string> names;
  for (int32_t id = 0; id < topology.link_count(); ++id) {
    if (topology.link(id).rate == 0) names.push_back(topology.link_name(id));
  }
  return names;
}

// Routes are paths over links that work exactly where there is a way; otherwise an error names
// both chips. Only for one pod: between pods a route may not pass through a third.
void expect_reach(const Topology& topology) {
  for (int32_t from = 0; from < topology.chip_count(); ++from) {
    const std::map<int32_t, int64_t> reached = distances_from(topology, from);
    for (int32_t to = 0; to < topology.chip_count(); ++to) {
      if (reached.count(to) != 0) {
        expect_path(topology, from, to);
        continue;
      }
      const std::string message = message_of([&] { route_of(topology, from, to); });
      EXPECT_TRUE(contains(message, "chips " + std::to_string(from) + " and " + std::to_string(to) +
                                        " cannot reach each other"))
          << message;
    }
  }
}

// Chips that `from` can send to by the rule: links of its pod, then of the fabric, first upward and
// then downward, then of the other pod.
std::set<int32_t> reach_by_the_rule(const Topology& topology, int32_t from) {
  enum Stage { own_pod, up, down, other_pod };
  const auto stage_of = [](Tier tier, Stage at) {
    if (tier == Tier::nic_down || tier == Tier::tor_down || tier == Tier::leaf_down) return down;
    if (tier == Tier::nic_up || tier == Tier::tor_up || tier == Tier::leaf_up) return up;
    return at == own_pod ? own_pod : other_pod;
  };
  std::vector<std::vector<Link>> out(size_t(topology.chip_count()) + 1000);
  for (int32_t id = 0; id < topology.link_count(); ++id) {
    const Link link = topology.link(id);
    if (link.rate > 0) out[size_t(link.from_node + 1000)].push_back(link);
  }
  std::set<std::pair<int32_t, Stage>> seen{{from, own_pod}};
  std::queue<std::pair<int32_t, Stage>> queue({{from, own_pod}});
  while (!queue.empty()) {
    const auto [node, at] = queue.front();
    queue.pop();
    for (const Link& link : out[size_t(node + 1000)]) {
      const Stage next = stage_of(link.tier, at);
      if (next < at || (at == own_pod && next == down)) continue;
      if (seen.insert({link.to_node, next}).second) queue.push({link.to_node, next});
    }
  }
  std::set<int32_t> chips;
  for (const auto& [node, at] : seen) {
    if (node >= 0 && (topology.pod_of(node) == topology.pod_of(from)) == (at == own_pod)) {
      chips.insert(node);
    }
  }
  return chips;
}

}  // namespace

TEST(Faults, find_links_by_name_by_neighbours_and_by_node) {
  using Names = std::vector<std::string>;
  const Machine torus = torus_machine(4, 4, 1, 16);
  EXPECT_EQ(dead_links(*broken(torus, 16, {"x+ 0>1"})), (Names{"x+ 0>1"}));
  EXPECT_EQ(dead_links(*broken(torus, 16, {"1>0", "y- 0>12"})), (Names{"y- 0>12", "x- 1>0"}));
  EXPECT_EQ(dead_links(*broken(torus, 16, {"chip 5"})).size(), 8u);
  const Machine fabric = pods_of_servers(64);
  EXPECT_EQ(dead_links(*broken(fabric, 256, {"nic down 5"})), (Names{"nic down 5"}));
  EXPECT_EQ(dead_links(*broken(fabric, 256, {"up 5", "tor 3>leaf 7", "spine 21>leaf 13"})),
            (Names{"up 5", "tor 3>leaf 7", "spine 21>leaf 13"}));
  EXPECT_EQ(dead_links(*broken(fabric, 256, {"leaf 7"})).size(), 2u * (4 + 4));
  EXPECT_EQ(dead_links(*broken(fabric, 256, {"spine 0"})).size(), 2u * 8);
  EXPECT_EQ(dead_links(*broken(fabric, 256, {"tor 31"})).size(), 2u * (8 + 8));
  EXPECT_EQ(dead_links(*broken(fabric, 256, {"switch 63"})).size(), 8u);
  EXPECT_EQ(dead_links(*broken(fabric, 256, {"chip 255"})).size(), 4u);
}

TEST(Faults, are_found_under_the_name_of_every_link) {
  for (const Machine& machine : {torus_machine(2, 3, 4, 24), hypercube_machine(3),
                                 pods_of_servers(64), pods_on_a_torus(2)}) {
    const auto whole = make_topology(machine, std::min<int64_t>(max_chips(machine), 64));
    for (int32_t id = 0; id < whole->link_count(); ++id) {
      const std::string name = whole->link_name(id);
      EXPECT_EQ(dead_links(*broken(machine, whole->chip_count(), {name})),
                std::vector<std::string>{name});
    }
  }
}

TEST(Faults, refuse_what_names_no_link) {
  const Machine torus = torus_machine(4, 4, 1, 16);
  for (const char* where : {"x+ 0>2", "0>5", "z+ 0>1", "chip 16", "tor 0", "", "x+", "0>", "nic 3",
                            "0>99999999999999999999", "chip 0>chip", "up 3"}) {
    const std::string message = message_of([&] { broken(torus, 16, {where}); });
    EXPECT_TRUE(contains(message, "a fault names '" + std::string(where) + "'")) << message;
    EXPECT_TRUE(contains(message, "'x+ 0>1'")) << message;
  }
  EXPECT_TRUE(
      contains(message_of([&] { make_topology(torus, 16, {{{"0>1", {3, 2}}}, 0}); }), "faster"));
}

TEST(Faults, slow_a_link_and_leave_its_route) {
  const Machine machine = torus_machine(4, 4, 1, 16);
  const auto topology = make_topology(machine, 16, {{{"0>1", {1, 2}}, {"0>1", {1, 5}}}, 0});
  const Link link = topology->link(route_of(*topology, 0, 1)[0]);
  EXPECT_EQ(link.rate, 10 * kGBps);
  EXPECT_EQ(link.healthy_rate, 100 * kGBps);
  const auto whole = make_topology(machine, 16);
  for (int32_t to = 0; to < 16; ++to) EXPECT_EQ(names(*topology, 0, to), names(*whole, 0, to));
}

TEST(Faults, send_a_torus_route_the_other_way_round_or_by_another_order) {
  const Machine machine = torus_machine(4, 4, 1, 16);
  EXPECT_EQ(names(*broken(machine, 16, {"0>1"}), 0, 1), "x- 0>3 x- 3>2 x- 2>1 ");
  EXPECT_EQ(names(*broken(machine, 16, {"0>1", "0>3"}), 0, 5), "y+ 0>4 x+ 4>5 ");
}

// Chip 0 has only y+ left, and its column is cut, so no order of axes leads to chip 1.
TEST(Faults, leave_the_orders_of_axes_where_none_goes_through) {
  const Machine machine = torus_machine(4, 4, 1, 16);
  const auto topology = broken(machine, 16, {"0>1", "0>3", "0>12"});
  expect_path(*topology, 0, 1);
  EXPECT_EQ(names(*topology, 0, 1), "y+ 0>4 x+ 4>5 y- 5>1 ");
}

TEST(Faults, are_passed_wherever_there_is_a_way_in_a_pod) {
  std::mt19937 random(17);
  for (const Machine& machine : {torus_machine(4, 4, 1, 16), torus_machine(3, 2, 4, 24),
                                 hypercube_machine(4), switch_machine(6)}) {
    for (int round = 0; round < 12; ++round) {
      const int64_t chips = pod_chips(machine);
      const auto whole = make_topology(machine, chips);
      std::vector<std::string> dead;
      for (int32_t id = 0; id < whole->link_count(); ++id) {
        if (int(random() % 24) < 2 * round) dead.push_back(whole->link_name(id));
      }
      expect_reach(*broken(machine, chips, dead));
    }
  }
}

TEST(Faults, take_another_leaf_or_spine) {
  const Machine machine = pods_of_servers(64);
  const auto whole = make_topology(machine, 256);
  const std::string normal =
      "nic up 0 tor 0>leaf 5 leaf 5>spine 21 spine 21>leaf 13 leaf 13>tor 5 nic down 45 ";
  EXPECT_EQ(names(*whole, 0, 45), normal);
  EXPECT_EQ(names(*broken(machine, 256, {"spine 21"}), 0, 45),
            "nic up 0 tor 0>leaf 5 leaf 5>spine 22 spine 22>leaf 13 leaf 13>tor 5 nic down 45 ");
  EXPECT_EQ(names(*broken(machine, 256, {"leaf 13"}), 0, 45),
            "nic up 0 tor 0>leaf 6 leaf 6>spine 25 spine 25>leaf 14 leaf 14>tor 5 nic down 45 ");
  EXPECT_EQ(names(*broken(machine, 256, {"leaf 13", "tor 0>leaf 6"}), 0, 45),
            "nic up 0 tor 0>leaf 7 leaf 7>spine 29 spine 29>leaf 15 leaf 15>tor 5 nic down 45 ");
}

TEST(Faults, take_the_nic_of_the_nearest_chip_in_the_pod) {
  const Machine torus = pods_on_a_torus(4);
  // the other way too: chip 9 is the neighbour of chip 8
  EXPECT_EQ(names(*broken(torus, 32, {"nic up 0", "nic down 8"}), 0, 8).substr(0, 20),
            "x+ 0>1 nic up 1 tor ");
  EXPECT_EQ(names(*broken(torus, 32, {"nic down 8"}), 0, 8).substr(9, 99),
            "tor 0>leaf 1 leaf 1>tor 1 nic down 9 x- 9>8 ");
  const Machine rails = pods_of_servers(16, 4);
  EXPECT_EQ(names(*broken(rails, 64, {"nic up 1"}), 1, 5),
            "up 1 down 0 nic up 0 tor 0>leaf 1 "
            "leaf 1>tor 1 nic down 5 ");
}

TEST(Faults, take_another_rail_when_a_tor_is_dead) {
  const auto topology = broken(pods_of_servers(16, 4), 64, {"tor 1"});
  for (int32_t from = 0; from < 64; ++from) {
    for (int32_t to = 0; to < 64; ++to) expect_path(*topology, from, to);
  }
}

TEST(Faults, between_pods_name_the_chips_that_are_cut_off) {
  const Machine machine = pods_of_servers(64);
  const auto alone = broken(machine, 256, {"tor 3"});  // chips 24 to 31, two whole pods
  expect_path(*alone, 24, 27);
  expect_path(*alone, 0, 255);
  EXPECT_TRUE(contains(message_of([&] { route_of(*alone, 3, 26); }),
                       "toy-fabric: chips 3 and 26 cannot reach each other"));
  EXPECT_TRUE(contains(message_of([&] { route_of(*alone, 24, 28); }), "chips 24 and 28"));
}

TEST(Faults, of_a_multicast_are_named) {
  const auto topology = broken(switch_machine(), 8, {"down 3"});
  std::vector<int32_t> links;
  topology->multicast(std::array{0, 1, 2}, links);
  EXPECT_EQ(links.size(), 6u);
  EXPECT_TRUE(contains(message_of([&] { topology->multicast(std::array{2, 3}, links); }),
                       "link down 3 is dead"));
}

TEST(Faults, in_a_fabric_are_passed_wherever_the_rule_allows_a_way) {
  std::mt19937 random(23);
  int cut = 0, joined = 0;
  for (const Machine& machine :
       {pods_of_servers(64), pods_of_servers(64, 2), pods_on_a_torus(16)}) {
    const auto whole = make_topology(machine, 64);
    for (int round = 1; round < 12; ++round) {
      std::vector<std::string> dead;
      for (int32_t id = 0; id < whole->link_count(); ++id) {
        if (int(random() % 20) < round) dead.push_back(whole->link_name(id));
      }
      const auto topology = broken(machine, 64, dead);
      for (int32_t from = 0; from < 64; from += 3) {
        const std::set<int32_t> reached = reach_by_the_rule(*topology, from);
        for (int32_t to = 0; to < 64; ++to) {
          const bool joins = reached.count(to) != 0;
          if (joins) {
            expect_path(*topology, from, to);
          } else {
            EXPECT_THROW(route_of(*topology, from, to), Error) << from << ">" << to;
          }
          ++(joins ? joined : cut);
        }
      }
    }
  }
  EXPECT_GT(cut, 1000);
  EXPECT_GT(joined, 10'000);
}

}  // namespace trnsim::machine
