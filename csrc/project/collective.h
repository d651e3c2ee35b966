// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// One collective after the other on an idle machine, as nccom-test and nccl-tests measure them: a
// Program of nothing but calls of all ranks, through fold and simulate like any step.
#pragma once

#include <string>
#include <vector>

#include "project/projection.h"
#include "project/scenario.h"
#include "workload/workload.h"

namespace trnsim::project {

// One thing of the network doubled, or free.
struct Relief {
  std::string text;
  int64_t time_ps = 0;  // of the collective then
  std::string algorithm = {};
};

struct CollectiveRun {
  int64_t bytes = 0;  // as workload::Call
  std::string algorithm;
  bool in_steps = false;  // simulated as messages, as lower/ring_steps.h says
  int64_t time_ps = 0;
  // The same latencies, and every transfer as if it had its links for itself: of each phase's links
  // the one that takes longest for the bytes that one send has there. What is between the two is
  // lost to contention.
  int64_t uncontended_ps = 0;
  int64_t low_ps = 0, high_ps = 0;   // by the confidence of the inputs, as of a step
  std::string engine = {};           // that simulated it, as simulate/timeline.h says
  std::vector<Relief> reliefs = {};  // the same for all sizes; one that leaves the time is no limit
};

// "all_reduce", and the short names of nccom-test ("allr"); "sendrecv", in which every rank sends
// to the next and receives from the one before, is CallKind::send. Throws LowerError on another.
workload::CallKind parse_collective(const std::string& name);
const char* collective_name(workload::CallKind kind);

struct CollectiveRequest {
  workload::CallKind kind = workload::CallKind::all_reduce;
  std::vector<int64_t> sizes;        // bytes, one call over all ranks for each, in order
  std::string algorithm = {};        // "" chooses by size
  std::vector<int64_t> shares = {};  // of an uneven all-to-all: what each rank gets, in any unit
  std::vector<TimedLinkFault> faults = {};  // from the start
  bool step_mode = false;
  bool interval = true;  // without it low and high are the time, and there are no reliefs
};

// Rank 0 is the root. In step mode the time is that of the last member, and what is lost to
// contention is told against the fluid phases. Throws LowerError when the algorithm does not suit;
// ProjectError for a fault that has a time, for no call would say when it starts.
std::vector<CollectiveRun> run_collective(const CollectiveRequest& request,
                                          const machine::Machine& machine,
                                          const machine::Placement& placement,
                                          Progress* progress = nullptr);

// `bytes` in proportion to `shares`, rounded so that they add up: what is left goes to those that
// lost most by rounding, the first of them first.
std::vector<int64_t> shared_out(int64_t bytes, const std::vector<int64_t>& shares);

// Bus bandwidth over algorithm bandwidth, as nccl-tests define it, for `ranks` ranks.
Rational bus_factor(workload::CallKind kind, int64_t ranks);

}  // namespace trnsim::project
