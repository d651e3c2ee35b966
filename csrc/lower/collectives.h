// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Collectives: a call of the Workload becomes phases, by the algorithm that the machine's library
// would take for its size and group.
//
// Neuron, groups of whole servers: mesh, recursive halving-doubling ("rdh") or KangaRing ("kanga")
// over the X-Y plane, whichever is fastest alone; with more planes "hierarchical": reduce-scatter
// in the plane, all-reduce along Z, all-gather in the plane. With one rank a chip of such a group,
// rings along the two Hamiltonian cycles of each plane ("plane_ring"). Groups that form a box
// (rows, columns) take a ring on each axis ("axis_rings"); any other, and every group of a switch,
// a plain "ring". So far every group of several pods takes a "ring" too. all_reduce =
// reduce_scatter + all_gather, always.
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
  int64_t pod_crossings = 0;               // neighbours in group order, round, in different pods
  int64_t members_per_chip = 1;            // 0 when chips differ
  std::array<int64_t, 3> extent{1, 1, 1};  // of the box on the torus, when it is one
  bool is_box = false;
  bool whole_servers = false;    // every chip of full X-Y planes
  int64_t logical_per_chip = 1;  // what the library counts as ranks on a chip
};
GroupShape shape_of(const workload::RankPattern& ranks, const machine::Machine& machine,
                    const machine::Placement& placement);

// Throws LowerError when ranks lie outside the placement, or the forced algorithm does not suit the
// group. `forced` is empty to choose by size.
CallTemplate make_call(const workload::Call& call, const workload::Group& group,
                       const machine::Machine& machine, const machine::Placement& placement,
                       const std::string& forced);

// Time of the call when nothing else uses its links, by the closed form of its phases; of a group
// inside one pod.
int64_t alone_ps(const CallTemplate& call, const machine::Machine& machine);

}  // namespace trnsim::lower
