// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// ClosShape: how many switches the fabric of so many chips has, and which chip is under which.
// A server's chips spread over `rails` edge switches, chip i of a server on rail i mod rails; an
// edge switch takes the same rail of as many servers as its ports hold, and `rails` edge switches
// of the same servers are a block. As many edge switches as a middle switch has ports down are a
// cluster. Private to machine/, but for project/, which counts what dies with a switch.
#pragma once

#include <algorithm>
#include <vector>

#include "machine/machine.h"

namespace trnsim::machine {

class ClosShape {
 public:
  // places: of the job's pods in the fabric; empty: the first.
  ClosShape(const Machine& machine, int64_t chips, const std::vector<int64_t>& places)
      : chip_count(chips),
        server_chips_(machine.server.chips),
        rails_(machine.fabric.rails),
        places_(places) {
    const Fabric& fabric = machine.fabric;
    const SwitchTier& edge = fabric.has_tor ? fabric.tor : fabric.leaf;
    int64_t places_end = chips;
    if (!places_.empty()) {
      pod_chips_ = chips / int64_t(places_.size());
      places_end = (*std::max_element(places_.begin(), places_.end()) + 1) * pod_chips_;
      chip_at_.assign(size_t(places_end), -1);
      for (int32_t chip = 0; chip < chips; ++chip) chip_at_[size_t(place_of(chip))] = chip;
    }
    planes = edge.up_ports;
    chips_per_edge_of_server_ = server_chips_ / rails_;
    servers_per_edge_ = edge.down_ports / chips_per_edge_of_server_;
    edges = ceil_div(ceil_div(places_end, server_chips_), servers_per_edge_) * rails_;
    edges_per_cluster = fabric.has_tor ? fabric.leaf.down_ports : edges;
    tops_per_plane = fabric.has_tor ? fabric.leaf.up_ports : 0;
    clusters = ceil_div(edges, edges_per_cluster);
  }

  int64_t chip_count;
  int64_t edges = 0, edges_per_cluster = 0, clusters = 0;
  int64_t planes = 0, tops_per_plane = 0;  // tops: none with two tiers
  // Switches in use above the edges: none above one edge, no tops above one cluster.
  int64_t middles() const { return edges > 1 ? clusters * planes : 0; }
  int64_t tops() const { return clusters > 1 ? planes * tops_per_plane : 0; }

  // Where a chip of the job stands, and which stands there (-1: none).
  int64_t place_of(int64_t chip) const {
    if (places_.empty()) return chip;
    return places_[size_t(chip / pod_chips_)] * pod_chips_ + chip % pod_chips_;
  }
  int64_t chip_at(int64_t place) const {
    if (places_.empty()) return place < chip_count ? place : -1;
    return place < int64_t(chip_at_.size()) ? chip_at_[size_t(place)] : -1;
  }
  // In 32 bits: asked for every chip of a job, and what they divide by fits.
  int64_t edge_of(int64_t chip) const {
    const auto id = uint32_t(place_of(chip)), size = uint32_t(server_chips_),
               rails = uint32_t(rails_);
    return int64_t(id / size / uint32_t(servers_per_edge_) * rails + id % size % rails);
  }
  int64_t place_under_edge(int64_t chip) const {
    const auto id = uint32_t(place_of(chip)), size = uint32_t(server_chips_);
    return int64_t(id / size % uint32_t(servers_per_edge_) * uint32_t(chips_per_edge_of_server_) +
                   id % size / uint32_t(rails_));
  }
  // The chips in use under it, by place.
  std::vector<int32_t> chips_under(int64_t edge) const {
    std::vector<int32_t> chips;
    const int64_t rail = edge % rails_, first = edge / rails_ * servers_per_edge_;
    for (int64_t server = first; server < first + servers_per_edge_; ++server) {
      for (int64_t i = 0; i < chips_per_edge_of_server_; ++i) {
        const int64_t chip = chip_at(server * server_chips_ + i * rails_ + rail);
        if (chip >= 0) chips.push_back(int32_t(chip));
      }
    }
    return chips;
  }
  int64_t edges_end(int64_t cluster) const {
    return std::min(edges, (cluster + 1) * edges_per_cluster);
  }

 private:
  int64_t server_chips_, rails_, servers_per_edge_ = 0, chips_per_edge_of_server_ = 0;
  int64_t pod_chips_ = 1;              // with places_
  const std::vector<int64_t> places_;  // of the job's pods; empty: the first
  std::vector<int32_t> chip_at_;       // by place; empty with places_
};

}  // namespace trnsim::machine
