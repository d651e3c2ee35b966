// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "figures.h"
#include "routes.h"

namespace trnsim::machine {
namespace {

// Pods of 4x4x4 chips, servers of 16, under ToRs of two servers.
Machine pods_of_64(int pods) {
  std::vector<Figure> figures = torus_figures(4, 4, 4, 16);
  add_fabric(figures, pods, 16);
  set(figures, "fabric.tor.radix", "64", "1");
  set(figures, "fabric.leaf.radix", "128", "1");
  set(figures, "fabric.spine.radix", "256", "1");
  return make_machine("toy-pods", "", figures);
}

std::string message_of(const Machine& machine, int64_t chips) {
  try {
    make_topology(machine, chips);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

}  // namespace

TEST(Pods, number_chips_pod_by_pod) {
  const auto topology = make_topology(pods_of_64(100), 256);
  EXPECT_EQ(topology->pod_count(), 4);
  EXPECT_EQ(topology->pod_chips(), 64);
  EXPECT_EQ(topology->pod_of(130), 2);
  EXPECT_EQ(topology->position_in_pod(130), 2);
  EXPECT_EQ(topology->link_name(2 * 384), "x+ 128>129");
  EXPECT_EQ(names(*topology, 128, 149), "x+ 128>129 y+ 129>133 z+ 133>149 ");
  // place 21 under ToR 4 of the first cluster
  EXPECT_EQ(names(*topology, 0, 149), "nic up 0 tor 0>leaf 21 leaf 21>tor 4 nic down 149 ");
}

TEST(Pods, route_inside_a_pod_as_alone) {
  const Machine machine = pods_of_64(100);
  const auto alone = make_topology(machine, 64), third = make_topology(machine, 256);
  for (int32_t from = 0; from < 64; ++from) {
    for (int32_t to = 0; to < 64; ++to) {
      std::vector<int32_t> links = route_of(*alone, from, to);
      for (int32_t& id : links) id += 2 * 384;
      EXPECT_EQ(route_of(*third, from + 128, to + 128), links);
    }
  }
}

TEST(Pods, connect_random_pairs_with_shortest_routes) {
  const auto topology = make_topology(pods_of_64(100), 256);
  expect_links_from_is_complete(*topology, 8 + 32);
  std::mt19937 random(5);
  std::uniform_int_distribution<int32_t> chip(0, 255);
  for (int i = 0; i < 1000; ++i) {
    const int32_t from = chip(random), to = chip(random);
    expect_path(*topology, from, to);
    if (from / 64 == to / 64) continue;
    EXPECT_EQ(topology->hops(from, to), 4);
  }
}

TEST(Pods, are_taken_whole) {
  const Machine machine = pods_of_64(100);
  EXPECT_EQ(max_chips(machine), 6400);
  const std::vector<int64_t> counts = legal_chip_counts(machine);
  EXPECT_EQ(counts.size(), 16u + 3 + 99);
  for (const int64_t chips : counts) check_chip_count(machine, chips);
  EXPECT_NE(message_of(machine, 100)
                .find("beyond one pod of 64, toy-pods takes whole pods: use 64 "
                      "or 128"),
            std::string::npos);
  EXPECT_NE(message_of(machine, 40).find("use 32 or 48"), std::string::npos);
  EXPECT_NE(message_of(machine, 6401).find("toy-pods has 6400 of them: use up to 6400"),
            std::string::npos);
}

TEST(Pods, keep_the_shape_of_their_torus) {
  const Machine machine = pods_of_64(100);
  EXPECT_EQ(used_torus(machine, 256), (std::array<int64_t, 3>{4, 4, 4}));
  EXPECT_TRUE(fills_used_torus(machine, 256));
  EXPECT_TRUE(axis_wraps(machine, 256, 2));
}

// 400,000 chips: 384 torus links a pod; a NIC, a ToR port and a leaf port a chip, up and down.
TEST(Pods, of_400000_chips_have_every_link) {
  const auto topology = make_topology(pods_of_64(6250), 400'000);
  const int64_t tors = 12'500, clusters = 196;  // of 64 ToRs, the last of 20
  EXPECT_EQ(topology->link_count(),
            6250 * 384 + 2 * 400'000 + 2 * tors * 32 + 2 * clusters * 32 * 64);
  std::mt19937 random(11);
  std::uniform_int_distribution<int32_t> chip(0, 399'999);
  for (int i = 0; i < 20'000; ++i) expect_path(*topology, chip(random), chip(random));
  EXPECT_EQ(topology->hops(0, 399'999), 6);
  const int32_t last = int32_t(topology->link_count()) - 1;
  EXPECT_EQ(topology->link_name(last), "spine 2047>leaf 6271");
  int64_t rate = 0;
  for (int32_t id = 0; id <= last; ++id) rate += topology->link(id).rate > 0;
  EXPECT_EQ(rate, topology->link_count());
}

TEST(Pods, multicast_over_the_links_of_their_own_switch) {
  std::vector<Figure> figures = gpu_figures(4);
  add_fabric(figures, 8, 4);
  const auto topology = make_topology(make_machine("toy", "", figures), 16);
  ASSERT_TRUE(topology->can_multicast());
  std::vector<int32_t> links;
  topology->multicast(std::array{5, 7}, links);
  std::string text;
  for (const int32_t id : links) text += topology->link_name(id) + " ";
  EXPECT_EQ(text, "up 5 down 5 up 7 down 7 ");
  EXPECT_EQ(topology->node_name(topology->link(links[0]).to_node), "switch 1");
  EXPECT_THROW(topology->multicast(std::array{3, 4}, links), Error);
}

TEST(Pods, multicast_only_where_the_file_says_so) {
  std::vector<Figure> figures = gpu_figures();
  set(figures, "scale_up.multicast", "no", "word");
  std::vector<int32_t> links;
  const auto plain = make_topology(make_machine("toy", "", figures), 8);
  EXPECT_FALSE(plain->can_multicast());
  EXPECT_THROW(plain->multicast(std::array{0, 1}, links), Error);
  EXPECT_FALSE(make_topology(torus_machine(4, 4, 1, 16), 16)->can_multicast());
}

}  // namespace trnsim::machine
