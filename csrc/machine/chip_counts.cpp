// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which counts of chips a machine takes: any within a server, whole servers, whole pods.
#include <algorithm>

#include "machine/topology.h"

namespace trnsim::machine {
namespace {

// Counts near `chips` are multiples of this.
int64_t step_near(const Machine& machine, int64_t chips) {
  if (chips <= machine.server.chips) return 1;
  return chips <= pod_chips(machine) ? machine.server.chips : pod_chips(machine);
}

bool is_legal(const Machine& machine, int64_t chips) {
  return chips >= 1 && chips <= max_chips(machine) && chips % step_near(machine, chips) == 0;
}

// "16 or 32": the legal counts on both sides.
std::string nearest_legal(const Machine& machine, int64_t chips) {
  if (chips < 1) return "1";
  if (chips > max_chips(machine)) return std::to_string(max_chips(machine));
  const int64_t step = step_near(machine, chips), below = chips / step * step;
  return std::to_string(below) + " or " + std::to_string(below + step);
}

std::string why_not(const Machine& machine, int64_t chips) {
  if (chips < 1) return "a job needs at least one chip";
  if (chips > max_chips(machine) && machine.fabric.pods == 0) {
    return machine.name +
           (machine.scale_up == ScaleUp::one_switch ? " is one server of " : " is one pod of ") +
           std::to_string(max_chips(machine)) +
           " chips, and its file names no network between them";
  }
  if (chips > max_chips(machine)) {
    return machine.name + " has " + std::to_string(max_chips(machine)) + " of them";
  }
  if (chips > pod_chips(machine)) {
    return "beyond one pod of " + std::to_string(pod_chips(machine)) + ", " + machine.name +
           " takes whole pods";
  }
  return "beyond one server of " + std::to_string(machine.server.chips) + ", " + machine.name +
         " takes whole servers";
}

}  // namespace

int64_t pod_chips(const Machine& machine) {
  switch (machine.scale_up) {
    case ScaleUp::torus:
      return machine.torus[0] * machine.torus[1] * machine.torus[2];
    case ScaleUp::hypercube:
      return int64_t(1) << machine.hypercube_axes;
    case ScaleUp::one_switch:
      break;
  }
  return machine.server.chips;
}

int64_t max_chips(const Machine& machine) {
  return pod_chips(machine) * std::max<int64_t>(1, machine.fabric.pods);
}

void check_chip_count(const Machine& machine, int64_t chips) {
  if (is_legal(machine, chips)) return;
  throw Error(ErrorKind::machine,
              machine.name + " cannot run on " + std::to_string(chips) +
                  " chips: " + why_not(machine, chips),
              "use " + nearest_legal(machine, chips));
}

std::vector<int64_t> legal_chip_counts(const Machine& machine) {
  std::vector<int64_t> counts;
  for (int64_t n = 1; n <= max_chips(machine);) {
    counts.push_back(n);
    const int64_t step = step_near(machine, n + 1);
    n = (n / step + 1) * step;
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
  return x * y * z == std::min(chips, pod_chips(machine));
}

bool axis_wraps(const Machine& machine, int64_t chips, int axis) {
  TRN_ASSERT(axis >= 0 && axis < 3, "an axis is 0, 1 or 2");
  const int64_t used = used_torus(machine, chips)[size_t(axis)];
  return machine.scale_up == ScaleUp::torus && used > 1 && used == machine.torus[size_t(axis)] &&
         fills_used_torus(machine, chips);
}

}  // namespace trnsim::machine
