// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What holds of every route, said in the obvious way.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <queue>
#include <random>
#include <set>

#include "machine/topology.h"

namespace trnsim::machine {

inline std::vector<int32_t> route_of(const Topology& topology, int32_t from, int32_t to) {
  std::vector<int32_t> links;
  topology.route(from, to, links);
  return links;
}

inline std::string names(const Topology& topology, int32_t from, int32_t to) {
  std::string text;
  for (const int32_t id : route_of(topology, from, to)) text += topology.link_name(id) + " ";
  return text;
}

// Shortest distances by breadth first search over the links that work.
inline std::map<int32_t, int64_t> distances_from(const Topology& topology, int32_t start) {
  std::map<int32_t, std::vector<int32_t>> neighbours;
  for (int32_t id = 0; id < topology.link_count(); ++id) {
    const Link link = topology.link(id);
    if (link.rate > 0) neighbours[link.from_node].push_back(link.to_node);
  }
  std::map<int32_t, int64_t> distance{{start, 0}};
  std::queue<int32_t> queue({start});
  while (!queue.empty()) {
    const int32_t node = queue.front();
    queue.pop();
    for (const int32_t next : neighbours[node]) {
      if (distance.emplace(next, distance[node] + 1).second) queue.push(next);
    }
  }
  return distance;
}

// The route is a path of links that work from one chip to the other that visits no node twice.
inline void expect_path(const Topology& topology, int32_t from, int32_t to) {
  std::set<int32_t> visited = {from};
  int32_t node = from;
  for (const int32_t id : route_of(topology, from, to)) {
    const Link link = topology.link(id);
    ASSERT_GT(link.rate, 0) << topology.link_name(id);
    ASSERT_EQ(link.from_node, node) << from << ">" << to << " at " << topology.link_name(id);
    node = link.to_node;
    ASSERT_TRUE(visited.insert(node).second)
        << from << ">" << to << " visits " << topology.node_name(node) << " twice";
  }
  ASSERT_EQ(node, to);
}

// How many routes of an all-to-all use each link.
inline std::vector<int64_t> all_to_all_load(const Topology& topology) {
  std::vector<int64_t> load(size_t(topology.link_count()), 0);
  std::vector<int32_t> links;
  for (int32_t from = 0; from < topology.chip_count(); ++from) {
    for (int32_t to = 0; to < topology.chip_count(); ++to) {
      links.clear();
      topology.route(from, to, links);
      for (const int32_t id : links) ++load[size_t(id)];
    }
  }
  return load;
}

// links_from of all nodes gives every link once, under its own from_node.
inline void expect_links_from_is_complete(const Topology& topology, int32_t switches) {
  std::vector<int32_t> all, out;
  for (int32_t node = -switches; node < topology.chip_count(); ++node) {
    out.clear();
    topology.links_from(node, out);
    for (const int32_t id : out) ASSERT_EQ(topology.link(id).from_node, node);
    all.insert(all.end(), out.begin(), out.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(int64_t(all.size()), topology.link_count());
  for (int32_t id = 0; id < topology.link_count(); ++id) ASSERT_EQ(all[size_t(id)], id);
}

}  // namespace trnsim::machine
