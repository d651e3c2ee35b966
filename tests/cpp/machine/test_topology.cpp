// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "figures.h"
#include "routes.h"

namespace trnsim::machine {
TEST(Torus, has_four_or_six_links_out_of_each_chip) {
  EXPECT_EQ(make_topology(torus_machine(4, 4, 1, 16), 16)->link_count(), 64);
  EXPECT_EQ(make_topology(torus_machine(4, 4, 4, 16), 64)->link_count(), 384);
}

TEST(Torus, takes_shortest_paths_between_all_chips_at_every_legal_count) {
  const Machine machine = torus_machine(4, 4, 4, 16);
  EXPECT_EQ(legal_chip_counts(machine).size(), 19u);
  for (const int64_t chips : legal_chip_counts(machine)) {
    const auto topology = make_topology(machine, chips);
    for (int32_t from = 0; from < chips; ++from) {
      const std::map<int32_t, int64_t> distances = distances_from(*topology, from);
      for (int32_t to = 0; to < chips; ++to) {
        expect_path(*topology, from, to);
        EXPECT_EQ(topology->hops(from, to), distances.at(to))
            << chips << " chips, " << from << ">" << to;
      }
    }
  }
}

// Odd shapes, whole or not, in which the last row or plane is cut: every pair still has a path.
TEST(Torus, reaches_every_present_chip_in_cut_tori) {
  for (const auto& [x, y, z] : {std::array{3, 5, 2}, {2, 2, 2}, {1, 7, 1}, {5, 4, 3}, {8, 1, 2}}) {
    const Machine machine = torus_machine(x, y, z, x * y * z);
    for (const int64_t chips : legal_chip_counts(machine)) {
      const auto topology = make_topology(machine, chips);
      for (int32_t from = 0; from < chips; ++from) {
        for (int32_t to = 0; to < chips; ++to) expect_path(*topology, from, to);
      }
    }
  }
}

// X x Y x Z chips cut across Z: X Y links forward and as many over the wrap, each way.
TEST(Torus, has_two_planes_of_links_each_way_across_its_middle) {
  for (const auto& [x, y, z] : {std::array{4, 4, 4}, {3, 5, 6}, {16, 4, 8}}) {
    const auto topology = make_topology(torus_machine(x, y, z, x * y * z), x * y * z);
    const auto is_low = [&](int32_t chip) { return chip < x * y * z / 2; };
    int64_t up = 0, down = 0;
    for (int32_t id = 0; id < topology->link_count(); ++id) {
      const Link link = topology->link(id);
      up += is_low(link.from_node) && !is_low(link.to_node);
      down += !is_low(link.from_node) && is_low(link.to_node);
    }
    EXPECT_EQ(up, 2 * x * y);
    EXPECT_EQ(down, 2 * x * y);
  }
}

TEST(Torus, joins_ring_neighbours_by_one_link) {
  const auto topology = make_topology(torus_machine(4, 3, 5, 60), 60);
  for (int32_t chip = 0; chip < 60; ++chip) {
    const int32_t x = chip % 4, y = chip / 4 % 3, z = chip / 12;
    for (const int32_t other : {(x + 1) % 4 + 4 * y + 12 * z, x + 4 * ((y + 1) % 3) + 12 * z,
                                x + 4 * y + 12 * ((z + 1) % 5)}) {
      EXPECT_EQ(topology->hops(chip, other), 1);
      EXPECT_EQ(topology->hops(other, chip), 1);
    }
  }
}

// A large torus: the distance is the sum of the shorter ways round.
TEST(Torus, of_8960_chips_takes_shortest_paths_between_random_pairs) {
  const auto topology = make_topology(torus_machine(16, 20, 28, 4), 8960);
  EXPECT_EQ(topology->link_count(), 6 * 8960);
  const auto round = [](int a, int b, int extent) {
    const int forward = (b - a + extent) % extent;
    return std::min(forward, extent - forward);
  };
  std::mt19937 random(13);
  for (int i = 0; i < 2000; ++i) {
    const int32_t from = int32_t(random() % 8960), to = int32_t(random() % 8960);
    expect_path(*topology, from, to);
    EXPECT_EQ(topology->hops(from, to), round(from % 16, to % 16, 16) +
                                            round(from / 16 % 20, to / 16 % 20, 20) +
                                            round(from / 320, to / 320, 28));
  }
}

TEST(Torus, goes_by_dimension_order) {
  const auto topology = make_topology(torus_machine(4, 4, 4, 16), 64);
  EXPECT_EQ(names(*topology, 0, 21), "x+ 0>1 y+ 1>5 z+ 5>21 ");
  EXPECT_EQ(names(*topology, 21, 0), "x- 21>20 y- 20>16 z- 16>0 ");
  EXPECT_EQ(names(*topology, 0, 3), "x- 0>3 ");
}

TEST(Torus, breaks_a_tie_by_the_parity_of_the_coordinate) {
  const auto topology = make_topology(torus_machine(4, 4, 1, 16), 16);
  EXPECT_EQ(names(*topology, 0, 2), "x+ 0>1 x+ 1>2 ");
  EXPECT_EQ(names(*topology, 1, 3), "x- 1>0 x- 0>3 ");
  EXPECT_EQ(names(*topology, 4, 12), "y- 4>0 y- 0>12 ");
}

// With six chips of a 4x4 torus the second row is 4, 5: there is no chip 6 to pass X first.
TEST(Torus, goes_y_first_where_a_chip_is_absent) {
  const auto topology = make_topology(torus_machine(4, 4, 1, 16), 6);
  EXPECT_EQ(names(*topology, 5, 2), "y- 5>1 x+ 1>2 ");
  EXPECT_EQ(names(*topology, 2, 5), "x- 2>1 y+ 1>5 ");
}

TEST(Torus, is_a_line_where_the_ring_is_not_whole) {
  const auto topology = make_topology(torus_machine(4, 4, 1, 16), 3);
  EXPECT_EQ(topology->link_count(), 4);
  EXPECT_EQ(names(*topology, 2, 0), "x- 2>1 x- 1>0 ");
}

TEST(Torus, of_two_has_one_link_each_way) {
  const auto topology = make_topology(torus_machine(2, 2, 2, 8), 8);
  EXPECT_EQ(topology->link_count(), 24);
  EXPECT_EQ(topology->hops(0, 7), 3);
}

TEST(Torus, gives_each_axis_its_own_rate) {
  const auto topology = make_topology(torus_machine(4, 4, 4, 16), 64);
  for (const auto& [axis, rate] : {std::pair{0, 100}, {1, 50}, {2, 25}}) {
    const std::vector<int32_t> ids = topology->links_from(37, Tier(axis));
    ASSERT_EQ(ids.size(), 2u);
    EXPECT_EQ(topology->link(ids[0]).rate, rate * 1'000'000'000LL * kRateUnitsPerBps);
  }
}

TEST(Torus, says_which_axes_are_rings) {
  const Machine machine = torus_machine(4, 4, 4, 16);
  EXPECT_EQ(used_torus(machine, 6), (std::array<int64_t, 3>{4, 2, 1}));
  EXPECT_FALSE(fills_used_torus(machine, 6));
  EXPECT_TRUE(fills_used_torus(machine, 8));
  EXPECT_EQ(used_torus(machine, 48), (std::array<int64_t, 3>{4, 4, 3}));
  EXPECT_TRUE(axis_wraps(machine, 48, 0));
  EXPECT_FALSE(axis_wraps(machine, 48, 2));
  EXPECT_TRUE(axis_wraps(machine, 64, 2));
  EXPECT_FALSE(axis_wraps(machine, 16, 2));
}

TEST(Switch, routes_up_and_down) {
  const auto topology = make_topology(switch_machine(), 5);
  EXPECT_EQ(topology->link_count(), 10);
  EXPECT_EQ(names(*topology, 3, 1), "up 3 down 1 ");
  EXPECT_EQ(topology->hops(2, 2), 0);
  EXPECT_EQ(topology->links_from(3, Tier::switch_up), std::vector<int32_t>{6});
  EXPECT_TRUE(topology->links_from(3, Tier::x).empty());
}

TEST(Topology, refuses_counts_with_the_nearest_legal_ones) {
  const auto message = [](const Machine& machine, int64_t chips) -> std::string {
    try {
      make_topology(machine, chips);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::machine);
      return error.what();
    }
    return "nothing thrown";
  };
  const Machine torus = torus_machine(4, 4, 4, 16);
  EXPECT_NE(message(torus, 20).find("use 16 or 32"), std::string::npos);
  EXPECT_NE(message(torus, 65).find("use up to 64"), std::string::npos);
  EXPECT_NE(message(torus, 0).find("use 1"), std::string::npos);
  EXPECT_NE(message(torus, -3).find("-3 chips"), std::string::npos);
  EXPECT_NE(message(switch_machine(), 9).find("one server of 8"), std::string::npos);
}

TEST(Placement, follows_from_chips_or_ranks) {
  Machine machine = torus_machine(4, 4, 4, 16);
  machine.chip.ranks_per_chip_allowed = {1, 4};
  const Placement placement = make_placement(machine, 0, 128, 4);
  EXPECT_EQ(placement.chips, 32);
  EXPECT_EQ(placement.ranks_per_server, 64);
  EXPECT_EQ(placement.chip_of(127), 31);
  EXPECT_EQ(make_placement(machine, 4, 0, 0).ranks, 4);
  EXPECT_EQ(make_placement(machine, 4, 16, 4).ranks_per_server, 16);
  EXPECT_EQ(rank_memory_bytes(machine, 4), 20'000'000'000);
}

TEST(Placement, refuses_contradictions) {
  Machine machine = torus_machine(4, 4, 4, 16);
  machine.chip.ranks_per_chip_allowed = {1, 4};
  EXPECT_THROW(make_placement(machine, 4, 4, 4), Error);    // 16 ranks
  EXPECT_THROW(make_placement(machine, 0, 6, 4), Error);    // half a chip
  EXPECT_THROW(make_placement(machine, 4, 0, 2), Error);    // not allowed
  EXPECT_THROW(make_placement(machine, 0, 0, 1), Error);    // nothing given
  EXPECT_THROW(make_placement(machine, 0, -4, 1), Error);   // negative
  EXPECT_THROW(make_placement(machine, 0, 128, 1), Error);  // more chips than there are
}

}  // namespace trnsim::machine
