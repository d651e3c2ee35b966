// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What families of algorithms are made of. Private to lower/.
//
// A family knows which algorithms suit a group (names), which of them the library would consider
// (choices: the fastest by the closed form is taken, the first of equals), and the phases of each.
// Most are told as a reduce-scatter, of which an all-gather is the reverse and an all-reduce both.
#pragma once

#include <string>
#include <vector>

#include "lower/collectives.h"

namespace trnsim::lower::collectives {

using Phases = std::vector<PhaseTemplate>;
using Names = std::vector<std::string>;

struct Site {
  const GroupShape& group;
  const GroupShape& pod;  // the part of the group in one pod; the group itself when it is in one
  const machine::Machine& machine;
};

// ceil(bytes * numerator / (denominator * efficiency))
int64_t share(int128 bytes, int128 numerator, int128 denominator, Rational efficiency);
Phases joined(Phases first, const Phases& then);
Phases backwards(Phases phases);

// Kinds that differ only in that: barrier is an all-reduce, reduce a broadcast backwards.
bool is_all_reduce(workload::CallKind kind);
bool is_rooted(workload::CallKind kind);  // broadcast, reduce
// The phases of `kind` from those of the reduce-scatter.
Phases from_scatter(workload::CallKind kind, Phases scatter);

// `phase.steps` steps one after the other, of which `between_pods` leave their pod and take as long
// as the fabric's file says, hops included.
void set_latency(PhaseTemplate& phase, int64_t step_ps, int64_t between_pods,
                 const machine::Machine& machine);
// Whether a group's sends leave their pod and find the NIC whole: leave_nic_whole then counts them.
bool has_whole_nic(const GroupShape& shape, const machine::Machine& machine);
// Gives `phase.bytes`, each as many as it is, the library's share of a pod's links alone: the phase
// counts them in sends of 1 / fabric_sends, rounded up. The share is met to 1 in 10,000.
void leave_nic_whole(PhaseTemplate& phase, const machine::Machine& machine);
// Latency of a step that is no ring.
int64_t direct_step_ps(const machine::Collectives& library);
int64_t phases_ps(const Phases& phases, const machine::Machine& machine, const GroupShape& shape);

// One ring over all members in group order; a broadcast sends all of the buffer over every link.
// With `by_ll`, by NCCL's protocol for small messages.
Phases ring(workload::CallKind kind, int64_t bytes, const GroupShape& shape,
            const machine::Machine& machine, Scope scope, bool by_ll = false);
// A reduce-scatter by recursive halving among `count` members: each step sends half of what is
// left to a partner. Where `count` is no power of two, what is left is no half, and goes to the
// member so many places on (J. Bruck et al., IEEE TPDS 8(11), 1997, backwards).
Phases halve(int64_t bytes, int64_t count, int64_t step_ps, Scope scope);
// Up the two trees, or down them, or up and down.
Phases trees(workload::CallKind kind, int64_t bytes, int64_t count, int64_t step_ps, Scope scope);

// The name with the least `time_ps`, the first of equals.
template <typename TimePs>
std::string fastest(const Names& names, TimePs time_ps) {
  std::string best = names.front();
  if (names.size() == 1) return best;
  int64_t best_ps = time_ps(best);
  for (const std::string& name : names) {
    const int64_t ps = time_ps(name);
    if (ps < best_ps) {
      best = name;
      best_ps = ps;
    }
  }
  return best;
}

// Inside one pod or on one chip; `scope` says of how many pods at once.
Names pod_names(workload::CallKind kind, const GroupShape& shape, const machine::Machine& machine);
Names pod_choices(workload::CallKind kind, const GroupShape& shape,
                  const machine::Machine& machine);
Phases pod_phases(workload::CallKind kind, const std::string& name, int64_t bytes,
                  const GroupShape& shape, const machine::Machine& machine, Scope scope);
// The fastest of the choices.
std::string pod_choice(workload::CallKind kind, int64_t bytes, const GroupShape& shape,
                       const machine::Machine& machine);

// neuron.cpp: the torus.
Names torus_names(const GroupShape& shape);
Names torus_choices(const GroupShape& shape);
Phases torus_scatter(const std::string& name, int64_t bytes, const GroupShape& shape,
                     const machine::Machine& machine);
// A whole buffer along each axis of the box in turn.
Phases torus_broadcast(int64_t bytes, const GroupShape& shape, const machine::Machine& machine);
// Whether the group is all of a torus whose axes close. As many cycles as it has axes then go
// through every chip and share no link (M. F. Foregger, Discrete Mathematics 24, 1978), and a
// broadcast sends a part of the buffer along each, both ways, in pieces: no link of the root is
// idle.
bool has_cycles(const GroupShape& shape, const machine::Machine& machine);
Phases cycle_broadcast(int64_t bytes, const GroupShape& shape, const machine::Machine& machine);
// Copies through the memory of the one chip that all members are on: pod.cpp.
Phases inside_chip(int64_t bytes, const GroupShape& shape, const machine::Machine& machine);
bool is_one_chip(const GroupShape& shape, const machine::Machine& machine);

// tpu.cpp: the torus of TPUs, as far as it differs.
Names tpu_names(const GroupShape& shape);
// A reduce-scatter over all axes of the group at once.
Phases tpu_axes(int64_t bytes, const GroupShape& shape, const machine::Machine& machine);

// all_to_all.cpp
Names exchange_names(const Site& site);
Phases exchange_phases(const std::string& name, const workload::Call& call, const Site& site);
// All that a member has goes to the one `distance` after it; to itself without a link.
Phases shift_phases(int64_t bytes, int64_t distance, const Site& site);
// One step, or as many, in which members send to others directly.
PhaseTemplate direct(Pattern pattern, int64_t bytes, int64_t steps, const Site& site);

// pods.cpp: members in the same places of several pods.
Names fabric_names(workload::CallKind kind, const Site& site);
Names fabric_choices(workload::CallKind kind, const Site& site);
Phases fabric_phases(workload::CallKind kind, const std::string& name, int64_t bytes,
                     const Site& site);

}  // namespace trnsim::lower::collectives
