// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/expand.h"

#include <algorithm>
#include <limits>
#include <map>

namespace trnsim::fold {
namespace {

using lower::Pattern;

// Counts sends per link.
class Tracer {
 public:
  explicit Tracer(const Geometry& geometry)
      : geometry_(geometry), counts_(size_t(geometry.topology.link_count()), 0) {}

  int32_t chip_of(int32_t rank) const { return int32_t(geometry_.placement.chip_of(rank)); }

  void send_chip(int32_t from, int32_t to) {
    route_.clear();
    geometry_.topology.route(from, to, route_);
    for (const int32_t link : route_) ++counts_[size_t(link)];
    hops_ = std::max(hops_, int64_t(route_.size()));
  }
  void send(int32_t from_rank, int32_t to_rank) { send_chip(chip_of(from_rank), chip_of(to_rank)); }
  void load(int32_t link) {
    ++counts_[size_t(link)];
    hops_ = std::max<int64_t>(hops_, 1);
  }

  Footprint footprint() const {
    Footprint result;
    for (size_t link = 0; link < counts_.size(); ++link) {
      if (counts_[link] > 0) result.sends.push_back({int32_t(link), counts_[link]});
    }
    result.hops = hops_;
    return result;
  }

 private:
  const Geometry& geometry_;
  std::vector<int64_t> counts_;
  std::vector<int32_t> route_;
  int64_t hops_ = 0;
};

// The chips of the members, each once, ascending: a link's load does not grow with ranks per chip.
std::vector<int32_t> chips_of(const std::vector<int32_t>& members, const Tracer& tracer) {
  std::vector<int32_t> chips;
  for (const int32_t member : members) chips.push_back(tracer.chip_of(member));
  std::sort(chips.begin(), chips.end());
  chips.erase(std::unique(chips.begin(), chips.end()), chips.end());
  return chips;
}

// X, Y and Z in the pod, and the pod.
std::array<int64_t, 4> coordinates(int32_t chip, const Geometry& geometry) {
  const int64_t at = geometry.topology.position_in_pod(chip);
  const auto& extents = geometry.extents;
  return {at % extents[0], at / extents[0] % extents[1], at / extents[0] / extents[1],
          geometry.topology.pod_of(chip)};
}

// Members on chips of one pod that differ only on `axis`, each chip's k-th member, form a ring in
// the order of that coordinate.
void trace_axis_rings(int8_t axis, const std::vector<int32_t>& members, const Geometry& geometry,
                      Tracer& tracer) {
  TRN_ASSERT(axis >= 0 && axis < 3, "an axis ring runs along X, Y or Z");
  std::map<int32_t, int64_t> members_of_chip;
  for (const int32_t member : members) ++members_of_chip[tracer.chip_of(member)];
  using Ring = std::pair<std::array<int64_t, 4>, int64_t>;  // coordinates but one, k
  std::map<Ring, std::vector<int32_t>> rings;
  for (const auto& [chip, count] : members_of_chip) {  // chips ascend, and so does the coordinate
    auto at = coordinates(chip, geometry);
    at[size_t(axis)] = 0;
    for (int64_t k = 0; k < count; ++k) rings[{at, k}].push_back(chip);
  }
  for (const auto& [at, ring] : rings) {
    const size_t count = ring.size();
    if (count < 2) continue;
    for (size_t i = 0; i < count; ++i) {
      tracer.send_chip(ring[i], ring[(i + 1) % count]);
      tracer.send_chip(ring[i], ring[(i + count - 1) % count]);
    }
  }
}

void trace_ring(bool both, const std::vector<int32_t>& members, Tracer& tracer) {
  const size_t count = members.size();
  for (size_t i = 0; i < count; ++i) {
    tracer.send(members[i], members[(i + 1) % count]);
    if (both) tracer.send(members[i], members[(i + count - 1) % count]);
  }
}

void trace_spread(uint8_t axes_mask, const std::vector<int32_t>& chips, const Geometry& geometry,
                  Tracer& tracer) {
  for (const int32_t chip : chips) {
    for (int8_t axis = 0; axis < 8; ++axis) {
      if (((axes_mask >> axis) & 1) == 0) continue;
      for (const int32_t link : geometry.topology.links_from(chip, machine::Tier(axis))) {
        tracer.load(link);
      }
    }
  }
}

}  // namespace

Footprint trace_phase(const lower::PhaseTemplate& phase, const std::vector<int32_t>& members,
                      int64_t root, const Geometry& geometry) {
  Tracer tracer(geometry);
  const size_t count = members.size();
  if (count < 2) return tracer.footprint();
  switch (phase.pattern) {
    case Pattern::ring:
      trace_ring(false, members, tracer);
      break;
    case Pattern::ring_both:
      trace_ring(true, members, tracer);
      break;
    case Pattern::axis_ring:
      trace_axis_rings(phase.axis, members, geometry, tracer);
      break;
    case Pattern::axes_spread:
      trace_spread(phase.axes_mask, chips_of(members, tracer), geometry, tracer);
      break;
    case Pattern::pairwise:
      for (const int32_t from : members) {
        for (const int32_t to : members) {
          if (from != to) tracer.send(from, to);
        }
      }
      break;
    case Pattern::exchange:
      for (size_t i = 0; i < count; ++i) {
        const size_t peer = i ^ size_t(phase.distance);
        if (peer != i && peer < count) tracer.send(members[i], members[peer]);
      }
      break;
    case Pattern::one_to_all:
    case Pattern::all_to_one:
      for (size_t i = 0; i < count; ++i) {
        if (int64_t(i) == root) continue;
        const int32_t other = members[i], at = members[size_t(root)];
        phase.pattern == Pattern::one_to_all ? tracer.send(at, other) : tracer.send(other, at);
      }
      break;
    case Pattern::message:
      tracer.send(members[0], members[1]);
      break;
    case Pattern::none:
      break;
  }
  return tracer.footprint();
}

Variable weigh_phase(const lower::PhaseTemplate& phase, const Footprint& footprint,
                     const std::vector<LinkInfo>& links) {
  Variable variable;
  variable.latency_ps =
      phase.steps * phase.step_ps + footprint.hops * phase.hop_ps + phase.fixed_ps;
  if (phase.bytes == 0 || footprint.sends.empty()) return variable;
  int64_t critical_count = 0, critical_rate = 1;
  for (const auto& [link, count] : footprint.sends) {
    const int64_t rate = links[size_t(link)].healthy_rate;
    const int128 left = int128(count) * critical_rate, right = int128(critical_count) * rate;
    if (left > right || (left == right && count < critical_count)) {
      critical_count = count;
      critical_rate = rate;
    }
  }
  const int128 bytes = int128(critical_count) * phase.bytes;
  TRN_CHECK(bytes <= std::numeric_limits<int64_t>::max() / kRateUnitsPerBps, simulate,
            "a transfer of " + std::to_string(phase.bytes) + " bytes a member is too large",
            "use fewer members or a smaller message");
  variable.bytes = int64_t(bytes);
  for (const auto& [link, count] : footprint.sends) {
    const int64_t weight = int64_t(int128(count) * kWeightOne / critical_count);
    variable.uses.push_back({link, std::max<int64_t>(1, weight)});
  }
  return variable;
}

}  // namespace trnsim::fold
