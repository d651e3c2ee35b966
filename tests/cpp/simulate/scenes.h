// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Systems for tests: a builder for small ones by hand, and random ones of every awkward kind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fold/system.h"
#include "simulate/timeline.h"

namespace trnsim::scenes {

// How many random cases: a tenth in builds without optimisation or with a sanitizer, which look for
// other things than rare cases and are ten times as slow.
constexpr uint64_t seeds(uint64_t count) {
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  return count;
#else
  return count / 10;
#endif
}

// Builds a Program task by task.
class ProgramBuilder {
 public:
  ProgramBuilder();
  int32_t queue(lower::QueueKind kind, int32_t index);
  int32_t group(const std::string& name);  // slot; members are the System's
  int32_t task(int32_t queue, int64_t duration_ps, const std::vector<lower::Dep>& deps = {});
  int32_t call_template(const lower::CallTemplate& call);
  int32_t call(int32_t queue, int32_t call_template, const std::vector<lower::Dep>& deps = {});
  std::shared_ptr<const lower::Program> build() const;

  lower::Program program;
};

lower::Dep after(int32_t task);  // end dependence without lag
lower::CallTemplate all_reduce(int32_t slot, int64_t bytes);

// Adds a rank of `role`; slots are filled by add_group.
void add_rank(fold::System& system, int32_t role);
// Adds a communicator over `members` for `slot` and one variable for every phase of every template
// of the members' roles on that slot: `uses` on links, bytes and latency as given.
int32_t add_group(fold::System& system, int32_t slot, const std::vector<int32_t>& members,
                  const std::string& name);
int32_t add_variable(fold::System& system, int32_t communicator, int32_t call, int64_t latency_ps,
                     int64_t bytes, const std::vector<fold::LinkUse>& uses);

// Valid by construction (never a deadlock): up to 12 ranks of up to 3 roles, groups of 1 to all,
// messages round a ring, shared and unshared links, zero bytes, durations and latencies, equal
// times, lags, end bounds, factors and starts.
std::shared_ptr<const fold::System> random_system(uint64_t seed);

// `ranks` ranks of one role, each in a group of 1 to 16 neighbours that share links, with jitter.
std::shared_ptr<const fold::System> many_ranks(uint64_t seed, int32_t ranks);

// Two roles that often make their calls in different orders on one stream, or leave some out.
std::shared_ptr<const fold::System> deadlocked(uint64_t seed);

// Same job, ranks renamed by `order` (new rank i = old rank order[i]), links and variables
// reversed.
std::shared_ptr<const fold::System> relabelled(const fold::System& system,
                                               const std::vector<int32_t>& order);

// The same job on links some of which slow down, die or come back in mid-run.
std::shared_ptr<const fold::System> with_random_changes(const fold::System& system, uint64_t seed);

// The same job, in which some chips change their factors in mid-run, up to three times.
std::shared_ptr<const fold::System> throttled(const fold::System& system, uint64_t seed);

// The job and a copy of it beside it, on links of its own.
std::shared_ptr<const fold::System> twice(const fold::System& system);

// The same with speeds of its own while a call moves bytes, and queues of all kinds of engines.
std::shared_ptr<const fold::System> with_interference(const fold::System& system, uint64_t seed);

// random_system, doubled `doublings` times, with factors and starts of its own for every rank and
// durations and lags times `stretch`: tiles of many lanes, alike for a while.
std::shared_ptr<const fold::System> grown(uint64_t seed, int doublings, int64_t stretch);

}  // namespace trnsim::scenes
