// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Groups in one pod: a chip, a torus, a hypercube or a switch.
#include <algorithm>

#include "lower/collectives/parts.h"
#include "lower/trees.h"

namespace trnsim::lower::collectives {
namespace {

using machine::Machine;
using workload::CallKind;

bool is_torus(const Machine& machine) { return machine.scale_up == machine::ScaleUp::torus; }
bool multicasts(const Machine& machine) {
  return machine.scale_up == machine::ScaleUp::one_switch && machine.switch_multicasts;
}

bool is_tpu(const Machine& machine) { return machine.chip.collectives.library == "tpu"; }

Names names_of_torus(const GroupShape& shape, const Machine& machine) {
  return is_tpu(machine) ? tpu_names(shape) : torus_names(shape);
}

// Every member reads its share of all others' through the switch, which adds, and writes it back to
// all, which the switch copies: up every link go the buffer and a share, and so down.
Phases in_switch(int64_t bytes, const GroupShape& shape, const Machine& machine) {
  const machine::Collectives& library = machine.chip.collectives;
  PhaseTemplate phase;
  phase.pattern = Pattern::multicast;
  phase.bytes = share(bytes, shape.members + 1, shape.members, library.multicast_efficiency);
  phase.steps = 1;
  phase.step_ps = library.multicast_ps;
  return {phase};
}

// A broadcast that no algorithm of its own serves is an all-reduce to which the others add nothing,
// and so is a reduce, the result of which the others throw away.
CallKind as_all_reduce(CallKind kind) { return is_rooted(kind) ? CallKind::all_reduce : kind; }

Phases faster(Phases a, Phases b, const GroupShape& shape, const Machine& machine) {
  return phases_ps(b, machine, shape) < phases_ps(a, machine, shape) ? b : a;
}

void add(Names& names, const Names& more) {
  for (const std::string& name : more) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
}

}  // namespace

bool is_one_chip(const GroupShape& shape, const Machine& machine) {
  return is_torus(machine) && shape.chips == 1;
}

// Copies through the memory of the chip.
Phases inside_chip(int64_t bytes, const GroupShape& shape, const Machine& machine) {
  PhaseTemplate phase;
  phase.steps = 1;
  phase.step_ps = direct_step_ps(machine.chip.collectives);
  const int64_t moved = share(bytes, shape.members - 1, shape.members, {1, 1});
  phase.fixed_ps = moved == 0 ? 0 : duration_ps(moved, machine.chip.collectives.in_chip_copy_Bps);
  return {phase};
}

Names pod_names(CallKind kind, const GroupShape& shape, const Machine& machine) {
  if (is_one_chip(shape, machine)) return {"direct"};
  if (is_torus(machine)) {
    Names names = names_of_torus(shape, machine);
    if (is_rooted(kind) && has_cycles(shape, machine)) names.push_back("cycles");
    return names;
  }
  if (kind == CallKind::all_gather || kind == CallKind::reduce_scatter) return {"ring", "rdh"};
  if (multicasts(machine)) return {"ring", "rdh", "tree", "nvls"};
  return {"ring", "rdh", "tree"};
}

Names pod_choices(CallKind kind, const GroupShape& shape, const Machine& machine) {
  if (is_one_chip(shape, machine)) return {"direct"};
  Names choices;
  if (is_rooted(kind)) {
    const bool has_axes = is_torus(machine) && shape.is_box && shape.members_per_chip > 0;
    choices.push_back(has_axes ? "axis_rings" : "ring");
    if (has_cycles(shape, machine)) choices.push_back("cycles");
  }
  if (is_torus(machine)) {
    add(choices, is_tpu(machine) ? Names{tpu_names(shape).front()} : torus_choices(shape));
  } else if (machine.scale_up == machine::ScaleUp::hypercube) {
    add(choices, {"ring", "rdh"});
  } else {
    add(choices, {"ring"});
    const bool reduces = kind != CallKind::all_gather && kind != CallKind::reduce_scatter;
    if (reduces && multicasts(machine)) choices.push_back("nvls");
  }
  return choices;
}

Phases pod_phases(CallKind kind, const std::string& name, int64_t bytes, const GroupShape& shape,
                  const Machine& machine, Scope scope) {
  if (name == "ring") {
    Phases phases = ring(kind, bytes, shape, machine, scope);
    if (machine.chip.collectives.ll_efficiency.is_zero() || scope != Scope::group) return phases;
    return faster(std::move(phases), ring(kind, bytes, shape, machine, scope, true), shape,
                  machine);
  }
  if (name == "direct") {
    const Phases phases = inside_chip(bytes, shape, machine);
    return is_rooted(kind) ? phases : from_scatter(kind, phases);
  }
  const machine::Collectives& library = machine.chip.collectives;
  if (name == "cycles") return cycle_broadcast(bytes, shape, machine);
  if (is_torus(machine)) {
    const Phases scatter = name == "axes" ? tpu_axes(bytes, shape, machine)
                                          : torus_scatter(name, bytes, shape, machine);
    Phases phases = from_scatter(as_all_reduce(kind), scatter);
    if (!is_rooted(kind) || name != "axis_rings") return phases;
    return faster(torus_broadcast(bytes, shape, machine), std::move(phases), shape, machine);
  }
  if (name == "nvls") return in_switch(bytes, shape, machine);
  const int64_t sent = share(bytes, 1, 1, library.link_efficiency);
  Phases phases = name == "tree"
                      ? trees(kind, sent, shape.members, library.ring_step_ps, scope)
                      : from_scatter(as_all_reduce(kind),
                                     halve(sent, shape.members, library.ring_step_ps, scope));
  for (PhaseTemplate& phase : phases) phase.hop_ps = machine.hop_ps;
  return phases;
}

std::string pod_choice(CallKind kind, int64_t bytes, const GroupShape& shape,
                       const Machine& machine) {
  return fastest(pod_choices(kind, shape, machine), [&](const std::string& name) {
    return phases_ps(pod_phases(kind, name, bytes, shape, machine, Scope::group), machine, shape);
  });
}

Phases trees(CallKind kind, int64_t bytes, int64_t count, int64_t step_ps, Scope scope) {
  PhaseTemplate phase;
  phase.scope = scope;
  phase.bytes = ceil_div<int64_t>(bytes, 2);
  phase.steps = tree_depth(count);
  phase.step_ps = step_ps;
  Phases phases;
  for (const Pattern pattern : {Pattern::to_parents, Pattern::to_children}) {
    const bool is_up = pattern == Pattern::to_parents;
    if (kind == (is_up ? CallKind::broadcast : CallKind::reduce)) continue;
    phase.pattern = pattern;
    phases.push_back(phase);
  }
  return phases;
}

Phases halve(int64_t bytes, int64_t count, int64_t step_ps, Scope scope) {
  const bool in_pairs = (count & (count - 1)) == 0;
  Phases phases;
  for (int64_t reach = 1; reach < count; reach *= 2) {
    PhaseTemplate phase;
    phase.pattern = in_pairs ? Pattern::exchange : Pattern::shift;
    phase.scope = scope;
    phase.distance = reach;
    phase.bytes = share(bytes, std::min(reach, count - reach), count, {1, 1});
    phase.steps = 1;
    phase.step_ps = step_ps;
    phases.push_back(phase);
  }
  return backwards(phases);  // the largest part first
}

}  // namespace trnsim::lower::collectives
