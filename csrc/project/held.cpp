// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/held.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace trnsim::project {
namespace {

using workload::AllocationEvent;
using workload::Record;
using workload::RecordKind;

constexpr const char* kKept = "aten::record_stream";

class Holder {
 public:
  Holder(workload::Workload& workload, const lower::Program& program,
         const simulate::Timeline& timeline, int64_t first_task)
      : workload_(workload), program_(program), timeline_(timeline), first_task_(first_task) {}

  void run() {
    if (!has_kept()) return;
    find_kept();
    if (kept_.empty()) return;
    find_times();
    find_copies();
    if (!until_.empty()) move_frees();
  }

 private:
  // Of few programs: most have no such signature among theirs.
  bool has_kept() const {
    return std::any_of(workload_.signatures.begin(), workload_.signatures.end(),
                       [](const workload::Signature& signature) { return signature.op == kKept; });
  }

  bool is_op(const Record& record, const char* op) const {
    return record.kind == RecordKind::op && workload_.signature_of(record).op == op;
  }
  int32_t storage_of(const Record& record) const {
    return workload_.uses[size_t(record.uses_begin)].storage;
  }

  // Storages that were given to other streams, with these.
  void find_kept() {
    for (const Record& record : workload_.records) {
      if (!is_op(record, kKept) || storage_of(record) < 0) continue;
      kept_.insert({storage_of(record), int32_t(workload_.signature_of(record).int_or("s", -1))});
    }
  }

  // Of every record of the step: when it is asked for, and when it ends.
  void find_times() {
    const bool is_eager = program_.hidden_host_ops > 0;
    std::vector<int64_t> asked(program_.ops.size(), -1), ends(program_.ops.size(), 0);
    for (size_t t = 0; t < program_.tasks.size(); ++t) {
      const lower::Task& task = program_.tasks[t];
      if (task.op < 0) continue;
      int64_t& at = asked[size_t(task.op)];
      int64_t mine = timeline_.starts_ps[size_t(first_task_) + t];
      for (int32_t d = task.deps_begin; is_eager && d < task.deps_begin + task.deps_count; ++d) {
        const int32_t launch = program_.deps[size_t(d)].task;
        if (program_.tasks[size_t(launch)].kind != lower::TaskKind::launch) continue;
        mine = timeline_.ends_ps[size_t(first_task_ + launch)];
      }
      at = at < 0 ? mine : std::min(at, mine);
      ends[size_t(task.op)] =
          std::max(ends[size_t(task.op)], timeline_.ends_ps[size_t(first_task_) + t]);
    }
    for (size_t op = 0; op < program_.ops.size(); ++op) {
      for (const int64_t record : program_.ops[op].records) {
        asked_ps_[record] = asked[op];
        end_ps_[record] = ends[op];
      }
    }
  }

  // Of every storage that is kept for the stream of a copy to the host: when the last one ends.
  void find_copies() {
    for (const auto& [index, end_ps] : end_ps_) {
      const Record& record = workload_.records[size_t(index)];
      if (!is_op(record, "trnsim::copy_d2h")) continue;
      const int32_t storage = storage_of(record);
      if (kept_.count({storage, record.stream}) == 0) continue;
      int64_t& until = until_[storage];
      until = std::max(until, end_ps);
    }
  }

  // When the allocation before a record is asked for; after the step, never.
  int64_t asked_ps(int64_t record) const {
    const auto found = asked_ps_.lower_bound(record);
    return found == asked_ps_.end() ? timeline_.makespan_ps : found->second;
  }

  void move_frees() {
    const int64_t first = asked_ps_.begin()->first, last = asked_ps_.rbegin()->first;
    std::multimap<int64_t, AllocationEvent> held;  // by the time from which it can be freed
    std::vector<AllocationEvent> events;
    const auto free_until = [&](int64_t now_ps, int64_t record) {
      while (!held.empty() && held.begin()->first <= now_ps) {
        events.push_back(held.begin()->second);
        events.back().record = record;
        held.erase(held.begin());
      }
    };
    int64_t now_ps = 0;
    for (const AllocationEvent& event : workload_.allocations) {
      const bool is_in_step = event.record >= first && event.record <= last;
      if (is_in_step) now_ps = std::max(now_ps, asked_ps(event.record));
      const auto until = until_.find(event.storage);
      if (event.is_free && is_in_step && until != until_.end() && until->second > now_ps) {
        held.emplace(until->second, event);
        continue;
      }
      if (!event.is_free || !is_in_step) {
        free_until(event.record > last ? timeline_.makespan_ps : now_ps, event.record);
      }
      events.push_back(event);
    }
    free_until(timeline_.makespan_ps, int64_t(workload_.records.size()));
    workload_.allocations = std::move(events);
  }

  workload::Workload& workload_;
  const lower::Program& program_;
  const simulate::Timeline& timeline_;
  const int64_t first_task_;
  std::set<std::pair<int32_t, int32_t>> kept_;    // storage, stream
  std::map<int64_t, int64_t> asked_ps_, end_ps_;  // by record
  std::map<int32_t, int64_t> until_;              // by storage
};

}  // namespace

void hold_for_copies(workload::Workload& workload, const lower::Program& program,
                     const simulate::Timeline& timeline, int64_t first_task) {
  Holder(workload, program, timeline, first_task).run();
}

}  // namespace trnsim::project
