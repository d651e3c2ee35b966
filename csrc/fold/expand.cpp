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
  return {phase.pattern,        phase.scope, phase.axis,         phase.axes_mask,   phase.distance,
          is_rooted ? root : 0, phase.parts, phase.in_pod_sends, phase.fabric_sends};
}

TierRates rates_of(const machine::Topology& topology) {
  TierRates rates;
  for (size_t tier = 0; tier < rates.size(); ++tier) {
    rates[tier] = topology.healthy_rate(machine::Tier(tier));
  }
  return rates;
}

int64_t critical_sends(const FootprintSize& size, const TierRates& rates) {
  int64_t critical = 0, critical_rate = 1;
  for (size_t tier = 0; tier < rates.size(); ++tier) {
    const int64_t sends = size.most_sends[tier];
    if (sends == 0) continue;
    const int128 left = int128(sends) * critical_rate, right = int128(critical) * rates[tier];
    if (left > right || (left == right && sends < critical)) {
      critical = sends;
      critical_rate = rates[tier];
    }
  }
  return critical;
}

int64_t weight_of(int64_t sends, int64_t critical_sends) {
  return std::max<int64_t>(1, int64_t(int128(sends) * kWeightOne / critical_sends));
}

Tracer::Tracer(const Geometry& geometry)
    : geometry_(geometry),
      counts_(size_t(geometry.topology.link_count()), 0),
      counted_(counts_.size()) {}

void Tracer::look_at(const std::vector<int32_t>& members) {
  if (members == members_) return;
  members_ = members;
  splits_.clear();
  chips_.clear();
  for (const int32_t member : members) {
    chips_.push_back(int32_t(geometry_.placement.chip_of(member)));
  }
}

void Tracer::count(int32_t link, int64_t sends) {
  int64_t& count = counts_[size_t(link)];
  if (count == 0) {
    counted_.add(link);
    ++counted_size_;
  }
  count += sends;
}

void Tracer::send(int32_t from_chip, int32_t to_chip, int64_t sends) {
  route_.clear();
  geometry_.topology.route(from_chip, to_chip, route_);
  for (const int32_t link : route_) count(link, sends);
  hops_ = std::max(hops_, int64_t(route_.size()));
}

// Members on chips of one pod that differ only on `axis`, each chip's k-th member, form a ring in
// the order of that coordinate, or send to one another.
void Tracer::trace_axes(int8_t axis, bool all) {
  TRN_ASSERT(axis >= 0 && axis < 3, "an axis is X, Y or Z");
  std::map<int32_t, int64_t> members_of_chip;
  for (const int32_t chip : chips_) ++members_of_chip[chip];
  using Ring = std::pair<std::array<int64_t, 4>, int64_t>;  // coordinates but one, k
  std::map<Ring, Chips> rings;
  for (const auto& [chip, count] : members_of_chip) {  // chips ascend, and so does the coordinate
    auto at = coordinates(chip, geometry_);
    at[size_t(axis)] = 0;
    for (int64_t k = 0; k < count; ++k) rings[{at, k}].push_back(chip);
  }
  for (const auto& [at, ring] : rings) {
    const size_t count = ring.size();
    if (count < 2) continue;
    for (size_t i = 0; i < count; ++i) {
      for (size_t on = 1; all && on < count; ++on) send(ring[i], ring[(i + on) % count]);
      if (all) continue;
      send(ring[i], ring[(i + 1) % count]);
      send(ring[i], ring[(i + count - 1) % count]);
    }
  }
}

const std::vector<Tracer::Chips>& Tracer::split(lower::Scope scope) {
  const auto [found, is_new] = splits_.try_emplace(scope);
  std::vector<Chips>& sets = found->second;
  if (!is_new) return sets;
  if (scope == lower::Scope::group) {
    sets = {chips_};
    return sets;
  }
  std::vector<Chips> pods = by_pod();
  if (scope == lower::Scope::pod) {
    sets = std::move(pods);
    return sets;
  }
  sets.resize(pods[0].size());  // the members at one place of their pods
  for (const Chips& pod : pods) {
    TRN_ASSERT(pod.size() == sets.size(), "pods of one group hold the same number of members");
    for (size_t place = 0; place < sets.size(); ++place) sets[place].push_back(pod[place]);
  }
  return sets;
}

// In order of appearance.
std::vector<Tracer::Chips> Tracer::by_pod() const {
  std::vector<Chips> pods;
  std::map<int64_t, size_t> index;
  for (const int32_t chip : chips_) {
    const auto [found, is_new] = index.try_emplace(geometry_.topology.pod_of(chip), pods.size());
    if (is_new) pods.emplace_back();
    pods[found->second].push_back(chip);
  }
  return pods;
}

void Tracer::trace_trees(bool up, const Chips& chips) {
  const auto count = int64_t(chips.size());
  for (const int tree : {0, 1}) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t parent = lower::tree_parent(i, count, tree);
      if (parent < 0) continue;
      const int32_t child = chips[size_t(i)], above = chips[size_t(parent)];
      up ? send(child, above) : send(above, child);
    }
  }
}

void Tracer::trace_uneven(const std::vector<int64_t>& parts, bool is_back) {
  TRN_ASSERT(parts.size() == chips_.size(), "a part for every member");
  for (size_t from = 0; from < chips_.size(); ++from) {
    for (size_t to = 0; to < chips_.size(); ++to) {
      const int64_t part = parts[is_back ? from : to];
      if (from != to && part > 0) send(chips_[from], chips_[to], part);
    }
  }
}

void Tracer::trace_rails(const std::vector<int64_t>& parts) {
  TRN_ASSERT(parts.size() == 2, "a part for the pod and one for the fabric");
  const auto trace = [&](lower::Scope scope, int64_t sends) {
    for (const Chips& chips : split(scope)) {
      for (size_t i = 0; chips.size() > 1 && i < chips.size(); ++i) {
        send(chips[i], chips[(i + 1) % chips.size()], sends);
      }
    }
  };
  trace(lower::Scope::pod, parts[0]);
  trace(lower::Scope::across, parts[1]);
}

void Tracer::trace_ring(bool both, const Chips& chips) {
  const size_t count = chips.size();
  for (size_t i = 0; i < count; ++i) {
    send(chips[i], chips[(i + 1) % count]);
    if (both) send(chips[i], chips[(i + count - 1) % count]);
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
void Tracer::trace_spread(uint8_t axes_mask) {
  Chips chips = chips_;
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
  look_at(members);
  switch (shape.pattern) {
    case Pattern::axis_ring:
    case Pattern::axis_all:
      trace_axes(shape.axis, shape.pattern == Pattern::axis_all);
      break;
    case Pattern::uneven:
    case Pattern::uneven_back:
      trace_uneven(shape.parts, shape.pattern == Pattern::uneven_back);
      break;
    case Pattern::rails:
      trace_rails(shape.parts);
      break;
    case Pattern::multicast:
      route_.clear();
      geometry_.topology.multicast(chips_, route_);
      for (const int32_t link : route_) count(link);
      hops_ = std::max<int64_t>(hops_, 2);
      break;
    case Pattern::axes_spread:
      trace_spread(shape.axes_mask);
      break;
    case Pattern::one_to_all:
    case Pattern::all_to_one:
      for (size_t i = 0; i < chips_.size(); ++i) {
        if (int64_t(i) == shape.root) continue;
        const int32_t other = chips_[i], at = chips_[size_t(shape.root)];
        shape.pattern == Pattern::one_to_all ? send(at, other) : send(other, at);
      }
      break;
    case Pattern::message:
      send(chips_[0], chips_[1]);
      break;
    case Pattern::none:
      break;
    default:
      for (const Chips& joined : split(shape.scope)) trace_joined(shape, joined);
  }
  return finish(shape);
}

// Patterns among the members that a scope joins.
void Tracer::trace_joined(const Shape& shape, const Chips& chips) {
  const size_t count = chips.size();
  if (count < 2) return;
  switch (shape.pattern) {
    case Pattern::ring:
    case Pattern::ring_both:
      return trace_ring(shape.pattern == Pattern::ring_both, chips);
    case Pattern::to_parents:
    case Pattern::to_children:
      return trace_trees(shape.pattern == Pattern::to_parents, chips);
    case Pattern::pairwise:
      for (const int32_t from : chips) {
        for (const int32_t to : chips) {
          if (from != to) send(from, to);
        }
      }
      return;
    case Pattern::exchange:
      for (size_t i = 0; i < count; ++i) {
        const size_t peer = i ^ size_t(shape.distance);
        if (peer != i && peer < count) send(chips[i], chips[peer]);
      }
      return;
    case Pattern::shift:
      for (size_t i = 0; i < count; ++i) {
        send(chips[i], chips[(i + size_t(shape.distance)) % count]);
      }
      return;
    default:
      TRN_ASSERT(false, "a pattern that no scope splits");
  }
}

Footprint Tracer::finish(const Shape& shape) {
  Footprint footprint;
  footprint.hops = std::exchange(hops_, 0);
  footprint.loads.reserve(size_t(std::exchange(counted_size_, 0)));
  counted_.take([&](int32_t link) {
    const machine::Tier tier = geometry_.topology.tier(link);
    const int64_t sends = std::exchange(counts_[size_t(link)], 0) *
                          (machine::is_of_fabric(tier) ? shape.fabric_sends : shape.in_pod_sends);
    int64_t& most = footprint.most_sends[size_t(tier)];
    most = std::max(most, sends);
    footprint.loads.push_back({link, sends});
  });
  return footprint;
}

Variable size_phase(const lower::PhaseTemplate& phase, int64_t hops, int64_t critical_sends) {
  Variable variable;
  variable.latency_ps = phase.steps * phase.step_ps + hops * phase.hop_ps + phase.fixed_ps;
  if (phase.bytes == 0 || critical_sends == 0) return variable;
  const int128 bytes = int128(critical_sends) * phase.bytes;
  TRN_CHECK(bytes <= std::numeric_limits<int64_t>::max() / kRateUnitsPerBps, simulate,
            "a transfer of " + std::to_string(phase.bytes) + " bytes a member is too large",
            "use fewer members or a smaller message");
  variable.bytes = int64_t(bytes);
  return variable;
}

}  // namespace trnsim::fold
