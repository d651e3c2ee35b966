// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "machine/topology.h"

#include <algorithm>
#include <limits>

#include "machine/piece.h"

namespace trnsim::machine {
namespace {

std::unique_ptr<Piece> make_pod(const Machine& machine, int64_t chips) {
  switch (machine.scale_up) {
    case ScaleUp::torus:
      return make_torus(machine, chips);
    case ScaleUp::hypercube:
      return make_hypercube(machine, chips);
    case ScaleUp::one_switch:
      break;
  }
  return make_switch(machine, chips);
}

// Places are of the fabric's pods, one for each pod of the job, none twice.
void check_places(const Machine& machine, const std::vector<int64_t>& places, int64_t pods) {
  TRN_CHECK(int64_t(places.size()) == pods, machine,
            std::to_string(places.size()) + " places for " + std::to_string(pods) + " pods",
            "give each pod of the job one");
  std::vector<int64_t> sorted = places;
  std::sort(sorted.begin(), sorted.end());
  TRN_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() && sorted[0] >= 0,
            machine, "two pods of the job stand at one place, or one stands below 0",
            "give each pod a place of its own");
  TRN_CHECK(pods == 1 || sorted.back() < machine.fabric.pods, machine,
            "a pod stands at place " + std::to_string(sorted.back()) + ", and the fabric of " +
                machine.name + " joins " + std::to_string(machine.fabric.pods) + " pods",
            "use fewer chips or fewer spare pods");
}

}  // namespace

const char* tier_name(Tier tier) {
  static constexpr const char* kNames[kTiers] = {"x",           "y",        "z",       "switch up",
                                                 "switch down", "w",        "nic up",  "nic down",
                                                 "tor up",      "tor down", "leaf up", "leaf down"};
  return kNames[size_t(tier)];
}

int64_t link_rate(Rational bandwidth_Bps) {
  const int128 rate =
      int128(bandwidth_Bps.numerator) * kRateUnitsPerBps / bandwidth_Bps.denominator;
  TRN_CHECK(rate <= std::numeric_limits<int64_t>::max(), machine,
            "a link's bandwidth does not fit 64 bits", "write less than 9 PB/s");
  return int64_t(rate);
}

std::string Piece::switch_name(int32_t) const { return {}; }

Topology::Topology(const Machine& machine, int64_t chips, const Conditions& conditions)
    : machine_name_(machine.name), pod_places_(conditions.pod_places) {
  check_chip_count(machine, chips);
  pod_chips_ = machine::pod_chips(machine, chips);
  pod_count_ = chips / pod_chips_;
  if (!pod_places_.empty()) check_places(machine, pod_places_, pod_count_);
  pod_ = make_pod(machine, pod_chips_);
  pod_switches_ = pod_->switch_count();
  pod_link_count_ = pod_->link_count();
  can_multicast_ = machine.scale_up == ScaleUp::one_switch && machine.switch_multicasts;
  if (pod_count_ > 1) fabric_ = make_clos(machine, chips, conditions.seed, pod_places_);
  link_count_ = pod_count_ * pod_link_count_ + (fabric_ ? fabric_->link_count() : 0);
  const int64_t switches = pod_count_ * pod_switches_ + (fabric_ ? fabric_->switch_count() : 0);
  TRN_CHECK(std::max(link_count_, switches) < int64_t{1} << 31, machine,
            machine.name + " of " + std::to_string(chips) + " chips has " +
                std::to_string(link_count_) + " links and " + std::to_string(switches) +
                " switches, 2^31 or more of one",
            "use fewer chips, or switches with fewer ports (fabric.tor.radix, fabric.leaf.radix)");
  for (const LinkFault& fault : conditions.faults) apply(fault);
}

Topology::~Topology() = default;

// A piece's chip or switch; pod -1 is the fabric.
int32_t Topology::to_global(int32_t piece_node, int64_t pod) const {
  if (pod < 0) {
    return piece_node >= 0 ? piece_node : int32_t(piece_node - pod_count_ * pod_switches_);
  }
  return int32_t(piece_node >= 0 ? piece_node + pod * pod_chips_
                                 : piece_node - pod * pod_switches_);
}

Link Topology::link(int32_t id) const {
  TRN_ASSERT(id >= 0 && id < link_count_, "a link id comes from its topology");
  const bool in_fabric = is_in_fabric(id);
  const int64_t pod = in_fabric ? -1 : id / pod_link_count_;
  Link link =
      in_fabric ? fabric_->link(id - pod_links_from()) : pod_->link(int32_t(id % pod_link_count_));
  link.from_node = to_global(link.from_node, pod);
  link.to_node = to_global(link.to_node, pod);
  const auto factor = factors_.find(id);
  if (factor != factors_.end()) {
    link.rate =
        int64_t(int128(link.healthy_rate) * factor->second.numerator / factor->second.denominator);
  }
  return link;
}

std::string Topology::link_name(int32_t id) const {
  const Link of = link(id);
  const std::string label = is_in_fabric(id) ? fabric_->link_label(id - pod_links_from())
                                             : pod_->link_label(int32_t(id % pod_link_count_));
  if (label.empty()) return node_name(of.from_node) + ">" + node_name(of.to_node);
  if (of.from_node < 0 || of.to_node < 0) {
    return label + " " + std::to_string(std::max(of.from_node, of.to_node));
  }
  return label + " " + std::to_string(of.from_node) + ">" + std::to_string(of.to_node);
}

std::string Topology::node_name(int32_t node) const {
  if (node >= 0) return "chip " + std::to_string(node);
  const int64_t index = -1 - int64_t(node), pod_switches = pod_count_ * pod_switches_;
  if (index < pod_switches) return "switch " + std::to_string(index / pod_switches_);
  return fabric_->switch_name(int32_t(index - pod_switches));
}

std::vector<Tier> Topology::tiers() const {
  std::vector<Tier> tiers = pod_->tiers();
  if (fabric_) {
    for (const Tier tier : fabric_->tiers()) tiers.push_back(tier);
  }
  return tiers;
}

std::optional<LinkShift> Topology::shift_between(int32_t from_chip, int32_t to_chip) const {
  if (!fabric_) return {};
  for (const int32_t chip : {from_chip, to_chip}) {
    if (!dead_planes_.empty() && dead_planes_.contains(fabric_->plane_to(chip))) return {};
  }
  return fabric_->shift_between(from_chip, to_chip, {dead_, pod_links_from()});
}

int64_t Topology::plane_to(int32_t chip) const { return fabric_ ? fabric_->plane_to(chip) : -1; }

Tier Topology::tier(int32_t link) const {
  return is_in_fabric(link) ? fabric_->tier(link - pod_links_from())
                            : pod_->tier(int32_t(link % pod_link_count_));
}

int64_t Topology::healthy_rate(Tier tier) const {
  for (const Piece* piece : {pod_.get(), fabric_.get()}) {
    if (!piece) continue;
    const std::vector<Tier> tiers = piece->tiers();
    if (std::find(tiers.begin(), tiers.end(), tier) != tiers.end()) return piece->rate(tier);
  }
  return 0;
}

void Topology::links_from(int32_t node, std::vector<int32_t>& links) const {
  const size_t start = links.size();
  const int64_t index = -1 - int64_t(node), pod_switches = pod_count_ * pod_switches_;
  if (node >= 0 || index < pod_switches) {
    const int64_t pod = node >= 0 ? pod_of(node) : index / pod_switches_;
    const int64_t local = node >= 0 ? position_in_pod(node) : -1 - index % pod_switches_;
    pod_->links_from(int32_t(local), links);
    for (size_t i = start; i < links.size(); ++i) links[i] += int32_t(pod * pod_link_count_);
  }
  if (!fabric_ || (node < 0 && index < pod_switches)) return;
  const size_t middle = links.size();
  fabric_->links_from(node >= 0 ? node : int32_t(node + pod_switches), links);
  for (size_t i = middle; i < links.size(); ++i) links[i] += pod_links_from();
}

std::vector<int32_t> Topology::links_from(int32_t node, Tier tier) const {
  std::vector<int32_t> links;
  links_from(node, links);
  std::erase_if(links, [&](int32_t id) { return link(id).tier != tier; });
  return links;
}

void Topology::route(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const {
  TRN_ASSERT(from_chip >= 0 && from_chip < chip_count() && to_chip >= 0 && to_chip < chip_count(),
             "a route goes between chips in use");
  if (pod_of(from_chip) == pod_of(to_chip)) {
    if (route_in_pod(from_chip, to_chip, links)) return;
  } else {
    if (route_in_fabric(from_chip, to_chip, links)) return;
    if (route_by_other_nics(from_chip, to_chip, links)) return;
  }
  throw Error(ErrorKind::machine,
              machine_name_ + ": chips " + std::to_string(from_chip) + " and " +
                  std::to_string(to_chip) + " cannot reach each other: dead links part the network",
              "use chips that are joined, or let some of the links live");
}

bool Topology::route_in_pod(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const {
  const size_t start = links.size();
  const int64_t offset = pod_of(from_chip) * pod_link_count_;
  if (!pod_->route(int32_t(position_in_pod(from_chip)), int32_t(position_in_pod(to_chip)),
                   {dead_, offset}, links)) {
    return detour(from_chip, to_chip, links);
  }
  for (size_t i = start; i < links.size(); ++i) links[i] += int32_t(offset);
  return true;
}

bool Topology::route_in_fabric(int32_t from_chip, int32_t to_chip,
                               std::vector<int32_t>& links) const {
  const size_t start = links.size();
  if (!fabric_->route(from_chip, to_chip, {dead_, pod_links_from()}, links)) return false;
  for (size_t i = start; i < links.size(); ++i) links[i] += pod_links_from();
  return true;
}

int64_t Topology::hops(int32_t from_chip, int32_t to_chip) const {
  std::vector<int32_t> links;
  route(from_chip, to_chip, links);
  return int64_t(links.size());
}

void Topology::multicast(std::span<const int32_t> chips, std::vector<int32_t>& links) const {
  TRN_CHECK(can_multicast_, machine, machine_name_ + " has no switch that multicasts",
            "use another algorithm, or scale_up.multicast = yes");
  for (const int32_t chip : chips) {
    TRN_CHECK(pod_of(chip) == pod_of(chips[0]), machine,
              "chips " + std::to_string(chips[0]) + " and " + std::to_string(chip) +
                  " are on different switches, and a multicast stays on one",
              "take chips of one pod");
    const int32_t up = int32_t(pod_of(chip) * pod_link_count_ + 2 * position_in_pod(chip));
    for (const int32_t id : {up, up + 1}) {
      TRN_CHECK(dead_.empty() || !dead_[size_t(id)], machine,
                machine_name_ + ": link " + link_name(id) + " is dead, and a multicast needs it",
                "leave the chip out");
      links.push_back(id);
    }
  }
}

std::unique_ptr<Topology> make_topology(const Machine& machine, int64_t chips) {
  return make_topology(machine, chips, {});
}

std::unique_ptr<Topology> make_topology(const Machine& machine, int64_t chips,
                                        const Conditions& conditions) {
  return std::make_unique<Topology>(machine, chips, conditions);
}

}  // namespace trnsim::machine
