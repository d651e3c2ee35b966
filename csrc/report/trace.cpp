// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "report/trace.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/hash.h"
#include "fold/job.h"
#include "project/shares.h"
#include "report/tasks.h"
#include "report/trace_writer.h"
#include "workload/messages.h"

namespace trnsim::report {
namespace {

using lower::TaskKind;

TraceWriter::Notes slice_notes(const workload::Workload& workload, const lower::Program& program,
                               const lower::Task& task) {
  TraceWriter::Notes notes;
  if (task.kind == TaskKind::call) {
    const lower::CallTemplate& call = program.calls[size_t(task.call)];
    notes.emplace_back("group", project::group_name(program.groups[size_t(call.group)]));
    notes.emplace_back("bytes", std::to_string(call.bytes));
  }
  if (task.op >= 0) {
    const lower::Op& op = program.ops[size_t(task.op)];
    const std::string& module = workload.modules[size_t(op.module)];
    if (!module.empty()) notes.emplace_back("module", module);
    notes.emplace_back("phase", workload::phase_name(op.phase));
  }
  return notes;
}

// An arrow for each message: the same id on both sides, from what names it uniquely.
class Arrows {
 public:
  explicit Arrows(const fold::Job& job) : messages_(job) {}
  uint64_t id(int64_t rank, int32_t call, bool is_send) {
    const int64_t number = messages_.number_of(rank, call);
    const int64_t k = counts_[{rank, number, is_send}]++;
    return hash_bytes(std::to_string(number) + " " + std::to_string(k)) | 1;
  }

 private:
  fold::Messages messages_;
  std::map<std::tuple<int64_t, int64_t, bool>, int64_t> counts_;
};

void write_rank(const project::Run& run, int64_t rank, std::optional<Arrows>& arrows,
                TraceWriter& writer) {
  const simulate::Timeline& timeline = *run.timeline;
  const lower::Program& program = program_of(run, rank);
  const int32_t pid = int32_t(rank) + 1;
  const std::string name =
      "rank " + std::to_string(rank) + " on chip " + std::to_string(run.placement.chip_of(rank));
  const uint64_t process = writer.add_process(pid, name);
  std::vector<uint64_t> tracks;
  for (size_t q = 0; q < program.queues.size(); ++q) {
    const int32_t tid = pid * 1000 + int32_t(q) + 1;
    tracks.push_back(writer.add_thread(pid, tid, queue_name(program.queues[q])));
  }
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const lower::Task& task = program.tasks[t];
    const size_t i = size_t(first_task(run, rank)) + t;
    uint64_t out = 0, in = 0;
    if (task.kind == TaskKind::call) {
      const lower::CallTemplate& call = program.calls[size_t(task.call)];
      if (call.kind == workload::CallKind::send) {
        out = arrows->id(rank, task.call, true);
      } else if (call.kind == workload::CallKind::recv) {
        in = arrows->id(rank, task.call, false);
      }
    }
    if (timeline.ends_ps[i] == timeline.starts_ps[i]) continue;  // nothing to see
    const uint64_t track = tracks[size_t(task.queue)];
    writer.begin_slice(track, timeline.starts_ps[i], slice_name(program, task),
                       slice_notes(workload_of(run, rank), program, task), out, in);
    writer.end_slice(track, timeline.ends_ps[i]);
  }
  if (rank != workload_of(run, rank).rank) return;
  const uint64_t memory = writer.add_counter(process, "memory", TraceWriter::Unit::bytes);
  for (const CounterStep& step : memory_over_time(run, role_of(run, rank))) {
    writer.set_counter(memory, step.time_ps, step.value);
  }
}

void write_links(const project::Run& run, const machine::Topology& topology,
                 const std::vector<int64_t>& ranks, TraceWriter& writer) {
  std::set<int32_t> chips;
  for (const int64_t rank : ranks) chips.insert(int32_t(run.placement.chip_of(rank)));
  const auto load_of_class = link_load(*run.timeline);
  uint64_t process = 0;
  for (int32_t link = 0; link < topology.link_count(); ++link) {
    const int32_t link_class = run.cohorts.class_of_link[size_t(link)];
    if (link_class < 0) continue;
    const auto& load = load_of_class[size_t(link_class)];
    if (load.empty()) continue;
    const machine::Link of = topology.link(link);
    if (!chips.count(of.from_node) && !chips.count(of.to_node)) continue;
    if (process == 0) {
      process = writer.add_process(int32_t(run.cohorts.class_of_rank.size()) + 1, "links");
    }
    const uint64_t track = writer.add_counter(process, "link " + topology.link_name(link) + " load",
                                              TraceWriter::Unit::percent);
    for (const CounterStep& step : load) {
      writer.set_counter(track, step.time_ps, 100.0 * step.value);
    }
  }
}

}  // namespace

std::vector<CounterStep> memory_over_time(const project::Run& run, size_t role) {
  const workload::Workload& workload = *run.workloads[role];
  const lower::Program& program = *run.roles[role].program;
  // When the op of a record starts on the captured rank; records between ops follow the last one.
  std::vector<int64_t> op_start(program.ops.size(), -1);
  const int64_t first = first_task(run, workload.rank);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const int32_t op = program.tasks[t].op;
    if (op < 0 || program.tasks[t].kind == TaskKind::launch) continue;
    const int64_t start = run.timeline->starts_ps[size_t(first) + t];
    int64_t& known = op_start[size_t(op)];
    if (known < 0 || start < known) known = start;
  }
  std::map<int64_t, int64_t> record_start;
  for (size_t op = 0; op < program.ops.size(); ++op) {
    for (const int64_t record : program.ops[op].records) record_start[record] = op_start[op];
  }
  std::vector<CounterStep> steps;
  if (record_start.empty()) return steps;
  const int64_t begin = record_start.begin()->first, end = record_start.rbegin()->first;
  int64_t live = 0, now = 0;
  auto next = record_start.begin();
  for (const workload::AllocationEvent& event : workload.allocations) {
    if (event.record > end + 1) break;
    if (event.record > begin) {
      for (; next != record_start.end() && next->first <= event.record; ++next) {
        now = std::max(now, next->second);
      }
    }
    const int64_t bytes = workload.storages[size_t(event.storage)].bytes;
    live += event.is_free ? -bytes : bytes;
    if (!steps.empty() && steps.back().time_ps == now) {
      steps.back().value = double(live);
    } else {
      steps.push_back({now, double(live)});
    }
  }
  return steps;
}

std::vector<std::vector<CounterStep>> link_load(const simulate::Timeline& timeline) {
  const fold::System& system = *timeline.system;
  std::vector<std::map<int64_t, double>> changes(system.links.size());
  for (const simulate::CallSpan& span : timeline.calls) {
    const auto& phases = system.plan[size_t(span.communicator)][size_t(span.call)];
    for (size_t p = 0; p < phases.size() && p < span.entry_ps.size(); ++p) {
      const fold::Variable& variable = system.variables[size_t(phases[p])];
      const int64_t entry = span.entry_ps[p], end = span.phase_end_ps[p];
      if (variable.bytes == 0 || end <= entry) continue;
      const double rate = double(variable.bytes) * double(kRateUnitsPerBps) * double(kPsPerSecond) /
                          double(end - entry);
      for (const fold::LinkUse& use : variable.uses) {
        const double share = rate * double(use.weight) / double(fold::kWeightOne) /
                             double(system.links[size_t(use.link)].rate);
        changes[size_t(use.link)][entry] += share;
        changes[size_t(use.link)][end] -= share;
      }
    }
  }
  std::vector<std::vector<CounterStep>> loads(changes.size());
  for (size_t link = 0; link < changes.size(); ++link) {
    double load = 0;
    for (const auto& [time, change] : changes[link]) {
      load += change;
      if (load < 1e-9) load = 0;  // what rounding leaves of a sum of doubles
      loads[link].push_back({time, load});
    }
  }
  return loads;
}

TaskColumns task_columns(const project::Run& run, const std::vector<int64_t>& ranks) {
  const simulate::Timeline& timeline = *run.timeline;
  TaskColumns columns;
  std::map<std::string, int32_t> queues, kinds, names, modules;
  const auto code = [](std::map<std::string, int32_t>& known, std::vector<std::string>& list,
                       const std::string& text) {
    const auto [found, is_new] = known.try_emplace(text, int32_t(list.size()));
    if (is_new) list.push_back(text);
    return found->second;
  };
  code(modules, columns.modules, "");
  for (const int64_t rank : ranks) {
    const lower::Program& program = program_of(run, rank);
    for (size_t t = 0; t < program.tasks.size(); ++t) {
      const lower::Task& task = program.tasks[t];
      const size_t i = size_t(first_task(run, rank)) + t;
      columns.rank.push_back(int32_t(rank));
      columns.queue.push_back(
          code(queues, columns.queues, queue_name(program.queues[size_t(task.queue)])));
      columns.kind.push_back(code(kinds, columns.kinds, task_kind_name(task.kind)));
      columns.name.push_back(code(names, columns.names, slice_name(program, task)));
      const int32_t module = task.op >= 0 ? program.ops[size_t(task.op)].module : 0;
      columns.module.push_back(
          code(modules, columns.modules, workload_of(run, rank).modules[size_t(module)]));
      columns.start_ps.push_back(timeline.starts_ps[i]);
      columns.end_ps.push_back(timeline.ends_ps[i]);
    }
  }
  return columns;
}

int64_t estimate_trace_bytes(const project::Run& run, const std::vector<int64_t>& ranks) {
  // Measured on examples: a slice takes 60 to 80 bytes (two packets, notes interned), a step of a
  // counter 30.
  constexpr int64_t kSliceBytes = 70, kCounterBytes = 30;
  int64_t slices = 0;
  for (const int64_t rank : ranks) {
    check_rank(run, rank);
    slices += int64_t(program_of(run, rank).tasks.size());
  }
  int64_t allocations = 0;
  for (const auto& workload : run.workloads) {
    const bool is_shown = std::find(ranks.begin(), ranks.end(), workload->rank) != ranks.end();
    if (is_shown) allocations += int64_t(workload->allocations.size());
  }
  return slices * kSliceBytes + allocations * kCounterBytes;
}

int64_t write_trace(const project::Run& run, const std::vector<int64_t>& ranks,
                    const std::string& path) {
  estimate_trace_bytes(run, ranks);  // refuses ranks that are not there
  const auto topology = machine::make_topology(run.machine, run.placement.chips);
  std::optional<Arrows> arrows;
  const bool has_messages =
      std::any_of(run.roles.begin(), run.roles.end(), [](const fold::JobRole& role) {
        const auto& calls = role.program->calls;
        return std::any_of(calls.begin(), calls.end(),
                           [](const auto& call) { return workload::is_message(call.kind); });
      });
  if (has_messages) {
    const auto count = int64_t(run.cohorts.class_of_rank.size());
    arrows.emplace(fold::Job{run.machine, *topology, run.placement, count, run.roles});
  }
  TraceWriter writer(path);
  for (const int64_t rank : ranks) write_rank(run, rank, arrows, writer);
  write_links(run, *topology, ranks, writer);
  writer.finish();
  return writer.bytes_written();
}

}  // namespace trnsim::report
