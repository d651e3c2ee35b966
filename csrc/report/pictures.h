// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Pictures: a step as a report draws it, folded to a number of equal bins of time however long and
// wide the run is. All of it is time, bytes and load that the Timeline shows; nothing is fitted.
// Means over ranks and links count every one of the job, folded or not.
//
// Cost: one Sweep of the Timeline, O(tasks + bins) a simulated rank, O(uses + bins) a transfer, and
// O(links of the job).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lower/program.h"
#include "project/projection.h"

namespace trnsim::report {

// What a rank does at an instant: the phase of the op that owns it, or what it waits for, as Sweep
// says it.
enum class Doing : uint8_t {
  forward,
  recomputation,
  backward,
  optimizer,
  other_work,
  communication,
  bubble,
  host,
  stall
};
inline constexpr int kDoings = 9;
const char* doing_name(Doing doing);

// Of a role, the rank that was captured.
struct RoleRow {
  std::string name;
  int64_t rank = 0, rank_count = 0;
  bool has_messages = false;                // sends or receives in the step: a stage of a pipeline
  std::vector<uint8_t> doing;               // by bin: the Doing of most of it
  std::array<int64_t, kDoings> total_ps{};  // sums to the step
};

struct EngineRow {
  std::string engine;
  std::vector<double> busy;  // by bin: share of it, mean over ranks
};

// All links of a tier.
struct TierRow {
  std::string tier;  // machine::tier_name
  int64_t link_count = 0, used_count = 0;
  double rate_Bps = 0;              // of one link, healthy
  double bytes = 0;                 // over all of them in the step
  double mean = 0;                  // load of a link over the step, 0 to 1, mean over all
  std::vector<double> percentiles;  // of that load over the links: 0, 5, ... 100 %
  std::vector<double> mean_over_time, most_over_time;  // by bin
};

// The pod with the busiest link: where its load is.
struct PodLinks {
  int64_t pod = 0, first_chip = 0, chip_count = 0;
  std::vector<std::string> directions;     // of links that leave a chip: "x+", "nic up"
  std::vector<std::vector<double>> loads;  // by direction and chip of the pod; -1: no such link
};
inline constexpr int64_t kLargestPod = 64;  // a larger one has no picture of its own

struct RuleRow {
  std::string rule;
  lower::RuleClass rule_class = lower::RuleClass::formula;
  int64_t op_count = 0, time_ps = 0;  // exclusive, on the critical rank
};

struct StepPicture {
  std::vector<EngineRow> engines;
  std::vector<std::vector<double>> doing;  // by Doing and bin: share of it, mean over ranks
  std::vector<RoleRow> roles;              // by their captured rank
  std::vector<TierRow> tiers;              // that the job has
  std::optional<PodLinks> pod;             // where a link carries something
  std::vector<RuleRow> rules;              // by time
};
// Throws ReportError for less than one bin, or a step of no time.
StepPicture picture_step(const project::Run& run, int64_t bins);

// Memory of the captured rank of a role, by the caching-allocator model that gives the peak.
struct MemoryPicture {
  std::vector<std::string> kinds;             // as Projection::memory_by_kind
  std::vector<std::vector<int64_t>> by_kind;  // by kind and bin: when the sum is largest in it
  int64_t peak_bytes = 0, peak_ps = 0;        // of the step
  std::vector<int64_t> peak_by_kind;          // at that instant; sums to peak_bytes
};
MemoryPicture picture_memory(const project::Run& run, size_t role, int64_t bins);

}  // namespace trnsim::report
