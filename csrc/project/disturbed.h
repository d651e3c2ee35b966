// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Disturbed steps: one step under the draws of many seeds, and how its time is distributed.
//
// A draw without jitter is folded, or, on at most a tile's lanes of ranks, left whole; several are
// lanes of one run. With jitter nothing folds: up to exact_tasks tasks a seed every rank is
// simulated. Above, the step is bounded from both sides: the kBoundChips slowest chips (and those
// that throttle) have their own factors, and all others that of the fastest of them (low) or of the
// slowest (high). Both hold where a slower chip never makes a step faster, which is so but for
// flows that compete for links. They are the wider, the deeper the pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "project/disturbance.h"
#include "project/projection.h"

namespace trnsim::project {

inline constexpr int64_t kBoundChips = 8;
// The job on fewer pods, as a run of its own: what an elastic job goes on as.
struct SmallerJob {
  Workloads workloads;
  machine::Placement placement;
  int64_t step = -1;
  double work = 1;  // of its step, over that of the job's: tokens or samples; above 0
};

struct DisturbOptions {
  machine::Placement placement;
  int64_t step = -1;
  bool fold = true, step_mode = false;
  std::vector<std::string> disturbances;
  uint64_t first_seed = 0;
  int64_t seeds = 1;
  int64_t spare_pods = 0;  // beside the job's, in the fabric's next places
  std::vector<SmallerJob> smaller;
  int64_t exact_tasks = 1 << 25;  // of one step, with jitter
  // Of all seeds of one disturbance that are simulated rank by rank; more are refused. Hours.
  int64_t most_tasks = int64_t(1) << 37;
  bool one_by_one = false;  // every rank of every draw, on the reference engine: the slow way
  std::shared_ptr<Progress> progress;
};

struct Outcome {
  uint64_t seed = 0;
  int64_t low_ps = 0, high_ps = 0;  // of the step; equal unless it is only bounded
  std::string stops;                // why the job cannot go on; "" where it does
  int64_t job = 0;                  // 0: the job itself; i: smaller job i - 1
  Draw drawn;
};

// At a percentile by nearest rank: of n seeds, the ceil(p n / 100)-th by high_ps over its job's
// work, so by the time of a token, those that stop last.
struct AtPercentile {
  double percentile = 0;
  int64_t outcome = 0;                 // index
  std::optional<Breakdown> breakdown;  // of its step; none where it stops or is too large to keep
};

struct Disturbed {
  std::string text;
  std::vector<Outcome> outcomes;  // by seed
  std::vector<AtPercentile> at;   // 5, 50, 95, 99 and 100
  int64_t stopped = 0;            // seeds
  int64_t affected = 0;   // seeds that stop, lose pods, or take more than a thousandth longer
  int64_t simulated = 0;  // draws that differ
};

struct Disturbances {
  int64_t step_ps = 0;  // undisturbed
  Breakdown breakdown;
  std::vector<int64_t> smaller_ps;  // of each smaller job, undisturbed
  std::vector<Disturbed> rows;
};

// Throws what project_step does, ProjectError for disturbances that the job cannot have and for
// jitter that would take too long, and MachineError for more spare pods than the fabric has.
Disturbances disturb_step(const Workloads& workloads, const machine::Machine& machine,
                          const DisturbOptions& options);

}  // namespace trnsim::project
