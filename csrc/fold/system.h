// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// System: what simulate runs. Ranks with their role, communicators with their members, variables
// with their weights on links. The same type folded and not.
//
// A variable is one phase of one call template on one communicator (or one message between two
// ranks). Its progress is bytes on its critical link, the one with the largest weight/capacity;
// that link has weight 2^16 and the others round down, never below 1; capacities are scaled by
// 2^16 too. Weights are fixed here once, on the capacities at the start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lower/program.h"
#include "machine/topology.h"

namespace trnsim::fold {

inline constexpr int64_t kWeightOne = 1 << 16;

// 26 days. Nothing of a step is longer: not what one rank computes, nor when a call ends.
inline constexpr int64_t kLongestPs = int64_t(1) << 61;

struct LinkUse {
  int32_t link = 0;
  int64_t weight = kWeightOne;
  bool operator==(const LinkUse&) const = default;
};

struct Variable {
  int32_t communicator = 0;
  int32_t call = 0;  // template, index in the role's Program::calls
  int32_t phase = 0;
  int64_t latency_ps = 0;     // L
  int64_t bytes = 0;          // on the critical link; 0 = never enters the network
  std::vector<LinkUse> uses;  // ascending by link
  bool is_private = false;    // nobody else uses its links, and they never change
};

struct Communicator {
  int32_t slot = 0;              // group index in the members' Programs
  std::vector<int32_t> members;  // ranks, in group order; of a message {sender, receiver}
  std::string name;
};

// Tasks that start at time_ps or later run at this factor: a chip throttles, or recovers.
struct FactorChange {
  int64_t time_ps = 0;
  int32_t factor = 1 << 16;
  bool operator==(const FactorChange&) const = default;
};

struct Rank {
  int32_t role = 0;
  int32_t chip = 0;
  int32_t factor = 1 << 16;  // durations of TaskKind::compute times factor / 2^16
  int64_t start_ps = 0;
  int64_t count = 1;                          // how many ranks of the job it stands for
  std::vector<int32_t> communicator_of_slot;  // -1 where it is not a member
  // By call template, for send and recv; -1 for collectives. Empty when the role has no messages.
  std::vector<int32_t> communicator_of_message;
  std::vector<FactorChange> changes;  // ascending in time
};

// The factor of a task of the rank that starts at time_ps.
int32_t factor_at(const Rank& rank, int64_t time_ps);

// From time_ps on the link has this rate: it slows down, dies (0) or comes back.
struct RateChange {
  int64_t time_ps = 0;
  int64_t rate = 0;  // 1/1024 B/s
  bool operator==(const RateChange&) const = default;
};

struct LinkInfo {
  std::string name;
  int64_t rate = 0;  // 1/1024 B/s, at the start; the solver's capacity is rate * 2^16
  machine::Tier tier = {};
  std::vector<RateChange> changes = {};  // ascending in time
};

// Interference: while a call moves bytes over links (from the entry of a phase that has bytes to
// the end of its flow, not in its latency), the engines of every chip that has a member of its
// communicator run at these speeds, however many calls do. A task of an engine's queue that meets a
// change of speed keeps work -= floor(elapsed * speed / 2^16) and ends after ceil(work * 2^16 /
// speed). What changes at one time is what the speed before and the speed after differ in.
struct System {
  machine::EngineSpeeds speeds = machine::kFullSpeeds;
  std::vector<std::shared_ptr<const lower::Program>> roles;
  std::vector<Rank> ranks;
  std::vector<Communicator> communicators;
  std::vector<LinkInfo> links;
  std::vector<Variable> variables;
  // variables of (communicator, call template), one a phase, in order: [communicator][call]; the
  // template is the first member's (of a message: the sender's). Empty for a group of one.
  std::vector<std::vector<std::vector<int32_t>>> plan;
};

// The communicator on which `rank` makes the calls of template `call`.
int32_t communicator_of(const System& system, int32_t rank, int32_t call);

bool has_interference(const System& system);
// Of a queue of this kind while its chip is slowed; full for what is no engine.
int32_t slowed_speed(const System& system, lower::QueueKind kind);

// Chips that have ranks, numbered by their first rank.
struct Chips {
  std::vector<int32_t> of_rank;
  std::vector<std::vector<int32_t>> ranks;  // of each, ascending
};
Chips chips_of(const System& system);

// make_system(one_role(...)): see job.h.
System make_system(std::shared_ptr<const lower::Program> program, const machine::Machine& machine,
                   const machine::Topology& topology, const machine::Placement& placement,
                   int64_t used_ranks);

// Sets Variable::is_private: a call is private when no other communicator's variable uses a link of
// any of its phases (calls on one communicator follow one another) and none of these links changes
// its rate in mid-run.
void mark_private(System& system);

// What one chip or link is changed to in a folded System would hold for all that it stands for: the
// three below, and simulate/jitter.h, throw SimulateError for a rank that stands for several, and
// for a link or for all chips where any rank does.
void check_unfolded(const System& system);

// A copy in which one rank computes at another factor or starts later.
std::shared_ptr<System> with_rank(const System& system, int64_t rank, int32_t factor,
                                  int64_t start_ps);

// A copy in which one rank changes its factor at the given times.
std::shared_ptr<System> with_factor_changes(const System& system, int64_t rank,
                                            const std::vector<FactorChange>& changes);

// A copy in which one link changes its rate at the given times. Weights stay those of the rate at
// the start.
std::shared_ptr<System> with_link_changes(const System& system, int64_t link,
                                          const std::vector<RateChange>& changes);

// Throws SimulateError unless every index is in range, factors and rates are not negative, speeds
// are above 0 and at most full, every transfer of more than 0 bytes has a link, and no rank
// computes or waits for longer than kLongestPs.
void check_system(const System& system);

}  // namespace trnsim::fold
