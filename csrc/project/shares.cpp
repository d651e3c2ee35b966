// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/shares.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>

#include "lower/print.h"

namespace trnsim::project {
namespace {

using lower::QueueKind;

// "memory" for the DMA queues: what bounds such an op is the traffic to HBM, or the link to the
// host. Launches are no ops.
std::string bound_name(QueueKind kind) {
  if (kind == QueueKind::host) return "host link";
  return kind == QueueKind::dma ? "memory" : lower::queue_kind_name(kind);
}

template <typename Row>
void keep_largest(std::vector<Row>& rows, int64_t top) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.time_ps > b.time_ps; });
  if (top >= 0 && int64_t(rows.size()) > top) rows.resize(size_t(top));
}

}  // namespace

std::string star_numbers(const std::string& module) {
  std::string result;
  size_t begin = 0;
  while (begin <= module.size()) {
    const size_t end = std::min(module.find('.', begin), module.size());
    const std::string part = module.substr(begin, end - begin);
    const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    if (begin > 0) result += '.';
    result += is_number ? "*" : part;
    begin = end + 1;
  }
  return result;
}

std::string group_name(const workload::Group& group) {
  return group.name.empty() ? "world" : group.name;
}

Shares share_step(const simulate::Timeline& timeline, const Sweep& sweep) {
  const fold::System& system = *timeline.system;
  std::array<int128, 6> of_activity{};
  std::array<int128, lower::kQueueKindCount> busy{};
  std::map<std::string, int128> by_group;
  int128 members = 0;
  for (size_t r = 0; r < system.ranks.size(); ++r) {
    const int128 count = system.ranks[r].count;
    const lower::Program& program = sweep.program_of(int64_t(r));
    members += count;
    for (const Segment& segment : sweep.segments(int64_t(r))) {
      const int128 time = count * (segment.end_ps - segment.begin_ps);
      of_activity[size_t(segment.activity)] += time;
      if (segment.activity != Activity::communication) continue;
      const auto& call = program.calls[size_t(program.tasks[size_t(segment.task)].call)];
      by_group[group_name(program.groups[size_t(call.asked_group())])] += time;
    }
    for (size_t t = 0; t < program.tasks.size(); ++t) {
      const QueueKind kind = program.queues[size_t(program.tasks[t].queue)].kind;
      if (!is_engine(kind)) continue;
      busy[size_t(kind)] +=
          count * (sweep.end_of(int64_t(r), int32_t(t)) - sweep.start_of(int64_t(r), int32_t(t)));
    }
  }
  Shares shares;
  const auto mean = [&](Activity a) { return int64_t(of_activity[size_t(a)] / members); };
  Breakdown& b = shares.breakdown;
  b.host_ps = mean(Activity::host);
  b.bubble_ps = mean(Activity::bubble);
  b.exposed_communication_ps = mean(Activity::communication);
  b.stall_ps = mean(Activity::stall);
  b.compute_ps =
      timeline.makespan_ps - b.host_ps - b.bubble_ps - b.exposed_communication_ps - b.stall_ps;
  int64_t rest = b.exposed_communication_ps;
  for (const auto& [name, time] : by_group) {
    rest -= shares.exposed_by_group_ps[name] = int64_t(time / members);
  }
  if (!by_group.empty()) shares.exposed_by_group_ps.begin()->second += rest;
  const double rank_ps = double(members) * double(timeline.makespan_ps);
  for (const auto& role : system.roles) {
    for (const lower::Queue& queue : role->queues) {
      if (!is_engine(queue.kind)) continue;
      shares.engine_busy[lower::queue_kind_name(queue.kind)] =
          rank_ps > 0 ? double(busy[size_t(queue.kind)]) / rank_ps : 0.0;
    }
  }
  return shares;
}

int64_t critical_rank(const simulate::Timeline& timeline) {
  const size_t rank_count = timeline.system->ranks.size();
  for (size_t r = 0; r < rank_count; ++r) {
    for (int64_t i = timeline.first_task[r]; i < timeline.first_task[r + 1]; ++i) {
      if (timeline.ends_ps[size_t(i)] == timeline.makespan_ps) return int64_t(r);
    }
  }
  return 0;
}

Attribution attribute(const Sweep& sweep, int64_t rank) {
  const lower::Program& program = sweep.program_of(rank);
  Attribution result;
  result.op_ps.assign(program.ops.size(), 0);
  result.call_ps.assign(program.calls.size(), 0);
  result.call_count.assign(program.calls.size(), 0);
  for (const lower::Task& task : program.tasks) {
    if (task.kind == lower::TaskKind::call) ++result.call_count[size_t(task.call)];
  }
  for (const Segment& segment : sweep.segments(rank)) {
    const int64_t time = segment.end_ps - segment.begin_ps;
    if (segment.task < 0 || segment.activity == Activity::bubble) {
      result.idle_ps += time;
      continue;
    }
    const lower::Task& task = program.tasks[size_t(segment.task)];
    if (segment.activity == Activity::host) {
      result.host_ps += time;
    } else if (task.kind == lower::TaskKind::call) {
      result.call_ps[size_t(task.call)] += time;
    } else if (task.op >= 0) {
      result.op_ps[size_t(task.op)] += time;
    } else {
      result.idle_ps += time;
    }
  }
  return result;
}

std::vector<OpShare> rank_ops(const lower::Program& program, const workload::Workload& workload,
                              const Attribution& attribution, int64_t top) {
  struct Sum {
    OpShare row;
    int64_t floor_ps = 0, bound_ps = 0;
  };
  std::map<std::tuple<std::string, std::string, workload::Phase>, Sum> sums;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const lower::Op& op = program.ops[i];
    const std::string module = star_numbers(workload.modules[size_t(op.module)]);
    Sum& sum = sums[{op.name, module, op.phase}];
    OpShare& row = sum.row;
    if (row.count == 0 || op.bound_ps > sum.bound_ps) row.bound = bound_name(op.bound);
    row.name = op.name;
    row.module = module;
    row.phase = workload::phase_name(op.phase);
    row.rule_class = lower::rule_class_name(op.rule_class);
    row.count += 1;
    row.time_ps += attribution.op_ps[i];
    row.read_bytes += op.read_bytes;
    row.write_bytes += op.write_bytes;
    row.flops += double(op.model_flops);
    sum.floor_ps += op.floor_ps;
    sum.bound_ps += op.bound_ps;
  }
  std::vector<OpShare> rows;
  for (auto& [key, sum] : sums) {
    if (sum.bound_ps > 0) {
      sum.row.roofline_fraction = std::min(1.0, double(sum.floor_ps) / double(sum.bound_ps));
    }
    rows.push_back(sum.row);
  }
  std::map<std::string, OpShare> calls;
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const lower::CallTemplate& call = program.calls[i];
    OpShare& row = calls[workload::call_kind_name(call.asked_kind()) +
                         std::string(call.step_of ? " in steps on " : " on ") +
                         group_name(program.groups[size_t(call.asked_group())])];
    row.count += attribution.call_count[i];
    row.time_ps += attribution.call_ps[i];
  }
  for (auto& [name, row] : calls) {
    row.name = name;
    row.bound = "links";
    row.rule_class = "formula";
    rows.push_back(row);
  }
  if (attribution.host_ps > 0) {
    OpShare row;
    row.name = "launches by the host";
    row.bound = "host";
    row.rule_class = "formula";
    row.time_ps = attribution.host_ps;
    for (const lower::Task& task : program.tasks) {
      row.count += task.kind == lower::TaskKind::launch;
    }
    rows.push_back(row);
  }
  if (attribution.idle_ps > 0) {
    OpShare row;
    row.name = "nothing to do: others are not so far";
    row.bound = "bubble";
    row.rule_class = "formula";
    row.time_ps = attribution.idle_ps;
    rows.push_back(row);
  }
  keep_largest(rows, top);
  return rows;
}

std::vector<ModuleShare> rank_modules(const lower::Program& program,
                                      const workload::Workload& workload,
                                      const Attribution& attribution, int64_t top) {
  std::map<std::string, ModuleShare> sums;
  std::map<std::string, std::set<int32_t>> members;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const lower::Op& op = program.ops[i];
    const std::string module = star_numbers(workload.modules[size_t(op.module)]);
    ModuleShare& row = sums[module];
    row.module = module;
    row.time_ps += attribution.op_ps[i];
    row.read_bytes += op.read_bytes;
    row.write_bytes += op.write_bytes;
    row.flops += double(op.model_flops);
    members[module].insert(op.module);
  }
  std::vector<ModuleShare> rows;
  for (auto& [module, row] : sums) {
    row.count = int64_t(members[module].size());
    rows.push_back(row);
  }
  keep_largest(rows, top);
  return rows;
}

std::vector<Projection::Fallback> rank_fallbacks(const lower::Program& program,
                                                 const Attribution& attribution,
                                                 int64_t makespan_ps) {
  std::map<std::string, std::pair<int64_t, int64_t>> sums;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].rule_class != lower::RuleClass::fallback) continue;
    auto& [count, time] = sums[program.ops[i].name];
    count += 1;
    time += attribution.op_ps[i];
  }
  std::vector<Projection::Fallback> rows;
  for (const auto& [name, sum] : sums) {
    rows.push_back(
        {name, sum.first, makespan_ps > 0 ? double(sum.second) / double(makespan_ps) : 0.0});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.share > b.share; });
  return rows;
}

Bottleneck find_bottleneck(const lower::Program& program, const Attribution& attribution,
                           int64_t makespan_ps) {
  std::map<std::string, int64_t> sums;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    sums[bound_name(program.ops[i].bound)] += attribution.op_ps[i];
  }
  for (const int64_t time : attribution.call_ps) sums["links"] += time;
  sums["host"] += attribution.host_ps;
  sums["bubble"] += attribution.idle_ps;
  Bottleneck result;
  int64_t most = 0;
  for (const auto& [name, time] : sums) {
    if (time > most) {
      most = time;
      result = {name, double(time) / double(makespan_ps)};
    }
  }
  return result;
}

}  // namespace trnsim::project
