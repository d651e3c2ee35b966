// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Everybody sends to everybody. "direct": each part goes straight to its member, so that links
// carry what the routes put on them. "dimension_ordered": along X to the members that differ only
// there, then along Y, then along Z, each time all that has to go to that coordinate; as many bytes
// on the links, one axis after the other, in fewer and larger messages. "shift": all goes to one.
//
// Uneven parts: of a call the captured rank's own are recorded, what it sends to each and gets from
// each. Where what it sends is uneven, everybody sends like it. Where it sends the same to all and
// gets uneven parts, it is the way back of such a call: everybody sends the same to all, as much as
// the captured rank gets from him.
#include <numeric>

#include "lower/collectives/parts.h"

namespace trnsim::lower::collectives {
namespace {

// Members of a chip first hand each other what the k-th of them is to carry to all k-th ones.
Phases along_axes(int64_t bytes, const Site& site) {
  const machine::Collectives& library = site.machine.chip.collectives;
  const int64_t per_chip = site.group.members_per_chip;
  Phases phases;
  for (int8_t axis = 0; axis < 3; ++axis) {
    const int64_t extent = site.group.extent[size_t(axis)];
    if (extent < 2) continue;
    PhaseTemplate phase = direct(Pattern::axis_all, ceil_div(bytes, extent), 1, site);
    phase.axis = axis;
    phases.push_back(phase);
  }
  if (per_chip > 1 && bytes > 0) {
    const int64_t handed = share(bytes, per_chip - 1, per_chip, {1, 1});
    phases.front().fixed_ps += duration_ps(handed, library.in_chip_copy_Bps);
  }
  return phases;
}

}  // namespace

PhaseTemplate direct(Pattern pattern, int64_t bytes, int64_t steps, const Site& site) {
  PhaseTemplate phase;
  phase.pattern = pattern;
  phase.bytes = bytes;
  if (has_whole_nic(site.group, site.machine)) {
    leave_nic_whole(phase, site.machine);
  } else {
    phase.bytes = share(bytes, 1, 1, site.machine.chip.collectives.link_efficiency);
  }
  phase.steps = steps;
  set_latency(phase, direct_step_ps(site.machine.chip.collectives), site.group.pods > 1 ? steps : 0,
              site.machine);
  return phase;
}

Names exchange_names(const Site& site) {
  const bool is_torus = site.machine.scale_up == machine::ScaleUp::torus;
  const bool has_axes =
      is_torus && site.group.chips > 1 && site.group.is_box && site.group.members_per_chip > 0;
  return has_axes ? Names{"direct", "dimension_ordered"} : Names{"direct"};
}

Phases exchange_phases(const std::string& name, const workload::Call& call, const Site& site) {
  const bool is_back = call.splits.empty() && !call.received.empty();
  const std::vector<int64_t>& parts = is_back ? call.received : call.splits;
  // On the way back members send unlike amounts, and each gets as much as the call away has sent.
  const int64_t bytes =
      is_back ? std::accumulate(parts.begin(), parts.end(), int64_t{0}) : call.bytes;
  if (is_one_chip(site.group, site.machine)) return inside_chip(bytes, site.group, site.machine);
  if (name == "dimension_ordered") return along_axes(bytes, site);
  if (parts.empty()) {
    return {direct(Pattern::pairwise, ceil_div(bytes, site.group.members), 2, site)};
  }
  PhaseTemplate phase = direct(is_back ? Pattern::uneven_back : Pattern::uneven, 0, 2, site);
  phase.bytes = 1;
  const bool whole_nic = has_whole_nic(site.group, site.machine);
  for (const int64_t part : parts) {
    phase.parts.push_back(whole_nic
                              ? ceil_div(part, phase.fabric_sends)
                              : share(part, 1, 1, site.machine.chip.collectives.link_efficiency));
  }
  return {phase};
}

Phases shift_phases(int64_t bytes, int64_t distance, const Site& site) {
  if (is_one_chip(site.group, site.machine)) return inside_chip(bytes, site.group, site.machine);
  if (distance == 0) return {direct(Pattern::none, 0, 1, site)};
  PhaseTemplate phase = direct(Pattern::shift, bytes, 1, site);
  phase.distance = distance;
  return {phase};
}

}  // namespace trnsim::lower::collectives
