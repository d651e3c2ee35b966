// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "machine/blast.h"

#include <map>

#include "machine/clos_shape.h"
#include "machine/topology.h"

namespace trnsim::machine {
namespace {

class Blast {
 public:
  const ClosShape& shape() const { return shape_; }

  Blast(const Machine& machine, int64_t chips, int64_t box)
      : shape_(machine, chips, {}), box_(box), pod_chips_(pod_chips(machine, chips)) {
    for (int64_t edge = 0; edge < shape_.edges; ++edge) {
      chips_of_cluster_[edge / shape_.edges_per_cluster] +=
          int64_t(shape_.chips_under(edge).size());
    }
  }

  BlastRadius edges(const std::string& tier) const {
    BlastRadius worst = make(tier, shape_.edges);
    for (int64_t first = 0; first < shape_.edges; first += box_) {
      Lost lost;
      BlastRadius one = make(tier, shape_.edges);
      for (int64_t edge = first; edge < std::min(first + box_, shape_.edges); ++edge) {
        one.chips_cut += lose_edge(edge, lost);
      }
      count_pods(lost, one);
      if (first == 0 || is_worse(one, worst)) worst = one;
    }
    return worst;
  }

  BlastRadius middles(const std::string& tier) const {
    BlastRadius worst = make(tier, shape_.middles());
    for (int64_t first = 0; first < shape_.middles(); first += box_) {
      std::map<int64_t, int64_t> dead;  // by cluster
      const int64_t end = std::min(first + box_, shape_.middles());
      for (int64_t middle = first; middle < end; ++middle) ++dead[middle / shape_.planes];
      BlastRadius one = make(tier, shape_.middles());
      Lost lost;
      for (const auto& [cluster, count] : dead) {
        const int64_t chips = chips_of_cluster_.at(cluster);
        if (count == shape_.planes) {
          one.chips_cut += chips;
          const int64_t edges = cluster * shape_.edges_per_cluster;
          for (int64_t edge = edges; edge < shape_.edges_end(cluster); ++edge) {
            lose_edge(edge, lost);
          }
        } else {
          one.chips_slowed += chips;
          lose(one, count, shape_.planes);
        }
      }
      count_pods(lost, one);
      if (first == 0 || is_worse(one, worst)) worst = one;
    }
    return worst;
  }

  // Top switch v of plane j is number j V + v; a leaf sees those of its plane alone.
  BlastRadius tops() const {
    const int64_t per_plane = shape_.tops_per_plane, all = shape_.tops();
    BlastRadius worst = make("spine", all);
    for (int64_t first = 0; first < all; first += box_) {
      const int64_t end = std::min(first + box_, all), count = end - first;
      BlastRadius one = make("spine", all);
      if (count == all) {
        one.chips_cut = shape_.chip_count;
        one.pods_hit = ceil_div(shape_.chip_count, pod_chips_);
        one.pod_nics_left = {0, 1};
      } else {
        one.chips_slowed = shape_.chip_count;
        one.left_sprayed = Rational::of(all - count, all);
        // Planes that die as a whole pass on to the next one, others within.
        const int64_t planes = end / per_plane - ceil_div(first, per_plane);
        one.left_ecmp = planes > 0 ? Rational::of(1, planes + 1) : Rational::of(1, count + 1);
      }
      if (first == 0 || is_worse(one, worst)) worst = one;
    }
    return worst;
  }

 private:
  using Lost = std::map<int64_t, int64_t>;  // NICs by pod

  BlastRadius make(const std::string& tier, int64_t switches) const {
    BlastRadius radius;
    radius.tier = tier;
    radius.switches = switches;
    radius.box = box_;
    radius.boxes = ceil_div(switches, box_);
    return radius;
  }
  static void lose(BlastRadius& one, int64_t dead, int64_t of) {
    one.left_sprayed = std::min(one.left_sprayed, Rational::of(of - dead, of));
    one.left_ecmp = std::min(one.left_ecmp, Rational::of(1, dead + 1));
  }
  // Returns how many chips are under it.
  int64_t lose_edge(int64_t edge, Lost& lost) const {
    const auto chips = shape_.chips_under(edge);
    for (const int32_t chip : chips) ++lost[chip / pod_chips_];
    return int64_t(chips.size());
  }
  void count_pods(const Lost& lost, BlastRadius& one) const {
    one.pods_hit = int64_t(lost.size());
    for (const auto& [pod, nics] : lost) {
      const Rational left = Rational::of(pod_chips_ - nics, pod_chips_);
      one.pod_nics_left = std::min(one.pod_nics_left, left);
    }
  }
  static bool is_worse(const BlastRadius& a, const BlastRadius& b) {
    if (a.chips_cut != b.chips_cut) return a.chips_cut > b.chips_cut;
    if (a.chips_slowed != b.chips_slowed) return a.chips_slowed > b.chips_slowed;
    return a.left_sprayed < b.left_sprayed || a.left_ecmp < b.left_ecmp;
  }

  const ClosShape shape_;
  const int64_t box_, pod_chips_;
  std::map<int64_t, int64_t> chips_of_cluster_;
};

}  // namespace

std::vector<BlastRadius> blast_radius(const Machine& machine, int64_t chips, int64_t box) {
  check_chip_count(machine, chips);
  const int64_t pod = pod_chips(machine, chips);
  TRN_CHECK(machine.fabric.pods > 0 && chips > pod, machine,
            std::to_string(chips) + " chips of " + machine.name +
                " are in one pod and use no switch between pods",
            "use a machine that has a fabric, and the chips of several pods");
  TRN_CHECK(box > 0, machine, "a box of " + std::to_string(box) + " switches holds none",
            "use at least 1");
  const Blast blast(machine, chips, box);
  const bool has_tor = machine.fabric.has_tor;
  std::vector<BlastRadius> radii{blast.edges(has_tor ? "tor" : "leaf")};
  if (blast.shape().middles() > 0) radii.push_back(blast.middles(has_tor ? "leaf" : "spine"));
  if (blast.shape().tops() > 0) radii.push_back(blast.tops());
  return radii;
}

}  // namespace trnsim::machine
