// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "report/pictures.h"

#include <algorithm>
#include <map>

#include "project/shares.h"
#include "project/sweep.h"
#include "report/bins.h"
#include "report/link_pictures.h"
#include "workload/messages.h"

namespace trnsim::report {
namespace {

using project::Activity;

Doing doing_of_phase(workload::Phase phase) {
  switch (phase) {
    case workload::Phase::forward:
      return Doing::forward;
    case workload::Phase::recomputation:
      return Doing::recomputation;
    case workload::Phase::backward:
      return Doing::backward;
    case workload::Phase::optimizer:
      return Doing::optimizer;
    case workload::Phase::other:
      return Doing::other_work;
  }
  return Doing::other_work;
}

Doing doing_of(const project::Segment& segment, const lower::Program& program) {
  switch (segment.activity) {
    case Activity::communication:
      return Doing::communication;
    case Activity::bubble:
      return Doing::bubble;
    case Activity::host:
      return Doing::host;
    case Activity::stall:
      return Doing::stall;
    case Activity::compute:
    case Activity::latency:
      break;
  }
  if (segment.task < 0) return Doing::other_work;
  const int32_t op = program.tasks[size_t(segment.task)].op;
  return op < 0 ? Doing::other_work : doing_of_phase(program.ops[size_t(op)].phase);
}

// By kind of engine and bin: time of all ranks.
using EngineTimes = std::map<lower::QueueKind, std::vector<int128>>;

void add_engines(const project::Sweep& sweep, int64_t rank, int64_t count, const Bins& bins,
                 EngineTimes& times) {
  const lower::Program& program = sweep.program_of(rank);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const lower::QueueKind kind = program.queues[size_t(program.tasks[t].queue)].kind;
    if (!project::is_engine(kind)) continue;
    auto& of_bin = times[kind];
    of_bin.resize(size_t(bins.count()), 0);
    const int32_t task = int32_t(t);
    bins.spread(sweep.start_of(rank, task), sweep.end_of(rank, task),
                [&](int64_t bin, int64_t ps) { of_bin[size_t(bin)] += int128(count) * ps; });
  }
}

bool has_messages(const lower::Program& program) {
  return std::any_of(program.calls.begin(), program.calls.end(),
                     [](const auto& call) { return workload::is_message(call.asked_kind()); });
}

RoleRow make_role(const project::Run& run, size_t role, const lower::Program& program,
                  const std::vector<std::array<int64_t, kDoings>>& of_bin) {
  RoleRow row{run.workloads[role]->role,
              run.workloads[role]->rank,
              run.roles[role].ranks.size(),
              has_messages(program),
              {},
              {}};
  for (const auto& times : of_bin) {
    row.doing.push_back(uint8_t(std::max_element(times.begin(), times.end()) - times.begin()));
    for (size_t doing = 0; doing < times.size(); ++doing) row.total_ps[doing] += times[doing];
  }
  return row;
}

void add_ranks(const project::Run& run, const project::Sweep& sweep, const Bins& bins,
               StepPicture& picture) {
  const fold::System& system = *run.timeline->system;
  const auto bin_count = size_t(bins.count());
  std::vector<std::vector<int128>> sums(kDoings, std::vector<int128>(bin_count, 0));
  EngineTimes engines;
  std::map<int64_t, size_t> shown;  // class of a captured rank -> its role
  for (size_t role = 0; role < run.workloads.size(); ++role) {
    shown[run.cohorts.class_of_rank[size_t(run.workloads[role]->rank)]] = role;
  }
  int128 members = 0;
  for (size_t r = 0; r < system.ranks.size(); ++r) {
    const int64_t count = system.ranks[r].count;
    const lower::Program& program = sweep.program_of(int64_t(r));
    std::vector<std::array<int64_t, kDoings>> of_bin(bin_count);
    for (const project::Segment& segment : sweep.segments(int64_t(r))) {
      const size_t doing = size_t(doing_of(segment, program));
      bins.spread(segment.begin_ps, segment.end_ps,
                  [&](int64_t bin, int64_t ps) { of_bin[size_t(bin)][doing] += ps; });
    }
    for (size_t bin = 0; bin < bin_count; ++bin) {
      for (size_t d = 0; d < kDoings; ++d) sums[d][bin] += int128(count) * of_bin[bin][d];
    }
    add_engines(sweep, int64_t(r), count, bins, engines);
    members += count;
    if (const auto role = shown.find(int64_t(r)); role != shown.end()) {
      picture.roles.push_back(make_role(run, role->second, program, of_bin));
    }
  }
  const auto shares = [&](const std::vector<int128>& times) {
    std::vector<double> of_bin;
    for (size_t bin = 0; bin < bin_count; ++bin) {
      const double all = double(members) * double(bins.width(int64_t(bin)));
      of_bin.push_back(all > 0 ? double(times[bin]) / all : 0.0);
    }
    return of_bin;
  };
  for (const auto& times : sums) picture.doing.push_back(shares(times));
  for (const auto& [kind, times] : engines) {
    picture.engines.push_back({lower::queue_kind_name(kind), shares(times)});
  }
  std::sort(picture.roles.begin(), picture.roles.end(),
            [](const RoleRow& a, const RoleRow& b) { return a.rank < b.rank; });
}

std::vector<RuleRow> rules_of(const simulate::Timeline& timeline, const project::Sweep& sweep) {
  const int64_t rank = project::critical_rank(timeline);
  const lower::Program& program = sweep.program_of(rank);
  const project::Attribution attribution = project::attribute(sweep, rank);
  std::map<std::pair<std::string, lower::RuleClass>, RuleRow> rows;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const lower::Op& op = program.ops[i];
    RuleRow& row = rows[{op.rule, op.rule_class}];
    row.rule = op.rule;
    row.rule_class = op.rule_class;
    row.op_count += 1;
    row.time_ps += attribution.op_ps[i];
  }
  std::vector<RuleRow> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const RuleRow& a, const RuleRow& b) { return a.time_ps > b.time_ps; });
  return sorted;
}

}  // namespace

const char* doing_name(Doing doing) {
  static constexpr const char* kNames[kDoings] = {"forward",   "recomputation", "backward",
                                                  "optimizer", "other work",    "communication",
                                                  "bubble",    "host",          "stall"};
  return kNames[size_t(doing)];
}

Bins bins_of(const project::Run& run, int64_t count) {
  TRN_CHECK(count >= 1, report, "a picture of " + std::to_string(count) + " bins",
            "ask for at least one");
  TRN_CHECK(run.timeline->makespan_ps > 0, report, "the step takes no time: nothing to draw",
            "measure a step that has work in it");
  return {run.timeline->makespan_ps, count};
}

StepPicture picture_step(const project::Run& run, int64_t bin_count) {
  const Bins bins = bins_of(run, bin_count);
  const project::Sweep sweep(*run.timeline);
  StepPicture picture;
  add_ranks(run, sweep, bins, picture);
  add_links(run, bins, picture);
  picture.rules = rules_of(*run.timeline, sweep);
  return picture;
}

}  // namespace trnsim::report
