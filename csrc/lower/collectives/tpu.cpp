// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A torus of TPUs. A buffer is cut into as many parts as the torus has axes, and each part goes
// round the axes in another order, so that all links work at once: an all-gather over k axes is k
// times as fast as over one (github.com/jax-ml/scaling-book sharding.md). An axis that does not
// close carries everything past its middle both ways, and counts as one link instead of two.
#include "lower/collectives/parts.h"

namespace trnsim::lower::collectives {
namespace {

bool is_regular_box(const GroupShape& shape) { return shape.is_box && shape.members_per_chip > 0; }

// All chips that the job has on every axis of the group: no link of theirs leads to another's chip.
bool is_all_of_its_axes(const GroupShape& shape) {
  for (size_t axis = 0; axis < 3; ++axis) {
    if (shape.extent[axis] > 1 && !shape.is_whole_axis[axis]) return false;
  }
  return true;
}

}  // namespace

Names tpu_names(const GroupShape& shape) {
  if (!is_regular_box(shape)) return {"ring"};
  if (!is_all_of_its_axes(shape)) return {"axis_rings", "ring"};
  return {"axes", "axis_rings", "ring"};
}

Phases tpu_axes(int64_t bytes, const GroupShape& shape, const machine::Machine& machine) {
  PhaseTemplate phase;
  phase.pattern = Pattern::axes_spread;
  int64_t links = 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t n = shape.extent[axis];
    if (n < 2) continue;
    const bool is_ring = shape.is_closed_axis[axis] && n > 2;
    phase.axes_mask |= uint8_t(1U << axis);
    links += is_ring ? 2 : 1;
    phase.steps += is_ring ? n / 2 : n - 1;
  }
  const machine::Collectives& library = machine.chip.collectives;
  phase.bytes = share(bytes, shape.chips - 1, int128(shape.chips) * links, library.link_efficiency);
  phase.step_ps = library.ring_step_ps;
  return {phase};
}

}  // namespace trnsim::lower::collectives
