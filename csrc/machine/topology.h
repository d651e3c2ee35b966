// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Topology: the directed links of the chips in use, and the links of a route. Placement: where a
// rank sits.
//
// Chips of a pod are joined by one network (torus.cpp, hypercube.cpp, switch.cpp), and every pod is
// the same; pods are joined by a fabric (clos.cpp). Chip id = ((pod*Z + z)*Y + y)*X + x. The first
// N chips are used: within a server, whole servers or whole pods. Where a machine cuts its torus
// into slices, X, Y and Z are those of the slice of N chips, which then is all that there is of the
// pod. A job of several pods may take a part of each (Machine::job_chips), and chips are numbered
// as if there were no others. A route inside a pod stays there; a route between pods goes from the
// chip's own NIC over the fabric to the other chip's.
//
// A node is a chip (>= 0) or a switch (< 0: -1, -2, ...; each pod's switch first, then the
// fabric's). Links are numbered pod by pod, then the fabric's, and hold no text: link and link_name
// are computed from the id, so that millions of links cost nothing until they are asked for. Links
// that the machine file declares non-blocking are not there at all.
//
// Conditions name links that are dead or slow from the start. Routes go around dead ones: in a pod
// by another way round or order of axes, and failing that by the shortest way left; in the fabric
// by another leaf or spine; past a dead NIC through the nearest chip of the pod whose NIC works.
// A message between pods never passes through a third pod. Two chips that cannot reach each other
// so are an error of the route that asks for them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "machine/machine.h"

namespace trnsim::machine {

class Piece;

// Which part of the network a link belongs to, for reports. x to w: an axis of a torus or cube.
enum class Tier : int8_t {
  x,
  y,
  z,
  switch_up,
  switch_down,
  w,
  nic_up,
  nic_down,
  tor_up,  // from a ToR to a leaf
  tor_down,
  leaf_up,  // from a leaf to a spine
  leaf_down,
};
inline constexpr size_t kTiers = 12;
const char* tier_name(Tier tier);  // "x", "switch up", "leaf down"
// A NIC's or between switches: not inside a pod.
constexpr bool is_of_fabric(Tier tier) { return tier >= Tier::nic_up; }

struct Link {
  int32_t from_node = 0, to_node = 0;
  Tier tier = Tier::x;
  int64_t rate = 0;          // 1/1024 B/s; 0 = dead
  int64_t healthy_rate = 0;  // without the Conditions
};

// By tier, how far ids of links are moved.
using LinkShift = std::array<int32_t, kTiers>;

struct LinkFault {
  // A link ("x+ 0>1", "nic up 5", "tor 3>leaf 7"), two neighbouring nodes, which means the link
  // from one to the other ("0>1", "leaf 7>tor 3"), or a node, which means all its links both ways
  // ("chip 5", "tor 3", "spine 0").
  std::string where;
  Rational factor;  // of its bandwidth, up to 1; 0 = dead
};

struct Conditions {
  std::vector<LinkFault> faults;  // on one link the factors multiply
  uint64_t seed = 0;              // of hashed ECMP
  // Where in the fabric each pod of the job stands, ascending or not, each place once; empty: at
  // 0, 1, 2, ... Others stand idle or out of service. Chips keep their numbers in the job.
  std::vector<int64_t> pod_places = {};
};

class Topology {
 public:
  Topology(const Machine& machine, int64_t chips, const Conditions& conditions);
  ~Topology();

  int64_t chip_count() const { return pod_count_ * pod_chips_; }
  int64_t pod_count() const { return pod_count_; }
  int64_t pod_chips() const { return pod_chips_; }
  int64_t pod_of(int32_t chip) const { return chip / pod_chips_; }
  int64_t position_in_pod(int32_t chip) const { return chip % pod_chips_; }
  const std::vector<int64_t>& pod_places() const { return pod_places_; }  // of the Conditions

  int64_t link_count() const { return link_count_; }
  int64_t pod_link_count() const { return pod_link_count_; }  // of one pod
  // Links that are slow or dead, by id, with the share of their bandwidth that is left.
  const std::map<int32_t, Rational>& faults() const { return factors_; }
  Link link(int32_t id) const;
  std::string link_name(int32_t id) const;
  std::string node_name(int32_t node) const;  // "chip 5", "tor 3"
  std::vector<Tier> tiers() const;            // that have links, ascending
  Tier tier(int32_t link) const;              // link(id).tier, at less cost
  int64_t healthy_rate(Tier tier) const;      // of its links; 0 where there are none

  // Appends the link ids of the route; nothing when from == to. Throws MachineError when dead links
  // cut the two chips off from each other. Allocates only where dead links leave no regular route.
  void route(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const;
  int64_t hops(int32_t from_chip, int32_t to_chip) const;
  // A fabric whose routes depend on places alone treats chips under one switch alike: the link ids
  // of the routes among some chips, one in each pod, moved by the shifts of their pods, where these
  // are all the same, are those of the routes among the others. Nothing where that is not known, as
  // with hashed ECMP, or where something on these routes is dead.
  std::optional<LinkShift> shift_between(int32_t from_chip, int32_t to_chip) const;
  // Of a fabric without hashed ECMP or dead links: the routes to chips of different planes share no
  // link between switches.
  int64_t plane_to(int32_t chip) const;
  // Appends the links that leave a node, dead or not; with a tier, only those of that tier (torus:
  // one or two; switch: the up link).
  void links_from(int32_t node, std::vector<int32_t>& links) const;
  std::vector<int32_t> links_from(int32_t node, Tier tier) const;

  // Whether the pod's switch copies and adds on the way. Then a collective of chips of one pod in
  // which every chip sends a byte and receives the result loads each member's up and down link
  // once: the links that `multicast` appends, in the order of the chips. Throws MachineError where
  // the switch cannot, where chips are of several pods, and where one of those links is dead.
  bool can_multicast() const { return can_multicast_; }
  void multicast(std::span<const int32_t> chips, std::vector<int32_t>& links) const;

 private:
  int32_t pod_links_from() const { return int32_t(pod_count_ * pod_link_count_); }
  bool is_in_fabric(int32_t link) const { return link >= pod_links_from(); }
  int32_t to_global(int32_t piece_node, int64_t pod) const;
  bool route_in_pod(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const;
  bool detour(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const;
  bool route_in_fabric(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const;
  bool route_by_other_nics(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const;
  std::vector<int32_t> chips_by_distance(int32_t chip, bool towards_it) const;
  void apply(const LinkFault& fault);
  static constexpr int32_t kNoNode = INT32_MIN;
  std::vector<int32_t> find_links(const std::string& where) const;
  int32_t find_node(const std::string& name) const;  // or kNoNode
  void links_to(int32_t node, std::vector<int32_t>& links) const;

  std::string machine_name_;
  std::vector<int64_t> pod_places_;
  int64_t pod_count_ = 1, pod_chips_ = 1;
  int64_t pod_link_count_ = 0, link_count_ = 0;
  int64_t pod_switches_ = 0;  // of one pod
  bool can_multicast_ = false;
  std::unique_ptr<Piece> pod_, fabric_;  // fabric_ is null for one pod
  std::map<int32_t, Rational> factors_;  // of slow and dead links
  std::vector<bool> dead_;               // by link; empty when none is
  std::set<int64_t> dead_planes_;        // of the fabric, with a dead link
};

// The first `chips` chips of the machine. Throws MachineError with the nearest legal counts, and on
// a fault that names no link.
std::unique_ptr<Topology> make_topology(const Machine& machine, int64_t chips);
std::unique_ptr<Topology> make_topology(const Machine& machine, int64_t chips,
                                        const Conditions& conditions);
// Chips of a whole pod: the torus, the hypercube, or what is on the switch.
int64_t pod_chips(const Machine& machine);
// Of each pod, in a job of several pods: Machine::job_chips, or all.
int64_t chips_of_each_pod(const Machine& machine);
// Of one pod, in a job of `chips` chips: all of them if it is in one pod.
int64_t pod_chips(const Machine& machine, int64_t chips);
// Chips of all its pods.
int64_t max_chips(const Machine& machine);
// All chip counts that make_topology takes, ascending.
std::vector<int64_t> legal_chip_counts(const Machine& machine);
// Throws MachineError, with the reason and the nearest legal counts, unless the machine takes
// `chips` chips.
void check_chip_count(const Machine& machine, int64_t chips);
// Extents of the box that `chips` chips span in a pod: their slice, or what the first chips of the
// torus take; {1,1,1} unless it is a torus.
std::array<int64_t, 3> used_torus(const Machine& machine, int64_t chips);
// Whether the box is full, so that every line along an axis has all its chips.
bool fills_used_torus(const Machine& machine, int64_t chips);
// Whether lines along the axis close to rings: as the slice says, or if the whole extent is used
// and there is more than one.
bool axis_wraps(const Machine& machine, int64_t chips, int axis);

struct Placement {
  int64_t chips = 0, ranks_per_chip = 1, ranks = 0;
  int64_t ranks_per_server = 0;
  int64_t chip_of(int64_t rank) const { return rank / ranks_per_chip; }
};
// At most one of chips and ranks may be 0 (then it follows from the other); ranks_per_chip 0 is the
// chip's default. Throws MachineError on contradictions, and on ranks_per_chip that the chip does
// not allow.
Placement make_placement(const Machine& machine, int64_t chips, int64_t ranks,
                         int64_t ranks_per_chip);
// (total - reserved) / ranks_per_chip
int64_t rank_memory_bytes(const Machine& machine, int64_t ranks_per_chip);

}  // namespace trnsim::machine
