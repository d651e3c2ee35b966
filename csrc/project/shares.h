// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Shares: where the step goes, summed over the segments of a Sweep. Nothing here is a formula over
// durations: all of it is time that the Timeline shows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "project/projection.h"
#include "project/sweep.h"

namespace trnsim::project {

struct Shares {
  Breakdown breakdown;                                 // mean over ranks; sums to the makespan
  std::map<std::string, double> engine_busy;           // by engine of the Programs
  std::map<std::string, int64_t> exposed_by_group_ps;  // sums to exposed_communication_ps
};
Shares share_step(const simulate::Timeline& timeline, const Sweep& sweep);

// The lowest rank whose last task ends with the step.
int64_t critical_rank(const simulate::Timeline& timeline);

// Exclusive time on one rank. op_ps + call_ps + host_ps + idle_ps sums to the makespan.
struct Attribution {
  std::vector<int64_t> op_ps;    // of Program::ops
  std::vector<int64_t> call_ps;  // of Program::calls: waiting for it
  std::vector<int64_t> call_count;
  int64_t host_ps = 0;
  int64_t idle_ps = 0;  // waiting for messages that are not sent yet, or done with the step
};
Attribution attribute(const Sweep& sweep, int64_t rank);

std::vector<OpShare> rank_ops(const lower::Program& program, const workload::Workload& workload,
                              const Attribution& attribution, int64_t top);
std::vector<ModuleShare> rank_modules(const lower::Program& program,
                                      const workload::Workload& workload,
                                      const Attribution& attribution, int64_t top);
std::vector<Projection::Fallback> rank_fallbacks(const lower::Program& program,
                                                 const Attribution& attribution,
                                                 int64_t makespan_ps);

// What limits most of the step, as a word, and its share: the bound of the ops that own the compute
// time, links, host or bubble.
struct Bottleneck {
  std::string kind = "nothing";  // "tensor", ..., "memory", "host link", "links", "host", "bubble"
  double share = 0;
};
Bottleneck find_bottleneck(const lower::Program& program, const Attribution& attribution,
                           int64_t makespan_ps);

// "layers.3.attn" -> "layers.*.attn"
std::string star_numbers(const std::string& module);
std::string group_name(const workload::Group& group);  // "world" for the default group

}  // namespace trnsim::project
