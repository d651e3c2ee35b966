// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Variants: the same step on machines with a figure or two changed, each simulated from lowering
// on. The interval and the advice are made of them; nothing is extrapolated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fold/job.h"
#include "project/projection.h"
#include "project/scenario.h"

namespace trnsim::project {

struct CaseRole {
  std::shared_ptr<const workload::Workload> workload;
  workload::Step step;
  workload::RankPattern ranks;
};

// One step of the Workloads of a job, ready to be simulated on any variant of the machine.
struct Case {
  std::vector<CaseRole> roles;  // the first is that of rank 0
  machine::Placement placement;
  int64_t used_ranks = 1;
  bool fold = true, step_mode = false;
  Scenario scenario = {};
  std::shared_ptr<const fold::Mould> mould = nullptr;  // used where it fits
};

struct Simulated {
  std::vector<fold::JobRole> roles;          // as of the Case
  fold::Cohorts cohorts;                     // what the timeline runs
  std::shared_ptr<const fold::Mould> mould;  // they were cast in; null unless folded
  std::shared_ptr<const simulate::Timeline> timeline;
};
Simulated simulate_case(const Case& of, const machine::Machine& machine,
                        Progress* progress = nullptr);

// Makespans, in order. The processes share the machines, and the host's threads those of one; the
// first error is thrown again. options.progress counts those of this process.
std::vector<int64_t> simulate_variants(const Case& of,
                                       const std::vector<machine::Machine>& machines,
                                       const ProjectOptions& options);

// Figures of one kind move together to their bounds, each by its own confidence: measured 5 %,
// published 10 %, inferred 25 %, guessed 50 %. Faster: rates times (1 + bound), times times
// (1 - bound); slower the other way round. Shares stay in (0, 1].
struct InputGroup {
  std::string name;
  machine::Machine faster, slower;
};
std::vector<InputGroup> input_groups(const machine::Machine& machine);
// One figure of such a kind, as far as it may be off.
struct InputFigure {
  std::string key, input;
  int64_t percent = 0;                     // that it may be off
  std::string faster_value, slower_value;  // in the figure's unit, as fractions
};
// In the order of the machine's figures; without those that are exact.
std::vector<InputFigure> input_figures(const machine::Machine& machine);
machine::Machine with_figures_moved(const machine::Machine& machine,
                                    const std::vector<const InputFigure*>& figures, bool faster);
// The kind that a figure's key belongs to; "" when it is not an input of time (sizes, counts,
// price).
std::string input_group_of(const std::string& key);
// [step - root of the sum of squares of what each group alone gains, step + the same of losses].
// A group that moves the step the other way round counts on the side where it moves it.
// `own_error` is ours on steps that were published, as a logarithm: one more error beside these.
void combine_interval(int64_t step_ps, const std::vector<int64_t>& faster_ps,
                      const std::vector<int64_t>& slower_ps, double own_error, int64_t& low_ps,
                      int64_t& high_ps);

// One thing doubled or free at a time, that this machine and placement have.
struct Change {
  std::string relieves;  // as Bottleneck::kind
  std::string text;
  machine::Machine machine;
};
std::vector<Change> possible_changes(const machine::Machine& machine, int64_t chips_used);

}  // namespace trnsim::project
