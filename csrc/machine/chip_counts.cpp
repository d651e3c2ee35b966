// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which counts of chips a machine takes: any within a server, whole servers, whole pods.
#include <algorithm>

#include "machine/topology.h"

namespace trnsim::machine {
namespace {

const Slice* slice_of(const Machine& machine, int64_t chips) {
  const auto found = std::find_if(machine.slices.begin(), machine.slices.end(),
                                  [&](const Slice& slice) { return slice.chips() == chips; });
  return found == machine.slices.end() ? nullptr : &*found;
}

// Several pods of which each gives the same part; anything else has to fit one.
bool is_in_one_pod(const Machine& machine, int64_t chips) {
  const int64_t each = chips_of_each_pod(machine);
  return chips <= each || (chips <= pod_chips(machine) && chips % each != 0);
}

bool is_legal(const Machine& machine, int64_t chips) {
  if (chips < 1 || chips > max_chips(machine)) return false;
  if (!is_in_one_pod(machine, chips)) return chips % chips_of_each_pod(machine) == 0;
  if (!machine.slices.empty()) return slice_of(machine, chips) != nullptr;
  return chips <= machine.server.chips || chips % machine.server.chips == 0;
}

// "16 or 32": the legal counts on both sides.
std::string nearest_legal(const Machine& machine, int64_t chips) {
  const std::vector<int64_t> counts = legal_chip_counts(machine);
  const auto above = std::lower_bound(counts.begin(), counts.end(), chips);
  if (above == counts.end()) return "up to " + std::to_string(counts.back());
  if (above == counts.begin()) return std::to_string(counts.front());
  return std::to_string(*(above - 1)) + " or " + std::to_string(*above);
}

std::string why_not(const Machine& machine, int64_t chips) {
  const int64_t pod = pod_chips(machine), each = chips_of_each_pod(machine);
  if (chips < 1) return "a job needs at least one chip";
  if (chips > max_chips(machine) && machine.fabric.pods == 0) {
    const bool is_server = machine.scale_up == ScaleUp::one_switch && pod == machine.server.chips;
    return machine.name + (is_server ? " is one server of " : " is one pod of ") +
           std::to_string(max_chips(machine)) +
           " chips, and its file names no network between them";
  }
  if (chips > max_chips(machine)) {
    return machine.name + " has " + std::to_string(max_chips(machine)) + " of them";
  }
  if (!is_in_one_pod(machine, chips)) {
    const std::string beyond = "beyond one pod of " + std::to_string(pod) + ", " + machine.name;
    if (each == pod) return beyond + " takes whole pods";
    return beyond + " takes " + std::to_string(each) + " chips of each (scale_up.job_chips)";
  }
  if (!machine.slices.empty()) return "no slice of " + machine.name + " has as many";
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
  return machine.switch_chips > 0 ? machine.switch_chips : machine.server.chips;
}

int64_t chips_of_each_pod(const Machine& machine) {
  return machine.job_chips > 0 ? machine.job_chips : pod_chips(machine);
}

int64_t pod_chips(const Machine& machine, int64_t chips) {
  return is_in_one_pod(machine, chips) ? chips : chips_of_each_pod(machine);
}

int64_t max_chips(const Machine& machine) {
  const int64_t in_pod =
      machine.slices.empty() ? pod_chips(machine) : machine.slices.back().chips();
  return std::max(in_pod, chips_of_each_pod(machine) * machine.fabric.pods);
}

void check_chip_count(const Machine& machine, int64_t chips) {
  if (is_legal(machine, chips)) return;
  throw Error(ErrorKind::machine,
              machine.name + " cannot run on " + std::to_string(chips) +
                  " chips: " + why_not(machine, chips),
              "use " + nearest_legal(machine, chips));
}

std::vector<int64_t> legal_chip_counts(const Machine& machine) {
  const int64_t most = max_chips(machine), pod = pod_chips(machine);
  const int64_t server = machine.server.chips, each = chips_of_each_pod(machine);
  std::vector<int64_t> counts;
  for (const Slice& slice : machine.slices) counts.push_back(slice.chips());
  for (int64_t n = 1; machine.slices.empty() && n <= pod; n += n < server ? 1 : server) {
    counts.push_back(n);
  }
  std::erase_if(counts, [&](int64_t n) { return !is_in_one_pod(machine, n); });
  for (int64_t n = 2 * each; n <= most; n += each) counts.push_back(n);
  std::sort(counts.begin(), counts.end());
  return counts;
}

std::array<int64_t, 3> used_torus(const Machine& machine, int64_t chips) {
  check_chip_count(machine, chips);
  if (machine.scale_up != ScaleUp::torus) return {1, 1, 1};
  const int64_t in_pod = pod_chips(machine, chips);
  if (const Slice* slice = slice_of(machine, in_pod)) return slice->extent;
  const auto [x, y, z] = machine.torus;
  return {std::min(in_pod, x), std::min(ceil_div(in_pod, x), y),
          std::min(ceil_div(in_pod, x * y), z)};
}

bool fills_used_torus(const Machine& machine, int64_t chips) {
  const auto [x, y, z] = used_torus(machine, chips);
  return x * y * z == pod_chips(machine, chips);
}

bool axis_wraps(const Machine& machine, int64_t chips, int axis) {
  TRN_ASSERT(axis >= 0 && axis < 3, "an axis is 0, 1 or 2");
  const int64_t used = used_torus(machine, chips)[size_t(axis)];
  if (machine.scale_up != ScaleUp::torus || used < 2) return false;
  if (const Slice* slice = slice_of(machine, pod_chips(machine, chips))) {
    return slice->wraps[size_t(axis)];
  }
  return used == machine.torus[size_t(axis)] && fills_used_torus(machine, chips);
}

}  // namespace trnsim::machine
