// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>
#include <map>
#include <set>

#include "lower/collectives.h"

namespace trnsim::lower {
namespace {

using machine::Machine;
using machine::Placement;

std::vector<int64_t> ranks_of(const workload::RankPattern& pattern, const Placement& placement) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < pattern.size(); ++i) {
    ranks.push_back(pattern.rank_at(i));
    TRN_CHECK(ranks.back() >= 0 && ranks.back() < placement.ranks, lower,
              "a process group holds rank " + std::to_string(ranks.back()) + ", and " +
                  std::to_string(placement.ranks) + " ranks are placed",
              "ask for as many chips as the script has ranks");
  }
  return ranks;
}

int64_t pod_ranks(const Machine& machine, const Placement& placement) {
  return machine::pod_chips(machine, placement.chips) * placement.ranks_per_chip;
}

// Members of each pod by their places, in group order.
std::map<int64_t, std::vector<int64_t>> by_pod(const std::vector<int64_t>& ranks, int64_t of_pod) {
  std::map<int64_t, std::vector<int64_t>> places;
  std::vector<int64_t>* of_last = nullptr;
  int64_t last = -1;
  for (const int64_t rank : ranks) {
    if (rank / of_pod != last) of_last = &places[last = rank / of_pod];
    of_last->push_back(rank % of_pod);
  }
  return places;
}

void find_pods(GroupShape& shape, const std::vector<int64_t>& ranks, int64_t of_pod) {
  int64_t before = ranks.back() / of_pod;
  for (const int64_t rank : ranks) {
    const int64_t at = rank / of_pod;
    shape.pod_crossings += at != before;
    before = at;
  }
  const auto places = by_pod(ranks, of_pod);
  shape.pods = int64_t(places.size());
  const auto& first = places.begin()->second;
  const bool alike = std::all_of(places.begin(), places.end(),
                                 [&](const auto& pod) { return pod.second == first; });
  shape.members_in_pod = alike ? int64_t(first.size()) : 0;
}

// Chips ascend; a chip is there once for each member on it.
void find_box(GroupShape& shape, const std::vector<int64_t>& chips, const Machine& machine,
              const Placement& placement) {
  const auto torus = machine::used_torus(machine, placement.chips);
  std::array<std::set<int64_t>, 3> seen;
  const int64_t of_pod = machine::pod_chips(machine, placement.chips);
  for (const int64_t chip : chips) {
    const int64_t at = chip % of_pod;
    seen[0].insert(at % torus[0]);
    seen[1].insert(at / torus[0] % torus[1]);
    seen[2].insert(at / (torus[0] * torus[1]));
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    shape.extent[axis] = int64_t(seen[axis].size());
    shape.is_whole_axis[axis] = shape.extent[axis] == torus[axis];
    shape.is_closed_axis[axis] =
        machine.slices.empty()
            ? shape.extent[axis] == machine.torus[axis]
            : shape.is_whole_axis[axis] && machine::axis_wraps(machine, placement.chips, int(axis));
  }
  shape.is_box = shape.extent[0] * shape.extent[1] * shape.extent[2] == shape.chips;
  const int64_t server = machine.server.chips;
  shape.whole_servers = shape.is_box && shape.chips >= server && shape.members_per_chip > 0 &&
                        shape.extent[0] * shape.extent[1] == server;
  const auto& core = machine.chip.neuron;
  const bool whole_chips = shape.members_per_chip == placement.ranks_per_chip;
  if (whole_chips && core.cores_per_logical > 0) {
    shape.logical_per_chip = placement.ranks_per_chip > 1 ? placement.ranks_per_chip
                                                          : core.cores / core.cores_per_logical;
  }
}

GroupShape shape_of_ranks(const std::vector<int64_t>& ranks, const Machine& machine,
                          const Placement& placement) {
  GroupShape shape;
  shape.members = int64_t(ranks.size());
  std::vector<int64_t> chips;
  chips.reserve(ranks.size());
  for (const int64_t rank : ranks) chips.push_back(placement.chip_of(rank));
  std::sort(chips.begin(), chips.end());
  shape.chips = 0;
  for (size_t i = 0, next = 0; i < chips.size(); i = next) {
    while (next < chips.size() && chips[next] == chips[i]) ++next;
    const auto count = int64_t(next - i);
    if (shape.chips++ == 0) shape.members_per_chip = count;
    if (count != shape.members_per_chip) shape.members_per_chip = 0;
  }
  find_pods(shape, ranks, pod_ranks(machine, placement));
  if (machine.scale_up == machine::ScaleUp::torus && shape.pods == 1) {
    find_box(shape, chips, machine, placement);
  }
  return shape;
}

}  // namespace

GroupShapes shapes_of(const workload::RankPattern& pattern, const Machine& machine,
                      const Placement& placement) {
  const auto ranks = ranks_of(pattern, placement);
  const GroupShape whole = shape_of_ranks(ranks, machine, placement);
  if (whole.pods == 1) return {whole, whole};
  const int64_t of_pod = pod_ranks(machine, placement);
  std::vector<int64_t> first;
  for (const int64_t rank : ranks) {
    if (rank / of_pod == ranks[0] / of_pod) first.push_back(rank);
  }
  return {whole, shape_of_ranks(first, machine, placement)};
}

}  // namespace trnsim::lower
