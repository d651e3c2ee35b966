// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <bit>

#include "figures.h"
#include "routes.h"

namespace trnsim::machine {
namespace {

int32_t gray(int32_t i) { return i ^ (i >> 1); }
// The chip of the 2x2x2x2 cube that stands where chip (x, y) of a 4x4 torus does.
int32_t cube_chip(int32_t torus_chip) { return gray(torus_chip % 4) | gray(torus_chip / 4) << 2; }

// The cube's link for each of the torus; empty where it has none.
std::vector<int32_t> links_of_cube(const Topology& torus, const Topology& cube) {
  std::map<std::pair<int32_t, int32_t>, int32_t> of_pair;
  for (int32_t id = 0; id < cube.link_count(); ++id) {
    of_pair[{cube.link(id).from_node, cube.link(id).to_node}] = id;
  }
  std::vector<int32_t> mapped;
  for (int32_t id = 0; id < torus.link_count(); ++id) {
    const Link link = torus.link(id);
    const auto found = of_pair.find({cube_chip(link.from_node), cube_chip(link.to_node)});
    if (found == of_pair.end()) return {};
    mapped.push_back(found->second);
  }
  return mapped;
}

}  // namespace

TEST(Hypercube, has_a_link_for_each_axis_out_of_each_chip) {
  for (const int axes : {1, 2, 3, 4}) {
    const auto cube = make_topology(hypercube_machine(axes), 1 << axes);
    EXPECT_EQ(cube->link_count(), axes << axes);
    expect_links_from_is_complete(*cube, 0);
  }
}

TEST(Hypercube, flips_the_lowest_bit_first) {
  const auto cube = make_topology(hypercube_machine(4), 16);
  EXPECT_EQ(names(*cube, 0, 13), "x 0>1 z 1>5 w 5>13 ");
  EXPECT_EQ(names(*cube, 13, 0), "x 13>12 z 12>8 w 8>0 ");
  EXPECT_EQ(cube->links_from(5, Tier::w).size(), 1u);
}

TEST(Hypercube, takes_a_hop_for_each_bit_at_every_legal_count) {
  const Machine machine = hypercube_machine(4);
  for (const int64_t chips : legal_chip_counts(machine)) {
    const auto cube = make_topology(machine, chips);
    for (int32_t from = 0; from < chips; ++from) {
      for (int32_t to = 0; to < chips; ++to) {
        expect_path(*cube, from, to);
        EXPECT_EQ(cube->hops(from, to), std::popcount(unsigned(from ^ to)));
      }
    }
  }
}

TEST(Hypercube, of_sixteen_has_the_links_of_a_torus_of_four_by_four) {
  const auto torus = make_topology(torus_machine(4, 4, 1, 16), 16);
  const auto cube = make_topology(hypercube_machine(4), 16);
  std::vector<int32_t> mapped = links_of_cube(*torus, *cube);
  ASSERT_EQ(int64_t(mapped.size()), torus->link_count());
  std::sort(mapped.begin(), mapped.end());
  EXPECT_EQ(std::unique(mapped.begin(), mapped.end()), mapped.end());
  EXPECT_EQ(torus->link_count(), cube->link_count());
}

// All-to-all of B bytes a pair: every link carries 16 chips x 16 x 2 hops / 64 links = 8 routes, so
// all flows get an eighth of a link and end together, at 8 B / bandwidth, on both.
TEST(Hypercube, does_an_all_to_all_as_fast_as_the_torus_under_mapped_routes) {
  std::vector<Figure> figures = torus_figures(4, 4, 1, 16);
  set(figures, "scale_up.bandwidth_y", "100", "GB/s");
  const auto torus = make_topology(make_machine("toy-torus", "", figures), 16);
  const auto cube = make_topology(hypercube_machine(4), 16);
  const std::vector<int32_t> mapped = links_of_cube(*torus, *cube);
  std::vector<int64_t> load(size_t(cube->link_count()), 0);
  for (int32_t from = 0; from < 16; ++from) {
    for (int32_t to = 0; to < 16; ++to) {
      int32_t at = cube_chip(from);
      for (const int32_t id : route_of(*torus, from, to)) {
        const int32_t link = mapped[size_t(id)];
        ASSERT_EQ(cube->link(link).from_node, at);
        ASSERT_EQ(cube->link(link).rate, torus->link(id).rate);
        at = cube->link(link).to_node;
        ++load[size_t(link)];
      }
      ASSERT_EQ(at, cube_chip(to));
    }
  }
  EXPECT_EQ(load, std::vector<int64_t>(64, 8));
  EXPECT_EQ(all_to_all_load(*torus), load);
  EXPECT_EQ(all_to_all_load(*cube), load);  // its own routes too
}

}  // namespace trnsim::machine
