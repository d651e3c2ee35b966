// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Collectives: a call of the Workload becomes phases, by the algorithm that the machine's library
// would take for its size and group. lower/collectives/ has the families; lower/README.md has the
// formulas and their sources.
//
// In a pod that is a torus (Neuron): of whole servers, mesh, recursive halving-doubling ("rdh") or
// KangaRing ("kanga") over the X-Y plane, whichever is fastest alone; with more planes
// "hierarchical": reduce-scatter in the plane, all-reduce along Z, all-gather in the plane. With
// one rank a chip of such a group, rings along the two Hamiltonian cycles of each plane
// ("plane_ring"). Groups that form a box (rows, columns) take a ring on each axis ("axis_rings");
// any other a plain "ring". On one chip, "direct".
// A torus of TPUs takes rings along all axes at once where a group is all of them ("axes"), or one
// after the other ("axis_rings").
// On a switch "ring", or "nvls" where the switch multicasts and the buffer is large; on a hypercube
// "ring" or "rdh". "rdh" and "tree" may be forced on both.
//
// Of several pods: reduce-scatter in the pod, the members in the same places of all pods among
// themselves, all-gather in the pod; across pods a ring, halving and doubling, or two trees
// ("hierarchical_ring", "_rdh", "_tree"). NCCL's go through the pods and between them at once
// ("rail_ring", "rail_tree"). Pods that hold other places than the first are joined by
// one flat "ring".
//
// all_reduce = reduce_scatter + all_gather, but for trees. A broadcast or a reduce sends the
// buffer in pieces along a ring or each axis, or along cycles over all links of a whole torus
// ("cycles"), or in parts that are then gathered, which costs what an all-reduce does.
//
// An all-to-all goes "direct", with what its uneven parts say where it has any, or, forced, axis
// by axis of a box ("dimension_ordered"). Where all goes to one member, it is a "shift": each
// member sends to the one as far from it in the group, as rings of attention do. All else goes
// direct.
//
// Bytes follow chips, not ranks: ranks of one chip share what arrives there.
#pragma once

#include "lower/program.h"

namespace trnsim::lower {

// Where the members of a group sit.
struct GroupShape {
  int64_t members = 0;
  int64_t chips = 0;                       // distinct ones
  int64_t pods = 1;                        // that they are in; beyond one, no box is looked for
  int64_t members_in_pod = 0;              // of each pod, in the same places; 0 when pods differ
  int64_t pod_crossings = 0;               // neighbours in group order, round, in different pods
  int64_t members_per_chip = 1;            // 0 when chips differ
  std::array<int64_t, 3> extent{1, 1, 1};  // of the box on the torus, when it is one
  bool is_box = false;
  std::array<bool, 3> is_whole_axis{};   // the box has all that the job has of the axis,
  std::array<bool, 3> is_closed_axis{};  // and it closes to a ring
  bool whole_servers = false;            // every chip of full X-Y planes
  int64_t logical_per_chip = 1;          // what the library counts as ranks on a chip
};
// Of all members, and of those in the pod of the first. Throws LowerError when ranks lie outside
// the placement. Cost: that of sorting the members.
struct GroupShapes {
  GroupShape whole, in_pod;
};
GroupShapes shapes_of(const workload::RankPattern& ranks, const machine::Machine& machine,
                      const machine::Placement& placement);

// Whether there is an algorithm to choose: not for messages, gather and scatter.
bool has_algorithms(workload::CallKind kind);

// A call on a group of these shapes, as member `own` of it records it. Throws LowerError when the
// forced algorithm does not suit it. `forced` is empty to choose by size.
CallTemplate make_call(const workload::Call& call, int64_t own, const GroupShapes& shapes,
                       const machine::Machine& machine, const std::string& forced);

// Time of the call when nothing else uses its links, by the closed form of its phases: the links of
// a pod are even, each member has its NIC (or its share of the chip's), and the fabric above is
// never the limit. `shape` is needed of a group of several members a chip, or of several pods.
int64_t alone_ps(const CallTemplate& call, const machine::Machine& machine,
                 const GroupShape& shape = {});

}  // namespace trnsim::lower
