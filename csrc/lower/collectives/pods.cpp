// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Groups with the same places in several pods: reduce-scatter in the pod by the pod's own
// algorithm, the same places of all pods among themselves over the fabric, all-gather in the pod.
// Reduce-scatter is without the last, all-gather without the first, and where a pod holds one
// member the middle is all there is.
//
// NCCL does all at once: as many rings as a pod has members go through all of them, and each leaves
// a pod by another member's NIC ("rail_ring"); its trees load links alike, in fewer steps
// ("rail_tree").
#include "lower/collectives/parts.h"
#include "lower/trees.h"

namespace trnsim::lower::collectives {
namespace {

using machine::Machine;
using workload::CallKind;

Phases ring_across(CallKind kind, int64_t bytes, int64_t pods, const Machine& machine) {
  PhaseTemplate phase;
  phase.pattern = Pattern::ring;
  phase.scope = Scope::across;
  phase.bytes = is_rooted(kind) ? bytes : share(bytes, pods - 1, pods, {1, 1});
  phase.steps = pods - 1;
  phase.step_ps = machine.fabric.step_ps;
  return is_rooted(kind) ? Phases{phase} : from_scatter(kind, {phase});
}

Phases across(CallKind kind, const std::string& name, int64_t bytes, const Site& site) {
  const int64_t pods = site.group.pods, step_ps = site.machine.fabric.step_ps;
  if (name == "hierarchical_ring") return ring_across(kind, bytes, pods, site.machine);
  if (name == "hierarchical_tree") return trees(kind, bytes, pods, step_ps, Scope::across);
  return from_scatter(is_rooted(kind) ? CallKind::all_reduce : kind,
                      halve(bytes, pods, step_ps, Scope::across));
}

// What a member sends in a pass over all of `bytes`. A pod's links have the library's efficiency,
// so that more passes there for as much: parts are whole.
PhaseTemplate rails(int64_t bytes, const Site& site) {
  const Rational efficiency = site.machine.chip.collectives.link_efficiency;
  PhaseTemplate phase;
  phase.pattern = Pattern::rails;
  phase.parts = {(site.pod.members - 1) * efficiency.denominator, efficiency.numerator};
  phase.bytes = share(bytes, 1, int128(site.pod.members) * efficiency.numerator, {1, 1});
  return phase;
}

Phases rail_ring(CallKind kind, int64_t bytes, const Site& site) {
  const int64_t members = site.group.members;
  const bool rooted = is_rooted(kind);
  PhaseTemplate phase = rails(rooted ? bytes : share(bytes, members - 1, members, {1, 1}), site);
  phase.steps = members - 1;
  set_latency(phase, site.machine.chip.collectives.ring_step_ps, site.group.pods - 1, site.machine);
  return rooted ? Phases{phase} : from_scatter(kind, {phase});
}

// Up and down: through the members of a pod one after the other, and between pods along a tree.
Phases rail_tree(CallKind kind, int64_t bytes, const Site& site) {
  const machine::Collectives& library = site.machine.chip.collectives;
  PhaseTemplate phase = rails(share(bytes, 1, 1, library.tree_efficiency), site);
  const int64_t depth = tree_depth(site.group.pods);
  phase.steps = site.pod.members - 1 + depth;
  set_latency(phase, library.ring_step_ps, depth, site.machine);
  return is_rooted(kind) ? Phases{phase} : Phases{phase, phase};
}

bool is_gather_or_scatter(CallKind kind) {
  return kind == CallKind::all_gather || kind == CallKind::reduce_scatter;
}

bool has_rails(const Site& site) {
  return site.pod.members > 1 && site.group.members_per_chip == 1 &&
         site.machine.scale_up == machine::ScaleUp::one_switch;
}

}  // namespace

Names fabric_names(CallKind kind, const Site& site) {
  Names names{"hierarchical_ring", "hierarchical_rdh", "ring"};
  if (!is_gather_or_scatter(kind)) names.push_back("hierarchical_tree");
  if (has_rails(site)) names.push_back("rail_ring");
  if (has_rails(site) && !is_gather_or_scatter(kind)) names.push_back("rail_tree");
  return names;
}

// NCCL takes a tree for what it can, Neuron, and TPUs for want of a source, recursive halving and
// doubling.
Names fabric_choices(CallKind kind, const Site& site) {
  if (site.machine.chip.collectives.library != "nccl") {
    return {"hierarchical_ring", "hierarchical_rdh"};
  }
  const std::string with = has_rails(site) ? "rail" : "hierarchical";
  if (is_gather_or_scatter(kind)) return {with + "_ring"};
  return {with + "_ring", with + "_tree"};
}

Phases fabric_phases(CallKind kind, const std::string& name, int64_t bytes, const Site& site) {
  if (name == "ring") return ring(kind, bytes, site.group, site.machine, Scope::group);
  if (name == "rail_ring") return rail_ring(kind, bytes, site);
  if (name == "rail_tree") return rail_tree(kind, bytes, site);
  const int64_t members = site.pod.members;
  Phases middle = across(kind, name, ceil_div(bytes, members), site);
  if (members == 1) return middle;
  const std::string inside = pod_choice(CallKind::reduce_scatter, bytes, site.pod, site.machine);
  const Phases scatter =
      pod_phases(CallKind::reduce_scatter, inside, bytes, site.pod, site.machine, Scope::pod);
  if (kind == CallKind::reduce_scatter) return joined(scatter, middle);
  if (kind == CallKind::all_gather) return joined(std::move(middle), backwards(scatter));
  return joined(joined(scatter, middle), backwards(scatter));
}

}  // namespace trnsim::lower::collectives
