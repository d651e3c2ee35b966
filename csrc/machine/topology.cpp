// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "machine/topology.h"

#include <algorithm>

#include "machine/topologies.h"

namespace trnsim::machine {
namespace {

bool legal(const Machine& machine, int64_t chips) {
  if (chips < 1 || chips > machine.max_chips) return false;
  return chips <= machine.server.chips || chips % machine.server.chips == 0;
}

// "16 or 32": the legal counts on both sides.
std::string nearest_legal(const Machine& machine, int64_t chips) {
  if (chips < 1) return "1";
  if (chips > machine.max_chips) return std::to_string(machine.max_chips);
  const int64_t below = chips / machine.server.chips * machine.server.chips;
  return std::to_string(below) + " or " + std::to_string(below + machine.server.chips);
}

}  // namespace

int64_t Topology::hops(int32_t from_chip, int32_t to_chip) const {
  std::vector<int32_t> links;
  route(from_chip, to_chip, links);
  return int64_t(links.size());
}

std::vector<int32_t> Topology::links_from(int32_t chip, int8_t axis) const {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < links_.size(); ++id) {
    if (links_[id].from_chip == chip && links_[id].axis == axis) ids.push_back(int32_t(id));
  }
  return ids;
}

void check_chip_count(const Machine& machine, int64_t chips) {
  if (legal(machine, chips)) return;
  std::string why;
  if (chips > machine.max_chips) {
    why = machine.scale_up == ScaleUp::one_switch ? " is one server of " : " is one pod of ";
    why = machine.name + why + std::to_string(machine.max_chips) +
          " chips, and its file names no network between them";
  } else if (chips >= 1) {
    why = "beyond one server of " + std::to_string(machine.server.chips) + ", " + machine.name +
          " takes whole servers";
  } else {
    why = "a job needs at least one chip";
  }
  throw Error(ErrorKind::machine,
              machine.name + " cannot run on " + std::to_string(chips) + " chips: " + why,
              "use " + nearest_legal(machine, chips));
}

std::unique_ptr<Topology> make_topology(const Machine& machine, int64_t chips) {
  check_chip_count(machine, chips);
  return machine.scale_up == ScaleUp::torus ? make_torus(machine, chips)
                                            : make_switch(machine, chips);
}

std::vector<int64_t> legal_chip_counts(const Machine& machine) {
  std::vector<int64_t> counts;
  for (int64_t n = 1; n <= std::min(machine.server.chips, machine.max_chips); ++n)
    counts.push_back(n);
  for (int64_t n = 2 * machine.server.chips; n <= machine.max_chips; n += machine.server.chips) {
    counts.push_back(n);
  }
  return counts;
}

std::array<int64_t, 3> used_torus(const Machine& machine, int64_t chips) {
  check_chip_count(machine, chips);
  if (machine.scale_up != ScaleUp::torus) return {1, 1, 1};
  const auto [x, y, z] = machine.torus;
  return {std::min(chips, x), std::min(ceil_div(chips, x), y), std::min(ceil_div(chips, x * y), z)};
}

bool fills_used_torus(const Machine& machine, int64_t chips) {
  const auto [x, y, z] = used_torus(machine, chips);
  return x * y * z == chips;
}

bool axis_wraps(const Machine& machine, int64_t chips, int axis) {
  TRN_ASSERT(axis >= 0 && axis < 3, "an axis is 0, 1 or 2");
  const int64_t used = used_torus(machine, chips)[size_t(axis)];
  return machine.scale_up == ScaleUp::torus && used > 1 && used == machine.torus[size_t(axis)] &&
         fills_used_torus(machine, chips);
}

}  // namespace trnsim::machine
