// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Clos: chips -> edge switches -> middle switches -> top switches. With three tiers these are ToR,
// leaf and spine; with two, leaf and spine, and everything is one cluster.
//
// Which chip is under which switch: clos_shape.h. An edge switch has one link to each of its U
// middle switches, the planes 0..U-1. A cluster has one middle switch a plane. Middle switch j of
// each cluster has one link to each of the V top switches of plane j. Only what the chips in use
// can reach is there: one edge switch has no links upward, one cluster none to the top.
//
//   link                  id                        name
//   chip c up, down       2c, 2c + 1                nic up c, nic down c
//   edge t - plane j      E + 2 (t U + j), + 1      tor t>leaf (cluster U + j), and back
//   middle l - top v      M + 2 (l V + v), + 1      leaf l>spine (j V + v), and back
//
// A tier whose links the file declares non-blocking has none, and routes leave it out.
//
// D-mod-K: plane = place of the destination under its edge switch mod U, top = place of the
// destination's edge switch in its cluster mod V. All flows to a chip come down the same links, and
// without oversubscription no other flow does. It depends on places alone, not on which cluster, so
// that pods at the same places are alike. Hashed ECMP takes both from a hash of (seed, from, to).
// Where the choice is dead the next top switch, then the next plane is taken.
//
// Where pods stand at other places than the first (Conditions::pod_places), switches are those of
// the places, and chips keep their numbers in the job: chip c is under the switch of its place.
#include <algorithm>

#include "base/hash.h"
#include "machine/clos_shape.h"
#include "machine/piece.h"

namespace trnsim::machine {
namespace {

class Clos final : public Piece {
 public:
  Clos(const Machine& machine, int64_t chips, uint64_t seed, const std::vector<int64_t>& places)
      : fabric_(machine.fabric),
        seed_(seed),
        shape_(machine, chips, places),
        planes_(shape_.planes),
        tops_per_plane_(shape_.tops_per_plane),
        edges_(shape_.edges),
        edges_per_cluster_(shape_.edges_per_cluster),
        clusters_(shape_.clusters) {
    const SwitchTier& edge = fabric_.has_tor ? fabric_.tor : fabric_.leaf;
    chip_count_ = chips;
    nic_rate_ = link_rate(fabric_.nic_Bps);
    port_rate_ = link_rate(fabric_.port_Bps);
    switch_count_ = edges_ + shape_.middles() + shape_.tops();
    middle_from_ = edge_from_ = 2 * chips;
    if (edges_ > 1 && edge.is_blocking) middle_from_ += 2 * edges_ * planes_;
    link_count_ = middle_from_;
    if (clusters_ > 1 && fabric_.leaf.is_blocking) {
      link_count_ += 2 * clusters_ * planes_ * tops_per_plane_;
    }
  }

  Link link(int32_t id) const override {
    Link link{0, 0, tier(id), rate(tier(id)), rate(tier(id))};
    if (id < edge_from_) {
      link.from_node = id / 2;
      link.to_node = edge_node(shape_.edge_of(id / 2));
    } else if (id < middle_from_) {
      const int64_t index = (id - edge_from_) / 2, edge = index / planes_;
      link.from_node = edge_node(edge);
      link.to_node = middle_node(edge / edges_per_cluster_ * planes_ + index % planes_);
    } else {
      const int64_t index = (id - middle_from_) / 2, middle = index / tops_per_plane_;
      link.from_node = middle_node(middle);
      link.to_node = top_node(middle % planes_ * tops_per_plane_ + index % tops_per_plane_);
    }
    if (id % 2 != 0) std::swap(link.from_node, link.to_node);
    return link;
  }

  Tier tier(int32_t id) const override {
    Tier up = Tier::leaf_up;
    if (id < edge_from_) {
      up = Tier::nic_up;
    } else if (id < middle_from_ && fabric_.has_tor) {
      up = Tier::tor_up;
    }
    return Tier(int8_t(up) + id % 2);  // its down follows it
  }
  int64_t rate(Tier tier) const override {
    return tier == Tier::nic_up || tier == Tier::nic_down ? nic_rate_ : port_rate_;
  }

  const char* link_label(int32_t id) const override {
    if (id >= edge_from_) return "";
    return id % 2 == 0 ? "nic up" : "nic down";
  }

  std::string switch_name(int32_t index) const override {
    const bool three = fabric_.has_tor;
    if (index < edges_) return (three ? "tor " : "leaf ") + std::to_string(index);
    const int64_t middle = index - edges_, middles = clusters_ * planes_;
    if (middle < middles) return (three ? "leaf " : "spine ") + std::to_string(middle);
    return "spine " + std::to_string(middle - middles);
  }

  void links_from(int32_t node, std::vector<int32_t>& links) const override {
    if (node >= 0) {
      links.push_back(2 * node);
      return;
    }
    const int64_t index = -1 - int64_t(node), middle = index - edges_;
    const int64_t middles = clusters_ * planes_;
    if (index < edges_) {
      links_from_edge(index, links);
    } else if (middle < middles) {
      links_from_middle(middle, links);
    } else if (link_count_ > middle_from_) {
      const int64_t top = middle - middles, plane = top / tops_per_plane_;
      for (int64_t cluster = 0; cluster < clusters_; ++cluster) {
        links.push_back(top_link(cluster * planes_ + plane, top % tops_per_plane_) + 1);
      }
    }
  }

  bool route(int32_t from_chip, int32_t to_chip, const Alive& alive,
             std::vector<int32_t>& links) const override {
    if (from_chip == to_chip) return true;
    const int32_t up = 2 * from_chip, down = 2 * to_chip + 1;
    if (!alive(up) || !alive(down)) return false;
    const size_t start = links.size();
    links.push_back(up);
    if (!cross(from_chip, to_chip, alive, links)) {
      links.resize(start);
      return false;
    }
    links.push_back(down);
    return true;
  }

  std::vector<Tier> tiers() const override {
    std::vector<Tier> tiers{Tier::nic_up, Tier::nic_down};
    if (middle_from_ > edge_from_) {
      tiers.push_back(fabric_.has_tor ? Tier::tor_up : Tier::leaf_up);
      tiers.push_back(fabric_.has_tor ? Tier::tor_down : Tier::leaf_down);
    }
    if (link_count_ > middle_from_) {
      tiers.push_back(Tier::leaf_up);
      tiers.push_back(Tier::leaf_down);
    }
    return tiers;
  }

  int64_t plane_of(int32_t link) const override {
    if (link < edge_from_) return -1;
    if (link < middle_from_) return (link - edge_from_) / 2 % planes_;
    return (link - middle_from_) / 2 / tops_per_plane_ % planes_;
  }
  int64_t plane_to(int32_t chip) const override {
    return int64_t(uint32_t(shape_.place_under_edge(chip)) % uint32_t(planes_));
  }

  std::optional<LinkShift> shift_between(int32_t from, int32_t to,
                                         const Alive& alive) const override {
    if (fabric_.paths == Paths::hashed || shape_.edge_of(from) != shape_.edge_of(to)) return {};
    for (const int32_t chip : {from, to}) {
      if (!alive(2 * chip) || !alive(2 * chip + 1)) return {};
    }
    const auto planes = int32_t(plane_to(to) - plane_to(from));
    const int32_t tops = 2 * planes * int32_t(fabric_.has_tor ? tops_per_plane_ : 1);
    LinkShift shift{};
    for (const size_t down : {0, 1}) {
      shift[size_t(Tier::nic_up) + down] = 2 * (to - from);
      shift[size_t(Tier::tor_up) + down] = 2 * planes;
      shift[size_t(Tier::leaf_up) + down] = tops;
    }
    return shift;
  }

 private:
  int32_t edge_node(int64_t edge) const { return int32_t(-1 - edge); }
  int32_t middle_node(int64_t middle) const { return int32_t(-1 - edges_ - middle); }
  int32_t top_node(int64_t top) const { return int32_t(-1 - edges_ - clusters_ * planes_ - top); }
  // The links upward; those down are one more.
  int32_t edge_link(int64_t edge, int64_t plane) const {
    return int32_t(edge_from_ + 2 * (edge * planes_ + plane));
  }
  int32_t top_link(int64_t middle, int64_t top) const {
    return int32_t(middle_from_ + 2 * (middle * tops_per_plane_ + top));
  }

  void links_from_edge(int64_t edge, std::vector<int32_t>& links) const {
    for (const int32_t chip : shape_.chips_under(edge)) links.push_back(2 * chip + 1);
    if (middle_from_ == edge_from_) return;
    for (int64_t plane = 0; plane < planes_; ++plane) links.push_back(edge_link(edge, plane));
  }

  void links_from_middle(int64_t middle, std::vector<int32_t>& links) const {
    const int64_t cluster = middle / planes_, plane = middle % planes_;
    if (middle_from_ > edge_from_) {
      const int64_t first = cluster * edges_per_cluster_;
      for (int64_t edge = first; edge < shape_.edges_end(cluster); ++edge) {
        links.push_back(edge_link(edge, plane) + 1);
      }
    }
    if (link_count_ == middle_from_) return;
    for (int64_t top = 0; top < tops_per_plane_; ++top) links.push_back(top_link(middle, top));
  }

  // Edge to edge, over whichever plane and top switch work.
  bool cross(int64_t from_chip, int64_t to_chip, const Alive& alive,
             std::vector<int32_t>& links) const {
    const int64_t from = shape_.edge_of(from_chip), to = shape_.edge_of(to_chip);
    if (from == to) return true;
    int64_t first_plane = shape_.place_under_edge(to_chip), first_top = to % edges_per_cluster_;
    if (fabric_.paths == Paths::hashed) {
      const uint64_t hash = combine(combine(seed_, uint64_t(from_chip)), uint64_t(to_chip));
      first_plane = int64_t(hash & 0xffffffff);
      first_top = int64_t(hash >> 32);
    }
    for (int64_t i = 0; i < planes_; ++i) {
      const int64_t plane = (first_plane + i) % planes_;
      if (cross_by(plane, from, to, first_top, alive, links)) return true;
    }
    return false;
  }

  bool cross_by(int64_t plane, int64_t from, int64_t to, int64_t first_top, const Alive& alive,
                std::vector<int32_t>& links) const {
    const bool edge_links = middle_from_ > edge_from_;
    const int32_t up = edge_link(from, plane), down = edge_link(to, plane) + 1;
    if (edge_links && (!alive(up) || !alive(down))) return false;
    const int64_t left = from / edges_per_cluster_, right = to / edges_per_cluster_;
    const bool top_links = left != right && link_count_ > middle_from_;
    int64_t top = 0;
    const auto works = [&] {
      return alive(top_link(left * planes_ + plane, top)) &&
             alive(top_link(right * planes_ + plane, top) + 1);
    };
    if (top_links) {
      int64_t tried = 0;
      do {
        top = (first_top + tried) % tops_per_plane_;
      } while (!works() && ++tried < tops_per_plane_);
      if (tried == tops_per_plane_) return false;
    }
    if (edge_links) links.push_back(up);
    if (top_links) {
      links.push_back(top_link(left * planes_ + plane, top));
      links.push_back(top_link(right * planes_ + plane, top) + 1);
    }
    if (edge_links) links.push_back(down);
    return true;
  }

  const Fabric fabric_;
  const uint64_t seed_;
  const ClosShape shape_;
  const int64_t planes_, tops_per_plane_, edges_, edges_per_cluster_, clusters_;  // the shape's
  int64_t edge_from_ = 0, middle_from_ = 0;  // first link of the tier
  int64_t nic_rate_ = 0, port_rate_ = 0;
};

}  // namespace

std::unique_ptr<Piece> make_clos(const Machine& machine, int64_t chips, uint64_t seed,
                                 const std::vector<int64_t>& pod_places) {
  if (machine.fabric.paths == Paths::sprayed) return make_sprayed(machine, chips, pod_places);
  return std::make_unique<Clos>(machine, chips, seed, pod_places);
}

}  // namespace trnsim::machine
