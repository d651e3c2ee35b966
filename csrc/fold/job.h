// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Job: the Programs that ranks play, where the ranks sit, and what is not as it should be. Two ways
// lead to what simulate runs, and they give the same:
//   make_system    every rank, then fold_system
//   make_cohorts   the classes, without ever making all ranks
//
// A role's group is that of its captured rank. Every other rank of the role has the same group
// moved along; moved so, the group's ranks that play the role tile the role's ranks (the smallest
// rank that is not covered yet can only be the smallest member of its group, so the tiling is
// unique). Where that cannot be, as where one rank of a group
// plays a role of its own, the groups of the role are those of a tiling of all ranks. Groups of
// several roles that hold the same ranks in the same order under one name are
// one communicator. A message to the member k places on in the group is one to the member k places
// on from every rank of the role, cyclically.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fold/cohorts.h"
#include "fold/system.h"

namespace trnsim::fold {

struct Layout;
struct Made;
struct Stripes;

struct JobRole {
  std::shared_ptr<const lower::Program> program;
  workload::RankPattern ranks;
};

// A rank that is slower, starts later, or changes its speed in mid-run.
struct OddRank {
  int64_t rank = 0;
  int32_t factor = 1 << 16;
  int64_t start_ps = 0;
  std::vector<FactorChange> changes = {};
  bool operator==(const OddRank&) const = default;
};

struct Job {
  const machine::Machine& machine;
  const machine::Topology& topology;  // with the links that are dead or slow from the start
  const machine::Placement& placement;
  int64_t rank_count = 0;      // of those placed, the first
  std::vector<JobRole> roles;  // each rank plays one
  std::vector<OddRank> odd_ranks = {};
  std::vector<std::pair<int32_t, std::vector<RateChange>>> changing_links = {};
};

// Throws SimulateError when a rank plays no role or two, or when groups that are called on do not
// tile the ranks of their role.
System make_system(const Job& job);

// Classes from blocks. A block is as many pods in a row as it takes for every communicator to be
// inside one block, or to hold the same places of every block (data-parallel groups do); where the
// stages of a pipeline are many pods each, as many pods of every stage. Blocks with something odd
// in them stand for themselves; others are classed by what the communicators that leave a pod, each
// traced in full, put on the links of every block and on the links above. One block of each class
// is made, links above the blocks get the weights of all of them, and that System, an exact
// quotient, is folded further. Where there are no such blocks, all is one block. Cost: one route
// per send of what leaves a pod, and the ranks of a block for each class.
//
// None of that depends on durations, bytes, latencies and the rates of links without faults: a
// Mould serves every job that differs from its own in these alone, at the cost of folding the
// blocks that were made.
class Mould {
 public:
  explicit Mould(const Job& job);
  // Whether the job has the same ranks, groups and patterns of calls, on a network of one shape
  // with the same faults and places of pods, the same odd ranks, and the same links that change in
  // mid-run.
  bool fits(const Job& job) const;
  // Of a job that fits. class_of_rank is by rank of the job, class_of_link by link of the topology:
  // -1 where nobody uses it; class_of_communicator stays empty.
  Cohorts cast(const Job& job) const;

 private:
  // Of the job that it was made for.
  machine::Machine machine_;
  machine::Placement placement_;
  int64_t rank_count_;
  std::map<int32_t, Rational> faults_;
  std::vector<int64_t> pod_places_;
  std::vector<JobRole> roles_;
  std::vector<OddRank> odd_ranks_;
  std::vector<int32_t> changing_links_;

  std::shared_ptr<const Stripes> ranks_;  // of blocks
  std::vector<int32_t> class_of_block_;
  int64_t block_classes_ = 0;
  std::shared_ptr<const Made> made_;
};

Cohorts make_cohorts(const Job& job);  // Mould(job).cast(job)

// Which messages are the same on both sides.
class Messages {
 public:
  explicit Messages(const Job& job);
  // Of the rank's messages by a call template: one number for those of the same group, sender,
  // receiver and tag.
  int64_t number_of(int64_t rank, int32_t call) const;

 private:
  std::shared_ptr<const Layout> layout_;
};

// All the ranks that are used play one Program. used_ranks: 1 when the script formed no process
// group. Throws SimulateError when that many are not placed.
Job one_role(std::shared_ptr<const lower::Program> program, const machine::Machine& machine,
             const machine::Topology& topology, const machine::Placement& placement,
             int64_t used_ranks);

}  // namespace trnsim::fold
