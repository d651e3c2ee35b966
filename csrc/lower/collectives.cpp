// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "lower/collectives.h"

#include <algorithm>
#include <set>

namespace trnsim::lower {
namespace {

using machine::Machine;
using workload::CallKind;

int64_t share(int128 bytes, int128 numerator, int128 denominator, Rational efficiency) {
  const int128 top = bytes * numerator * efficiency.denominator;
  return int64_t(ceil_div<int128>(top, denominator * efficiency.numerator));
}

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
      : machine_(machine),
        library_(machine.chip.collectives),
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

  const Machine& machine_;
  const machine::Collectives& library_;
  const GroupShape& shape_;
  const int64_t plane_chips_;
};

void append(std::vector<PhaseTemplate>& phases, std::vector<PhaseTemplate> more) {
  phases.insert(phases.end(), more.begin(), more.end());
}

// Reduce-scatter over the axes of a box, X first; the all-gather is the same backwards.
std::vector<PhaseTemplate> scatter_axes(const Neuron& neuron, const GroupShape& shape,
                                        int64_t bytes) {
  std::vector<PhaseTemplate> phases;
  for (int8_t axis = 0; axis < 3; ++axis) {
    if (shape.extent[size_t(axis)] < 2) continue;
    phases.push_back(neuron.along(axis, bytes));
    bytes = ceil_div(bytes, shape.extent[size_t(axis)]);
  }
  return phases;
}

std::vector<PhaseTemplate> backwards(std::vector<PhaseTemplate> phases) {
  std::reverse(phases.begin(), phases.end());
  return phases;
}

// Reduce-scatter in the plane, then along Z.
std::vector<PhaseTemplate> scatter_planes(const Neuron& neuron, const GroupShape& shape,
                                          const std::string& algorithm, int64_t bytes) {
  std::vector<PhaseTemplate> phases{neuron.plane(algorithm, bytes)};
  if (shape.extent[2] > 1) {
    phases.push_back(neuron.along(2, ceil_div(bytes, neuron.plane_chips())));
  }
  return phases;
}

// `phase.steps` steps one after the other, of which `between_pods` leave their pod and take as long
// as the fabric's file says, hops included.
void set_latency(PhaseTemplate& phase, int64_t step_ps, int64_t between_pods,
                 const Machine& machine) {
  phase.step_ps = step_ps;
  phase.hop_ps = between_pods > 0 ? 0 : machine.hop_ps;
  phase.fixed_ps += between_pods * std::max<int64_t>(0, machine.fabric.step_ps - step_ps);
}

PhaseTemplate plain_ring(int64_t bytes, const GroupShape& shape, const Machine& machine) {
  const machine::Collectives& library = machine.chip.collectives;
  const bool torus = machine.scale_up == machine::ScaleUp::torus;
  PhaseTemplate phase;
  phase.pattern = torus ? Pattern::ring_both : Pattern::ring;
  phase.bytes = share(bytes, shape.members - 1, int128(torus ? 2 : 1) * shape.members,
                      library.link_efficiency);
  phase.steps = shape.members - 1;
  // What a member sends goes round all hops of the ring but one.
  set_latency(phase, library.ring_step_ps, std::min(shape.pod_crossings, phase.steps), machine);
  return phase;
}

// Latency of a step that is no ring.
int64_t direct_step_ps(const machine::Collectives& library) {
  return library.mesh_step_ps > 0 ? library.mesh_step_ps : library.ring_step_ps;
}

PhaseTemplate direct(Pattern pattern, int64_t bytes, int64_t steps, const GroupShape& shape,
                     const Machine& machine) {
  PhaseTemplate phase;
  phase.pattern = pattern;
  phase.bytes = share(bytes, 1, 1, machine.chip.collectives.link_efficiency);
  phase.steps = steps;
  set_latency(phase, direct_step_ps(machine.chip.collectives), shape.pods > 1 ? steps : 0, machine);
  return phase;
}

// All members on one chip: copies through its memory.
std::vector<PhaseTemplate> inside_chip(const GroupShape& shape, int64_t bytes,
                                       const Machine& machine) {
  PhaseTemplate phase;
  phase.steps = 1;
  phase.step_ps = direct_step_ps(machine.chip.collectives);
  const int64_t moved = share(bytes, shape.members - 1, shape.members, {1, 1});
  phase.fixed_ps = moved == 0 ? 0 : duration_ps(moved, machine.chip.collectives.in_chip_copy_Bps);
  return {phase};
}

std::vector<std::string> candidates(const GroupShape& shape, const Machine& machine) {
  if (machine.scale_up != machine::ScaleUp::torus || shape.pods > 1) return {"ring"};
  if (shape.chips == 1) return {"direct"};
  if (shape.whole_servers && shape.logical_per_chip > 1) {
    if (shape.extent[2] > 1) return {"hierarchical", "axis_rings", "ring"};
    return {"mesh", "rdh", "kanga", "axis_rings", "ring"};
  }
  if (shape.whole_servers) return {"plane_ring", "axis_rings", "ring"};
  if (shape.is_box && shape.members_per_chip > 0) return {"axis_rings", "ring"};
  return {"ring"};
}

int64_t phases_ps(const std::vector<PhaseTemplate>& phases, const Machine& machine);

// What a plane takes for `bytes`: the fastest of the library's three.
std::string plane_algorithm(const Neuron& neuron, int64_t bytes, const Machine& machine) {
  std::string best = "mesh";
  int64_t best_ps = phases_ps({neuron.plane("mesh", bytes)}, machine);
  for (const char* algorithm : {"rdh", "kanga"}) {
    const int64_t ps = phases_ps({neuron.plane(algorithm, bytes)}, machine);
    if (ps < best_ps) {
      best = algorithm;
      best_ps = ps;
    }
  }
  return best;
}

struct Scatter {
  std::string algorithm;
  std::vector<PhaseTemplate> phases;
};

// The reduce-scatter that all-gather, reduce-scatter and all-reduce are made of.
Scatter scatter(const GroupShape& shape, int64_t bytes, const Machine& machine,
                const std::string& forced) {
  const std::vector<std::string> known = candidates(shape, machine);
  std::string algorithm = forced.empty() ? known.front() : forced;
  if (std::find(known.begin(), known.end(), algorithm) == known.end()) {
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    throw Error(ErrorKind::lower,
                "algorithm '" + algorithm + "' does not suit a group of " +
                    std::to_string(shape.members) + " ranks on " + std::to_string(shape.chips) +
                    " chips",
                "use one of " + list);
  }
  const Neuron neuron(machine, shape);
  if (forced.empty() && algorithm == "mesh") algorithm = plane_algorithm(neuron, bytes, machine);
  if (algorithm == "ring") return {algorithm, {plain_ring(bytes, shape, machine)}};
  if (algorithm == "direct") return {algorithm, inside_chip(shape, bytes, machine)};
  if (algorithm == "axis_rings") return {algorithm, scatter_axes(neuron, shape, bytes)};
  if (algorithm == "plane_ring") {
    return {algorithm, scatter_planes(neuron, shape, "ring", bytes)};
  }
  if (algorithm != "hierarchical") return {algorithm, {neuron.plane(algorithm, bytes)}};
  return {algorithm, scatter_planes(neuron, shape, plane_algorithm(neuron, bytes, machine), bytes)};
}

// A whole buffer travels along each axis of the box, or along the ring, in pieces: every link on
// the way carries it once, and half of it each way where there are two ways.
Scatter rooted(const GroupShape& shape, int64_t bytes, const Machine& machine) {
  if (shape.chips == 1 && machine.scale_up == machine::ScaleUp::torus) {
    return {"direct", inside_chip(shape, bytes, machine)};
  }
  const machine::Collectives& library = machine.chip.collectives;
  if (machine.scale_up == machine::ScaleUp::torus && shape.is_box && shape.members_per_chip > 0) {
    Scatter made{"axis_rings", {}};
    for (int8_t axis = 0; axis < 3; ++axis) {
      const int64_t n = shape.extent[size_t(axis)];
      if (n < 2) continue;
      PhaseTemplate phase;
      phase.pattern = Pattern::axis_ring;
      phase.axis = axis;
      phase.bytes = share(bytes, 1, 2 * shape.members_per_chip, library.link_efficiency);
      phase.steps = n - 1;
      phase.step_ps = library.ring_step_ps;
      made.phases.push_back(phase);
    }
    return made;
  }
  PhaseTemplate phase = plain_ring(bytes, shape, machine);
  const int64_t ways = phase.pattern == Pattern::ring_both ? 2 : 1;
  phase.bytes = share(bytes, 1, ways, library.link_efficiency);
  return {"ring", {phase}};
}

}  // namespace

namespace {

// Rate of the slowest link that a pattern uses, for the closed form.
Rational link_rate(const PhaseTemplate& phase, const Machine& machine) {
  if (machine.scale_up == machine::ScaleUp::one_switch) return machine.switch_port_Bps;
  if (machine.scale_up == machine::ScaleUp::hypercube) return machine.hypercube_Bps;
  if (phase.pattern == Pattern::axis_ring) return machine.torus_axis_Bps[size_t(phase.axis)];
  Rational slowest{0, 1};
  for (size_t axis = 0; axis < 3; ++axis) {
    if (machine.torus[axis] < 2) continue;
    const bool used = phase.pattern != Pattern::axes_spread || (phase.axes_mask >> axis & 1);
    if (!used) continue;
    if (slowest.is_zero() || machine.torus_axis_Bps[axis] < slowest) {
      slowest = machine.torus_axis_Bps[axis];
    }
  }
  return slowest;
}

int64_t phases_ps(const std::vector<PhaseTemplate>& phases, const Machine& machine) {
  int64_t total_ps = 0;
  for (const PhaseTemplate& phase : phases) {
    total_ps += phase.steps * phase.step_ps + phase.fixed_ps;
    if (phase.pattern != Pattern::none) total_ps += phase.hop_ps;
    const Rational rate = link_rate(phase, machine);
    if (phase.bytes > 0 && phase.pattern != Pattern::none && !rate.is_zero()) {
      total_ps += duration_ps(phase.bytes, rate);
    }
  }
  return total_ps;
}

}  // namespace

int64_t alone_ps(const CallTemplate& call, const Machine& machine) {
  return phases_ps(call.phases, machine);
}

GroupShape shape_of(const workload::RankPattern& ranks, const Machine& machine,
                    const machine::Placement& placement) {
  GroupShape shape;
  shape.members = ranks.size();
  std::map<int64_t, int64_t> on_chip;
  for (int64_t i = 0; i < shape.members; ++i) {
    const int64_t rank = ranks.rank_at(i);
    TRN_CHECK(rank >= 0 && rank < placement.ranks, lower,
              "a process group holds rank " + std::to_string(rank) + ", and " +
                  std::to_string(placement.ranks) + " ranks are placed",
              "ask for as many chips as the script has ranks");
    ++on_chip[placement.chip_of(rank)];
  }
  shape.chips = int64_t(on_chip.size());
  shape.members_per_chip = on_chip.begin()->second;
  for (const auto& [chip, count] : on_chip) {
    if (count != shape.members_per_chip) shape.members_per_chip = 0;
  }
  const int64_t pod = machine::pod_chips(machine);
  std::set<int64_t> pods;
  int64_t before = placement.chip_of(ranks.rank_at(shape.members - 1)) / pod;
  for (int64_t i = 0; i < shape.members; ++i) {
    const int64_t at = placement.chip_of(ranks.rank_at(i)) / pod;
    shape.pod_crossings += at != before;
    pods.insert(before = at);
  }
  shape.pods = int64_t(pods.size());
  if (machine.scale_up != machine::ScaleUp::torus || shape.pods > 1) return shape;
  const auto torus = machine::used_torus(machine, placement.chips);
  std::array<std::set<int64_t>, 3> seen;
  for (const auto& [chip, count] : on_chip) {
    const int64_t at = chip % pod;
    seen[0].insert(at % torus[0]);
    seen[1].insert(at / torus[0] % torus[1]);
    seen[2].insert(at / (torus[0] * torus[1]));
  }
  for (size_t axis = 0; axis < 3; ++axis) shape.extent[axis] = int64_t(seen[axis].size());
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
  return shape;
}

CallTemplate make_call(const workload::Call& call, const workload::Group& group,
                       const Machine& machine, const machine::Placement& placement,
                       const std::string& forced) {
  CallTemplate made;
  made.kind = call.kind;
  made.group = call.group;
  made.bytes = call.bytes;
  made.peer = call.peer;
  made.tag = call.tag;
  const GroupShape shape = shape_of(group.ranks, machine, placement);
  const bool inside = shape.chips == 1 && machine.scale_up == machine::ScaleUp::torus;
  const int64_t each = ceil_div(call.bytes, std::max<int64_t>(1, shape.members));
  const auto take = [&](Scatter scatter) {
    made.algorithm = scatter.algorithm;
    made.phases = std::move(scatter.phases);
  };
  switch (call.kind) {
    case CallKind::reduce_scatter:
      take(scatter(shape, call.bytes, machine, forced));
      break;
    case CallKind::all_gather:
      take(scatter(shape, call.bytes, machine, forced));
      made.phases = backwards(made.phases);
      break;
    case CallKind::all_reduce:
    case CallKind::barrier: {
      const int64_t bytes = call.kind == CallKind::barrier ? 0 : call.bytes;
      take(scatter(shape, bytes, machine, forced));
      append(made.phases, backwards(made.phases));
      break;
    }
    case CallKind::broadcast:
    case CallKind::reduce:
      take(rooted(shape, call.bytes, machine));
      break;
    case CallKind::gather:
      take({"direct", {direct(Pattern::all_to_one, each, 1, shape, machine)}});
      break;
    case CallKind::scatter:
      take({"direct", {direct(Pattern::one_to_all, each, 1, shape, machine)}});
      break;
    case CallKind::all_to_all:
      if (inside) {
        take({"direct", inside_chip(shape, call.bytes, machine)});
      } else {
        take({"pairwise", {direct(Pattern::pairwise, each, 2, shape, machine)}});
      }
      break;
    case CallKind::send:
    case CallKind::recv:
      take({"direct", {direct(Pattern::message, call.bytes, 1, shape, machine)}});
      break;
  }
  if (!made.phases.empty()) made.phases.front().fixed_ps += machine.chip.collectives.base_ps;
  return made;
}

}  // namespace trnsim::lower
