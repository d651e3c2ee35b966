// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Algorithms of a torus, as the library of Neuron has them.
#include <algorithm>

#include "lower/collectives/parts.h"

namespace trnsim::lower::collectives {
namespace {

using machine::Machine;

// Sum of the distances from one chip to all others on the X-Y torus.
int64_t plane_distance(const std::array<int64_t, 3>& extent) {
  const auto ring = [](int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::min(i, n - i);
    return sum;
  };
  return ring(extent[0]) * extent[1] + ring(extent[1]) * extent[0];
}

class Neuron {
 public:
  Neuron(const Machine& machine, const GroupShape& shape)
      : library_(machine.chip.collectives),
        shape_(shape),
        plane_chips_(shape.extent[0] * shape.extent[1]) {}

  // One phase of an all-gather or reduce-scatter of `bytes` (the whole) over the plane.
  PhaseTemplate plane(const std::string& algorithm, int64_t bytes) const {
    const int64_t n = plane_chips_, per_chip = shape_.logical_per_chip;
    const int64_t links = links_of_plane();
    const int128 cores = int128(n) * per_chip;  // a share is bytes / cores
    PhaseTemplate phase;
    phase.pattern = Pattern::axes_spread;
    phase.axes_mask = mask_of_plane();
    const int64_t copies = (per_chip - 1) * n;
    const auto set = [&](int64_t link_shares, Rational efficiency, int64_t steps, int64_t step_ps,
                         bool copied) {
      phase.bytes = share(bytes, link_shares, cores * links, efficiency * library_.link_efficiency);
      phase.steps = steps;
      phase.step_ps = step_ps;
      if (copied) phase.fixed_ps = copy_ps(share(bytes, copies, cores, {1, 1}));
    };
    if (algorithm == "mesh") {
      set(plane_distance(shape_.extent) * per_chip, library_.mesh_efficiency, 2,
          library_.mesh_step_ps, true);
    } else if (algorithm == "rdh") {
      int64_t steps = 1;  // and one inside the chip
      for (int64_t reach = 1; reach < n; reach *= 2) ++steps;
      set((n - 1) * per_chip, library_.rdh_efficiency, steps, library_.rdh_step_ps, true);
    } else if (algorithm == "kanga") {  // two primary ranks a chip, two disjoint cycles, both ways
      set((2 * n - 1) * std::max<int64_t>(1, per_chip / 2), {1, 1}, 2 * n - 1,
          library_.kanga_step_ps, false);
    } else {
      set((n - 1) * per_chip, {1, 1}, n - 1, library_.ring_step_ps, false);
    }
    return phase;
  }

  // One axis of an all-gather or reduce-scatter in which each chip ends or begins with `bytes`.
  PhaseTemplate along(int8_t axis, int64_t bytes) const {
    const int64_t n = shape_.extent[size_t(axis)];
    PhaseTemplate phase;
    phase.pattern = Pattern::axis_ring;
    phase.axis = axis;
    phase.bytes =
        share(bytes, n - 1, int128(2) * n * shape_.members_per_chip, library_.link_efficiency);
    phase.steps = n - 1;
    phase.step_ps = library_.ring_step_ps;
    return phase;
  }

  int64_t links_of_plane() const {
    return (shape_.extent[0] > 1 ? links(0) : 0) + (shape_.extent[1] > 1 ? links(1) : 0);
  }
  uint8_t mask_of_plane() const {
    return uint8_t((shape_.extent[0] > 1 ? 1 : 0) | (shape_.extent[1] > 1 ? 2 : 0));
  }
  int64_t plane_chips() const { return plane_chips_; }
  int64_t copy_ps(int64_t bytes) const {
    return bytes == 0 ? 0 : duration_ps(bytes, library_.in_chip_copy_Bps);
  }

 private:
  int64_t links(size_t axis) const { return shape_.extent[axis] > 2 ? 2 : 1; }

  const machine::Collectives& library_;
  const GroupShape& shape_;
  const int64_t plane_chips_;
};

// Reduce-scatter over the axes of a box, X first; the all-gather is the same backwards.
Phases scatter_axes(const Neuron& neuron, const GroupShape& shape, int64_t bytes) {
  Phases phases;
  for (int8_t axis = 0; axis < 3; ++axis) {
    if (shape.extent[size_t(axis)] < 2) continue;
    phases.push_back(neuron.along(axis, bytes));
    bytes = ceil_div(bytes, shape.extent[size_t(axis)]);
  }
  return phases;
}

// Reduce-scatter in the plane, then along Z.
Phases scatter_planes(const Neuron& neuron, const GroupShape& shape, const std::string& algorithm,
                      int64_t bytes) {
  Phases phases{neuron.plane(algorithm, bytes)};
  if (shape.extent[2] > 1) {
    phases.push_back(neuron.along(2, ceil_div(bytes, neuron.plane_chips())));
  }
  return phases;
}

// What a plane takes for `bytes`: the fastest of the library's three.
std::string plane_algorithm(const Neuron& neuron, int64_t bytes, const GroupShape& shape,
                            const Machine& machine) {
  return fastest({"mesh", "rdh", "kanga"}, [&](const std::string& name) {
    return phases_ps({neuron.plane(name, bytes)}, machine, shape);
  });
}

bool is_regular_box(const GroupShape& shape) { return shape.is_box && shape.members_per_chip > 0; }

}  // namespace

Names torus_names(const GroupShape& shape) {
  if (shape.whole_servers && shape.logical_per_chip > 1) {
    if (shape.extent[2] > 1) return {"hierarchical", "axis_rings", "ring"};
    return {"mesh", "rdh", "kanga", "axis_rings", "ring"};
  }
  if (shape.whole_servers) return {"plane_ring", "axis_rings", "ring"};
  if (is_regular_box(shape)) return {"axis_rings", "ring"};
  return {"ring"};
}

Names torus_choices(const GroupShape& shape) {
  const Names names = torus_names(shape);
  if (names.front() == "mesh") return {"mesh", "rdh", "kanga"};
  return {names.front()};
}

Phases torus_scatter(const std::string& name, int64_t bytes, const GroupShape& shape,
                     const Machine& machine) {
  const Neuron neuron(machine, shape);
  if (name == "axis_rings") return scatter_axes(neuron, shape, bytes);
  if (name == "plane_ring") return scatter_planes(neuron, shape, "ring", bytes);
  if (name != "hierarchical") return {neuron.plane(name, bytes)};
  return scatter_planes(neuron, shape, plane_algorithm(neuron, bytes, shape, machine), bytes);
}

// In pieces: every link on the way carries the buffer once, half of it each way.
Phases torus_broadcast(int64_t bytes, const GroupShape& shape, const Machine& machine) {
  const machine::Collectives& library = machine.chip.collectives;
  Phases phases;
  for (int8_t axis = 0; axis < 3; ++axis) {
    const int64_t n = shape.extent[size_t(axis)];
    if (n < 2) continue;
    PhaseTemplate phase;
    phase.pattern = Pattern::axis_ring;
    phase.axis = axis;
    phase.bytes = share(bytes, 1, 2 * shape.members_per_chip, library.link_efficiency);
    phase.steps = n - 1;
    phase.step_ps = library.ring_step_ps;
    phases.push_back(phase);
  }
  return phases;
}

bool has_cycles(const GroupShape& shape, const Machine& machine) {
  if (machine.scale_up != machine::ScaleUp::torus || !is_regular_box(shape)) return false;
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t n = shape.extent[axis];
    if (n > 1 && (n < 3 || !shape.is_closed_axis[axis])) return false;
  }
  return shape.chips > 1;
}

Phases cycle_broadcast(int64_t bytes, const GroupShape& shape, const Machine& machine) {
  PhaseTemplate phase;
  phase.pattern = Pattern::axes_spread;
  int64_t axes = 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    if (shape.extent[axis] < 2) continue;
    phase.axes_mask |= uint8_t(1U << axis);
    ++axes;
  }
  phase.bytes = share(bytes, 1, 2 * axes, machine.chip.collectives.link_efficiency);
  phase.steps = shape.chips - 1;
  phase.step_ps = machine.chip.collectives.ring_step_ps;
  return {phase};
}

}  // namespace trnsim::lower::collectives
