// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Groups with the same places in several pods: reduce-scatter in the pod by the pod's own
// algorithm, the same places of all pods among themselves over the fabric, all-gather in the pod.
// Reduce-scatter is without the last, all-gather without the first, and where a pod holds one
// member the middle is all there is.
#include "lower/collectives/parts.h"

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

}  // namespace

Names fabric_names(CallKind kind) {
  if (kind == CallKind::all_gather || kind == CallKind::reduce_scatter) {
    return {"hierarchical_ring", "hierarchical_rdh", "ring"};
  }
  return {"hierarchical_ring", "hierarchical_rdh", "hierarchical_tree", "ring"};
}

// NCCL takes a tree for what it can, Neuron, and TPUs for want of a source, recursive halving and
// doubling.
Names fabric_choices(CallKind kind, const Machine& machine) {
  if (machine.chip.collectives.library != "nccl") return {"hierarchical_ring", "hierarchical_rdh"};
  if (kind == CallKind::all_gather || kind == CallKind::reduce_scatter)
    return {"hierarchical_ring"};
  return {"hierarchical_ring", "hierarchical_tree"};
}

Phases fabric_phases(CallKind kind, const std::string& name, int64_t bytes, const Site& site) {
  if (name == "ring") return ring(kind, bytes, site.group, site.machine, Scope::group);
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
