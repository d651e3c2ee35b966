// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/expand.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "lower/trees.h"

namespace trnsim::fold {

using lower::Pattern;

namespace {

// X, Y and Z in the pod, and the pod.
std::array<int64_t, 4> coordinates(int32_t chip, const Geometry& geometry) {
  const int64_t at = geometry.topology.position_in_pod(chip);
  const auto& extents = geometry.extents;
  return {at % extents[0], at / extents[0] % extents[1], at / extents[0] / extents[1],
          geometry.topology.pod_of(chip)};
}

}  // namespace

Shape shape_of(const lower::PhaseTemplate& phase, int64_t root) {
  const bool is_rooted =
      phase.pattern == Pattern::one_to_all || phase.pattern == Pattern::all_to_one;
  return {phase.pattern,  phase.scope,          phase.axis, phase.axes_mask,
          phase.distance, is_rooted ? root : 0, phase.parts};
}

Tracer::Tracer(const Geometry& geometry)
    : geometry_(geometry), counts_(size_t(geometry.topology.link_count()), 0) {}

void Tracer::count(int32_t link, int64_t sends) {
  int64_t& count = counts_[size_t(link)];
  if (count == 0) touched_.push_back(link);
  count += sends;
}

void Tracer::send_chip(int32_t from, int32_t to, int64_t sends) {
  route_.clear();
  geometry_.topology.route(from, to, route_);
  for (const int32_t link : route_) count(link, sends);
  hops_ = std::max(hops_, int64_t(route_.size()));
}

// Members on chips of one pod that differ only on `axis`, each chip's k-th member, form a ring in
// the order of that coordinate, or send to one another.
void Tracer::trace_axes(int8_t axis, bool all, const std::vector<int32_t>& members) {
  TRN_ASSERT(axis >= 0 && axis < 3, "an axis is X, Y or Z");
  std::map<int32_t, int64_t> members_of_chip;
  for (const int32_t member : members) ++members_of_chip[chip_of(member)];
  using Ring = std::pair<std::array<int64_t, 4>, int64_t>;  // coordinates but one, k
  std::map<Ring, std::vector<int32_t>> rings;
  for (const auto& [chip, count] : members_of_chip) {  // chips ascend, and so does the coordinate
    auto at = coordinates(chip, geometry_);
    at[size_t(axis)] = 0;
    for (int64_t k = 0; k < count; ++k) rings[{at, k}].push_back(chip);
  }
  for (const auto& [at, ring] : rings) {
    const size_t count = ring.size();
    if (count < 2) continue;
    for (size_t i = 0; i < count; ++i) {
      for (size_t on = 1; all && on < count; ++on) send_chip(ring[i], ring[(i + on) % count]);
      if (all) continue;
      send_chip(ring[i], ring[(i + 1) % count]);
      send_chip(ring[i], ring[(i + count - 1) % count]);
    }
  }
}

std::vector<std::vector<int32_t>> Tracer::split(lower::Scope scope,
                                                const std::vector<int32_t>& members) const {
  if (scope == lower::Scope::group) return {members};
  std::vector<std::vector<int32_t>> pods;  // in order of appearance
  std::map<int64_t, size_t> index;
  for (const int32_t member : members) {
    const int64_t pod = geometry_.topology.pod_of(chip_of(member));
    const auto [found, is_new] = index.try_emplace(pod, pods.size());
    if (is_new) pods.emplace_back();
    pods[found->second].push_back(member);
  }
  if (scope == lower::Scope::pod) return pods;
  std::vector<std::vector<int32_t>> places(pods[0].size());
  for (const auto& pod : pods) {
    TRN_ASSERT(pod.size() == places.size(), "pods of one group hold the same number of members");
    for (size_t place = 0; place < places.size(); ++place) places[place].push_back(pod[place]);
  }
  return places;
}

void Tracer::trace_trees(bool up, const std::vector<int32_t>& members) {
  const auto count = int64_t(members.size());
  for (const int tree : {0, 1}) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t parent = lower::tree_parent(i, count, tree);
      if (parent < 0) continue;
      const int32_t child = members[size_t(i)], above = members[size_t(parent)];
      up ? send(child, above) : send(above, child);
    }
  }
}

void Tracer::trace_uneven(const std::vector<int64_t>& parts, const std::vector<int32_t>& members) {
  TRN_ASSERT(parts.size() == members.size(), "a part for every member");
  for (const int32_t from : members) {
    for (size_t to = 0; to < members.size(); ++to) {
      if (from != members[to] && parts[to] > 0) send(from, members[to], parts[to]);
    }
  }
}

void Tracer::trace_multicast(const std::vector<int32_t>& members) {
  std::vector<int32_t> chips;
  for (const int32_t member : members) chips.push_back(chip_of(member));
  geometry_.topology.multicast(chips, route_);
  for (const int32_t link : route_) count(link);
  hops_ = std::max<int64_t>(hops_, 2);
}

void Tracer::trace_ring(bool both, const std::vector<int32_t>& members) {
  const size_t count = members.size();
  for (size_t i = 0; i < count; ++i) {
    send(members[i], members[(i + 1) % count]);
    if (both) send(members[i], members[(i + count - 1) % count]);
  }
}

// The link, or the way around it where it is dead.
void Tracer::count_neighbour(int32_t link) {
  const machine::Topology& topology = geometry_.topology;
  if (topology.faults().empty() || topology.link(link).rate > 0) {
    count(link);
    hops_ = std::max<int64_t>(hops_, 1);
    return;
  }
  const machine::Link dead = topology.link(link);
  std::vector<int32_t> around;
  topology.route(dead.from_node, dead.to_node, around);
  for (const int32_t other : around) count(other);
  hops_ = std::max<int64_t>(hops_, int64_t(around.size()));
}

// A link's load does not grow with ranks per chip.
void Tracer::trace_spread(uint8_t axes_mask, const std::vector<int32_t>& members) {
  std::vector<int32_t> chips;
  for (const int32_t member : members) chips.push_back(chip_of(member));
  std::sort(chips.begin(), chips.end());
  chips.erase(std::unique(chips.begin(), chips.end()), chips.end());
  for (const int32_t chip : chips) {
    for (int8_t axis = 0; axis < 8; ++axis) {
      if (((axes_mask >> axis) & 1) == 0) continue;
      for (const int32_t link : geometry_.topology.links_from(chip, machine::Tier(axis))) {
        count_neighbour(link);
      }
    }
  }
}

Footprint Tracer::trace(const Shape& shape, const std::vector<int32_t>& members) {
  if (members.size() < 2) return {};
  switch (shape.pattern) {
    case Pattern::axis_ring:
    case Pattern::axis_all:
      trace_axes(shape.axis, shape.pattern == Pattern::axis_all, members);
      break;
    case Pattern::uneven:
      trace_uneven(shape.parts, members);
      break;
    case Pattern::multicast:
      route_.clear();
      trace_multicast(members);
      break;
    case Pattern::axes_spread:
      trace_spread(shape.axes_mask, members);
      break;
    case Pattern::one_to_all:
    case Pattern::all_to_one:
      for (size_t i = 0; i < members.size(); ++i) {
        if (int64_t(i) == shape.root) continue;
        const int32_t other = members[i], at = members[size_t(shape.root)];
        shape.pattern == Pattern::one_to_all ? send(at, other) : send(other, at);
      }
      break;
    case Pattern::message:
      return trace_message(members[0], members[1]);
    case Pattern::none:
      break;
    default:
      for (const auto& joined : split(shape.scope, members)) trace_joined(shape, joined);
  }
  return finish();
}

// Patterns among the members that a scope joins.
void Tracer::trace_joined(const Shape& shape, const std::vector<int32_t>& members) {
  const size_t count = members.size();
  if (count < 2) return;
  switch (shape.pattern) {
    case Pattern::ring:
    case Pattern::ring_both:
      return trace_ring(shape.pattern == Pattern::ring_both, members);
    case Pattern::to_parents:
    case Pattern::to_children:
      return trace_trees(shape.pattern == Pattern::to_parents, members);
    case Pattern::pairwise:
      for (const int32_t from : members) {
        for (const int32_t to : members) {
          if (from != to) send(from, to);
        }
      }
      return;
    case Pattern::exchange:
      for (size_t i = 0; i < count; ++i) {
        const size_t peer = i ^ size_t(shape.distance);
        if (peer != i && peer < count) send(members[i], members[peer]);
      }
      return;
    case Pattern::shift:
      for (size_t i = 0; i < count; ++i) {
        send(members[i], members[(i + size_t(shape.distance)) % count]);
      }
      return;
    default:
      TRN_ASSERT(false, "a pattern that no scope splits");
  }
}

// One send, so all links have weight 1, whatever their rates.
Footprint Tracer::trace_message(int32_t from_rank, int32_t to_rank) {
  route_.clear();
  geometry_.topology.route(chip_of(from_rank), chip_of(to_rank), route_);
  std::sort(route_.begin(), route_.end());
  Footprint footprint{{route_.empty() ? 0 : 1, int64_t(route_.size())}, {}};
  footprint.uses.reserve(route_.size());
  for (const int32_t link : route_) footprint.uses.push_back({link, kWeightOne});
  return footprint;
}

// Ascending. Where they are many it is quicker to look at all links than to sort them.
void Tracer::order_touched() {
  constexpr size_t kMany = 32;
  if (touched_.size() < counts_.size() / kMany) {
    std::sort(touched_.begin(), touched_.end());
    return;
  }
  touched_.clear();
  for (size_t link = 0; link < counts_.size(); ++link) {
    if (counts_[link] > 0) touched_.push_back(int32_t(link));
  }
}

Footprint Tracer::finish() {
  Footprint footprint;
  footprint.hops = std::exchange(hops_, 0);
  order_touched();
  int64_t critical_count = 0, critical_rate = 1;
  for (const int32_t link : touched_) {
    const int64_t count = counts_[size_t(link)];
    const int64_t rate = geometry_.topology.link(link).healthy_rate;
    const int128 left = int128(count) * critical_rate, right = int128(critical_count) * rate;
    if (left > right || (left == right && count < critical_count)) {
      critical_count = count;
      critical_rate = rate;
    }
  }
  footprint.critical_count = critical_count;
  footprint.uses.reserve(touched_.size());
  for (const int32_t link : touched_) {
    const int64_t count = std::exchange(counts_[size_t(link)], 0);
    const auto weight = int64_t(int128(count) * kWeightOne / critical_count);
    footprint.uses.push_back({link, std::max<int64_t>(1, weight)});
  }
  touched_.clear();
  return footprint;
}

Variable size_phase(const lower::PhaseTemplate& phase, const FootprintSize& footprint) {
  Variable variable;
  variable.latency_ps =
      phase.steps * phase.step_ps + footprint.hops * phase.hop_ps + phase.fixed_ps;
  if (phase.bytes == 0 || footprint.critical_count == 0) return variable;
  const int128 bytes = int128(footprint.critical_count) * phase.bytes;
  TRN_CHECK(bytes <= std::numeric_limits<int64_t>::max() / kRateUnitsPerBps, simulate,
            "a transfer of " + std::to_string(phase.bytes) + " bytes a member is too large",
            "use fewer members or a smaller message");
  variable.bytes = int64_t(bytes);
  return variable;
}

}  // namespace trnsim::fold
