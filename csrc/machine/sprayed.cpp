// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The Clos of clos.cpp where every pair of chips spreads its packets evenly over all paths.
//
// Then the U links up from an edge switch carry the same at any time, as do the U V links up from
// the middle switches of a cluster, and those back: each of these sets is one link here, as wide as
// all of them. No route is chosen, and none can collide with another by chance. Links are those of
// clos.cpp otherwise, and have the same tiers:
//
//   link                  id                  name
//   chip c up, down       2c, 2c + 1          nic up c, nic down c
//   edge t - its middles  E + 2t, + 1         tor t>leaves (its cluster), and back
//   cluster k - the tops  M + 2k, + 1         leaves k>spines 0, and back
//
// With two tiers the middles are "spines 0". A fault on such a link is one on all of it; what one
// dead switch of many leaves of it is for whoever kills it to say (project/disturbance.h).
#include "machine/clos_shape.h"
#include "machine/piece.h"

namespace trnsim::machine {
namespace {

class Sprayed final : public Piece {
 public:
  Sprayed(const Machine& machine, int64_t chips, const std::vector<int64_t>& places)
      : has_tor_(machine.fabric.has_tor), shape_(machine, chips, places) {
    const Fabric& fabric = machine.fabric;
    const SwitchTier& edge = has_tor_ ? fabric.tor : fabric.leaf;
    chip_count_ = chips;
    nic_rate_ = link_rate(fabric.nic_Bps);
    const auto wide = [&](int64_t links) {
      return link_rate(fabric.port_Bps * Rational{links, 1});
    };
    edge_rate_ = wide(shape_.planes);
    if (has_tor_) cluster_rate_ = wide(shape_.planes * shape_.tops_per_plane);
    switch_count_ = shape_.edges;
    middle_from_ = 2 * chips;
    if (shape_.edges > 1) {
      switch_count_ += shape_.clusters;
      if (edge.is_blocking) middle_from_ += 2 * shape_.edges;
    }
    link_count_ = middle_from_;
    if (shape_.clusters > 1) {
      switch_count_ += 1;
      if (fabric.leaf.is_blocking) link_count_ += 2 * shape_.clusters;
    }
  }

  Link link(int32_t id) const override {
    Link link{0, 0, tier(id), rate(tier(id)), rate(tier(id))};
    if (id < edge_from()) {
      link.from_node = id / 2;
      link.to_node = edge_node(shape_.edge_of(id / 2));
    } else if (id < middle_from_) {
      const int64_t edge = (id - edge_from()) / 2;
      link.from_node = edge_node(edge);
      link.to_node = middle_node(edge / shape_.edges_per_cluster);
    } else {
      link.from_node = middle_node((id - middle_from_) / 2);
      link.to_node = top_node();
    }
    if (id % 2 != 0) std::swap(link.from_node, link.to_node);
    return link;
  }

  Tier tier(int32_t id) const override {
    Tier up = Tier::leaf_up;
    if (id < edge_from()) {
      up = Tier::nic_up;
    } else if (id < middle_from_ && has_tor_) {
      up = Tier::tor_up;
    }
    return Tier(int8_t(up) + id % 2);
  }
  int64_t rate(Tier tier) const override {
    if (tier == Tier::nic_up || tier == Tier::nic_down) return nic_rate_;
    const bool is_edge = !has_tor_ || tier == Tier::tor_up || tier == Tier::tor_down;
    return is_edge ? edge_rate_ : cluster_rate_;
  }
  const char* link_label(int32_t id) const override {
    if (id >= edge_from()) return "";
    return id % 2 == 0 ? "nic up" : "nic down";
  }
  std::string switch_name(int32_t index) const override {
    if (index < shape_.edges) return (has_tor_ ? "tor " : "leaf ") + std::to_string(index);
    const int64_t cluster = index - shape_.edges;
    if (has_tor_ && cluster < shape_.clusters) return "leaves " + std::to_string(cluster);
    return "spines 0";
  }

  void links_from(int32_t node, std::vector<int32_t>& links) const override {
    const int64_t index = -1 - int64_t(node), cluster = index - shape_.edges;
    if (node >= 0) {
      links.push_back(2 * node);
    } else if (index < shape_.edges) {
      for (const int32_t chip : shape_.chips_under(index)) links.push_back(2 * chip + 1);
      if (has_edge_links()) links.push_back(edge_link(index));
    } else if (cluster < shape_.clusters) {
      const int64_t first = cluster * shape_.edges_per_cluster;
      const int64_t end = has_edge_links() ? shape_.edges_end(cluster) : first;
      for (int64_t edge = first; edge < end; ++edge) links.push_back(edge_link(edge) + 1);
      if (has_top_links()) links.push_back(cluster_link(cluster));
    } else if (has_top_links()) {
      for (int64_t k = 0; k < shape_.clusters; ++k) links.push_back(cluster_link(k) + 1);
    }
  }

  bool route(int32_t from_chip, int32_t to_chip, const Alive& alive,
             std::vector<int32_t>& links) const override {
    if (from_chip == to_chip) return true;
    const size_t start = links.size();
    links.push_back(2 * from_chip);
    const int64_t from = shape_.edge_of(from_chip), to = shape_.edge_of(to_chip);
    const int64_t left = from / shape_.edges_per_cluster, right = to / shape_.edges_per_cluster;
    const bool crosses = from != to;
    if (crosses && has_edge_links()) links.push_back(edge_link(from));
    if (left != right && has_top_links()) {
      links.push_back(cluster_link(left));
      links.push_back(cluster_link(right) + 1);
    }
    if (crosses && has_edge_links()) links.push_back(edge_link(to) + 1);
    links.push_back(2 * to_chip + 1);
    for (size_t i = start; i < links.size(); ++i) {
      if (alive(links[i])) continue;
      links.resize(start);
      return false;
    }
    return true;
  }

  std::vector<Tier> tiers() const override {
    std::vector<Tier> tiers{Tier::nic_up, Tier::nic_down};
    if (has_edge_links()) {
      tiers.push_back(has_tor_ ? Tier::tor_up : Tier::leaf_up);
      tiers.push_back(has_tor_ ? Tier::tor_down : Tier::leaf_down);
    }
    if (has_top_links()) {
      tiers.push_back(Tier::leaf_up);
      tiers.push_back(Tier::leaf_down);
    }
    return tiers;
  }

  // One plane holds all.
  int64_t plane_of(int32_t link) const override { return link < edge_from() ? -1 : 0; }
  int64_t plane_to(int32_t /*chip*/) const override { return 0; }

  std::optional<LinkShift> shift_between(int32_t from, int32_t to,
                                         const Alive& alive) const override {
    if (shape_.edge_of(from) != shape_.edge_of(to)) return {};
    for (const int32_t chip : {from, to}) {
      if (!alive(2 * chip) || !alive(2 * chip + 1)) return {};
    }
    LinkShift shift{};
    for (const size_t down : {0, 1}) shift[size_t(Tier::nic_up) + down] = 2 * (to - from);
    return shift;
  }

 private:
  int64_t edge_from() const { return 2 * chip_count_; }
  bool has_edge_links() const { return middle_from_ > edge_from(); }
  bool has_top_links() const { return link_count_ > middle_from_; }
  int32_t edge_node(int64_t edge) const { return int32_t(-1 - edge); }
  int32_t middle_node(int64_t cluster) const { return int32_t(-1 - shape_.edges - cluster); }
  int32_t top_node() const { return int32_t(-1 - shape_.edges - shape_.clusters); }
  // The links upward; those down are one more.
  int32_t edge_link(int64_t edge) const { return int32_t(edge_from() + 2 * edge); }
  int32_t cluster_link(int64_t cluster) const { return int32_t(middle_from_ + 2 * cluster); }

  const bool has_tor_;
  const ClosShape shape_;
  int64_t middle_from_ = 0;  // first link to the top
  int64_t nic_rate_ = 0, edge_rate_ = 0, cluster_rate_ = 0;
};

}  // namespace

std::unique_ptr<Piece> make_sprayed(const Machine& machine, int64_t chips,
                                    const std::vector<int64_t>& pod_places) {
  return std::make_unique<Sprayed>(machine, chips, pod_places);
}

}  // namespace trnsim::machine
