// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "lower/collectives.h"

#include <algorithm>

#include "lower/collectives/parts.h"
#include "lower/trees.h"

namespace trnsim::lower {
namespace collectives {

using machine::Machine;
using workload::CallKind;

constexpr Rational kWhole{1, 1};

int64_t share(int128 bytes, int128 numerator, int128 denominator, Rational efficiency) {
  const int128 top = bytes * numerator * efficiency.denominator;
  return int64_t(ceil_div<int128>(top, denominator * efficiency.numerator));
}

Phases joined(Phases first, const Phases& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

Phases backwards(Phases phases) {
  std::reverse(phases.begin(), phases.end());
  return phases;
}

bool is_all_reduce(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::barrier;
}
bool is_rooted(CallKind kind) { return kind == CallKind::broadcast || kind == CallKind::reduce; }

Phases from_scatter(CallKind kind, Phases scatter) {
  if (kind == CallKind::all_gather) return backwards(std::move(scatter));
  return is_all_reduce(kind) ? joined(scatter, backwards(scatter)) : scatter;
}

void set_latency(PhaseTemplate& phase, int64_t step_ps, int64_t between_pods,
                 const Machine& machine) {
  phase.step_ps = step_ps;
  phase.hop_ps = between_pods > 0 ? 0 : machine.hop_ps;
  phase.fixed_ps += between_pods * std::max<int64_t>(0, machine.fabric.step_ps - step_ps);
}

bool has_whole_nic(const GroupShape& shape, const Machine& machine) {
  return shape.pods > 1 && machine.scale_up != machine::ScaleUp::torus;
}

void leave_nic_whole(PhaseTemplate& phase, const Machine& machine) {
  constexpr int64_t kMostSends = 128;
  const Rational efficiency = machine.chip.collectives.link_efficiency;
  int128 least = 0;  // |in_pod / fabric - 1 / efficiency|, times what does not change but fabric
  for (int64_t fabric = 1; fabric <= kMostSends; ++fabric) {
    const int128 wanted = int128(fabric) * efficiency.denominator;
    const int128 in_pod = (2 * wanted + efficiency.numerator) / (2 * efficiency.numerator);
    const int128 off = in_pod * efficiency.numerator - wanted;
    const int128 error = off < 0 ? -off : off;
    if (fabric > 1 && error * phase.fabric_sends >= least * fabric) continue;
    least = error;
    phase.in_pod_sends = int64_t(in_pod);
    phase.fabric_sends = fabric;
    if (error == 0) break;
  }
  phase.bytes = ceil_div(phase.bytes, phase.fabric_sends);
}

int64_t direct_step_ps(const machine::Collectives& library) {
  return library.mesh_step_ps > 0 ? library.mesh_step_ps : library.ring_step_ps;
}

Phases ring(CallKind kind, int64_t bytes, const GroupShape& shape, const Machine& machine,
            Scope scope, bool by_ll) {
  const machine::Collectives& library = machine.chip.collectives;
  const bool whole_nic = scope == Scope::group && has_whole_nic(shape, machine);
  const Rational efficiency =
      (whole_nic ? kWhole : library.link_efficiency) * (by_ll ? library.ll_efficiency : kWhole);
  const int64_t ways = machine.scale_up == machine::ScaleUp::torus ? 2 : 1;
  PhaseTemplate phase;
  phase.pattern = ways == 2 ? Pattern::ring_both : Pattern::ring;
  phase.scope = scope;
  phase.bytes = is_rooted(kind)
                    ? share(bytes, 1, ways, efficiency)
                    : share(bytes, shape.members - 1, int128(ways) * shape.members, efficiency);
  if (whole_nic) leave_nic_whole(phase, machine);
  phase.steps = shape.members - 1;
  // What a member sends goes round all hops of the ring but one.
  set_latency(phase, by_ll ? library.ll_ring_step_ps : library.ring_step_ps,
              std::min(shape.pod_crossings, phase.steps), machine);
  Phases phases = from_scatter(kind, {phase});
  if (by_ll) phases.front().fixed_ps += library.ll_base_ps - library.base_ps;  // make_call adds it
  return phases;
}

namespace {

// Rate of the slowest link inside a pod that a pattern uses.
Rational rate_in_pod(const PhaseTemplate& phase, const Machine& machine) {
  if (machine.scale_up == machine::ScaleUp::one_switch) return machine.switch_port_Bps;
  if (machine.scale_up == machine::ScaleUp::hypercube) return machine.hypercube_Bps;
  if (phase.pattern == Pattern::axis_ring || phase.pattern == Pattern::axis_all)
    return machine.torus_axis_Bps[size_t(phase.axis)];
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

// On the slower of the pod's links and the NIC, as far as the phase uses them.
int64_t sends_ps(const PhaseTemplate& phase, int128 sends, const Machine& machine,
                 const GroupShape& shape) {
  int64_t in_pod_ps = 0, fabric_ps = 0;
  const bool stays = phase.pattern == Pattern::axis_ring || phase.pattern == Pattern::axes_spread ||
                     phase.scope == Scope::pod || shape.pods == 1;
  const Rational inside = rate_in_pod(phase, machine), nic = machine.fabric.nic_Bps;
  if (phase.scope != Scope::across && !inside.is_zero())
    in_pod_ps = duration_ps(sends * phase.bytes * phase.in_pod_sends, inside);
  if ((phase.scope == Scope::across || !stays) && !nic.is_zero())
    fabric_ps = duration_ps(sends * phase.bytes * phase.fabric_sends, nic);
  return std::max(in_pod_ps, fabric_ps);
}

// Sends of the phase that share its busiest link.
int64_t sends_of(const PhaseTemplate& phase, const GroupShape& shape, bool is_on_switch) {
  const bool is_across = phase.scope == Scope::across;
  const int64_t joined = is_across ? shape.pods : shape.members / shape.pods;
  const bool is_tree =
      phase.pattern == Pattern::to_parents || phase.pattern == Pattern::to_children;
  int64_t of_member = is_tree ? std::max<int64_t>(1, most_children(joined)) : 1;
  const bool is_exchange = phase.pattern == Pattern::pairwise ||
                           phase.pattern == Pattern::one_to_all ||
                           phase.pattern == Pattern::all_to_one;
  if (is_exchange && is_on_switch) of_member = std::max<int64_t>(1, joined - 1);
  return of_member * (is_across ? std::max<int64_t>(1, shape.members_per_chip) : 1);
}

// Of a pod's links and the NICs, the slower.
int64_t rails_ps(const PhaseTemplate& phase, const Machine& machine) {
  const int64_t in_pod_ps =
      duration_ps(int128(phase.bytes) * phase.parts[0], rate_in_pod(phase, machine));
  return std::max(in_pod_ps,
                  duration_ps(int128(phase.bytes) * phase.parts[1], machine.fabric.nic_Bps));
}

}  // namespace

int64_t phases_ps(const Phases& phases, const Machine& machine, const GroupShape& shape) {
  int64_t total_ps = 0;
  for (const PhaseTemplate& phase : phases) {
    total_ps += phase.steps * phase.step_ps + phase.fixed_ps;
    if (phase.pattern == Pattern::none) continue;
    total_ps += phase.hop_ps;
    if (phase.pattern == Pattern::rails) {
      total_ps += rails_ps(phase, machine);
      continue;
    }
    if (phase.bytes == 0) continue;
    const bool is_on_switch = machine.scale_up == machine::ScaleUp::one_switch;
    total_ps += sends_ps(phase, sends_of(phase, shape, is_on_switch), machine, shape);
  }
  return total_ps;
}

namespace {

bool is_hierarchical(const GroupShape& group) { return group.pods > 1 && group.members_in_pod > 0; }

Names names_of(CallKind kind, const Site& site) {
  if (is_hierarchical(site.group)) return fabric_names(kind, site);
  return site.group.pods > 1 ? Names{"ring"} : pod_names(kind, site.pod, site.machine);
}

Phases phases_of(CallKind kind, const std::string& name, int64_t bytes, const Site& site) {
  if (is_hierarchical(site.group)) return fabric_phases(kind, name, bytes, site);
  return pod_phases(kind, name, bytes, site.group, site.machine, Scope::group);
}

std::string choose(CallKind kind, int64_t bytes, const Site& site) {
  if (!is_hierarchical(site.group)) {
    return site.group.pods > 1 ? "ring" : pod_choice(kind, bytes, site.pod, site.machine);
  }
  return fastest(fabric_choices(kind, site), [&](const std::string& name) {
    return phases_ps(phases_of(kind, name, bytes, site), site.machine, site.group);
  });
}

void check_suits(const std::string& forced, const Names& names, const GroupShape& group) {
  if (std::find(names.begin(), names.end(), forced) != names.end()) return;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw Error(ErrorKind::lower,
              "algorithm '" + forced + "' does not suit a group of " +
                  std::to_string(group.members) + " ranks on " + std::to_string(group.chips) +
                  " chips",
              "use one of " + list);
}

void fill(CallTemplate& made, const workload::Call& call, int64_t own, const Site& site,
          const std::string& forced) {
  const int64_t bytes = made.kind == CallKind::barrier ? 0 : made.bytes;
  const int64_t each = ceil_div(bytes, std::max<int64_t>(1, site.group.members));
  const auto direct_phase = [&](Pattern pattern, int64_t sent, int64_t steps) {
    made.algorithm = "direct";
    made.phases = {direct(pattern, sent, steps, site)};
  };
  switch (made.kind) {
    case CallKind::gather:
      return direct_phase(Pattern::all_to_one, each, 1);
    case CallKind::scatter:
      return direct_phase(Pattern::one_to_all, each, 1);
    case CallKind::send:
    case CallKind::recv:
      return direct_phase(Pattern::message, bytes, 1);
    case CallKind::all_to_all:
      if (!forced.empty()) {
        check_suits(forced, exchange_names(site), site.group);
      } else if (const int64_t distance = workload::shift_of(call, own); distance >= 0) {
        made.algorithm = "shift";
        made.phases = shift_phases(bytes, distance, site);
        return;
      }
      made.algorithm = forced.empty() ? "direct" : forced;
      made.phases = exchange_phases(made.algorithm, call, site);
      return;
    default:
      break;
  }
  if (!forced.empty()) check_suits(forced, names_of(made.kind, site), site.group);
  made.algorithm = forced.empty() ? choose(made.kind, bytes, site) : forced;
  made.phases = phases_of(made.kind, made.algorithm, bytes, site);
}

}  // namespace
}  // namespace collectives

bool has_algorithms(workload::CallKind kind) {
  using workload::CallKind;
  return kind != CallKind::gather && kind != CallKind::scatter && kind != CallKind::send &&
         kind != CallKind::recv;
}

int64_t alone_ps(const CallTemplate& call, const machine::Machine& machine,
                 const GroupShape& shape) {
  return collectives::phases_ps(call.phases, machine, shape);
}

CallTemplate make_call(const workload::Call& call, int64_t own, const GroupShapes& shapes,
                       const machine::Machine& machine, const std::string& forced) {
  CallTemplate made;
  made.kind = call.kind;
  made.group = call.group;
  made.bytes = call.bytes;
  made.peer = call.peer;
  made.tag = call.tag;
  collectives::fill(made, call, own, {shapes.whole, shapes.in_pod, machine}, forced);
  if (!made.phases.empty()) made.phases.front().fixed_ps += machine.chip.collectives.base_ps;
  return made;
}

}  // namespace trnsim::lower
