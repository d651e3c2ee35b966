// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>
#include <map>

#include "project/held.h"
#include "project/rates.h"
#include "report/link_pictures.h"
#include "report/tasks.h"
#include "workload/caching_allocator.h"

namespace trnsim::report {
namespace {

// When the op of each record of the step starts on the captured rank, by record; records between
// ops are with the last one before.
std::map<int64_t, int64_t> starts_of_records(const project::Run& run, size_t role) {
  const lower::Program& program = *run.roles[role].program;
  const int64_t first = first_task(run, run.workloads[role]->rank);
  std::vector<int64_t> start(program.ops.size(), -1);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const lower::Task& task = program.tasks[t];
    if (task.op < 0 || task.kind == lower::TaskKind::launch) continue;
    int64_t& known = start[size_t(task.op)];
    const int64_t mine = run.timeline->starts_ps[size_t(first) + t];
    if (known < 0 || mine < known) known = mine;
  }
  std::map<int64_t, int64_t> starts;
  for (size_t op = 0; op < program.ops.size(); ++op) {
    for (const int64_t record : program.ops[op].records) starts[record] = start[op];
  }
  return starts;
}

// Bytes of live blocks by kind, as replay_allocations counts them.
class Live {
 public:
  using Kinds = std::array<int64_t, workload::kStorageKindCount>;
  explicit Live(const workload::Workload& workload)
      : workload_(workload), addresses_(workload.storages.size(), 0) {}

  void apply(const workload::AllocationEvent& event) {
    const workload::Storage& storage = workload_.storages[size_t(event.storage)];
    if (storage.bytes == 0) return;
    uint64_t& address = addresses_[size_t(event.storage)];
    int64_t& of_kind = by_kind_[size_t(storage.kind)];
    if (event.is_free) {
      of_kind -= allocator_.block_bytes(address);
      allocator_.release(address);
    } else {
      address = allocator_.allocate(storage.bytes, event.stream);
      of_kind += allocator_.block_bytes(address);
    }
  }
  int64_t bytes() const { return allocator_.stats().allocated_bytes; }
  const Kinds& by_kind() const { return by_kind_; }

 private:
  const workload::Workload& workload_;
  workload::CachingAllocator allocator_{-1, uint64_t(1) << 40};
  std::vector<uint64_t> addresses_;
  Kinds by_kind_{};
};

// Keeps, by bin, what there is when it is most.
class Highest {
 public:
  explicit Highest(const Bins& bins)
      : bins_(bins), most_(size_t(bins.count()), -1), by_kind_(size_t(bins.count())) {}

  // From one instant to another, both counted in.
  void hold(int64_t from_ps, int64_t to_ps, const Live& live) {
    for (int64_t bin = bins_.of(from_ps); bin <= bins_.of(to_ps); ++bin) {
      if (live.bytes() <= most_[size_t(bin)]) continue;
      most_[size_t(bin)] = live.bytes();
      by_kind_[size_t(bin)] = live.by_kind();
    }
    if (live.bytes() <= peak_bytes_) return;
    peak_bytes_ = live.bytes();
    peak_ps_ = from_ps;
    peak_by_kind_ = live.by_kind();
  }

  MemoryPicture finish() const {
    MemoryPicture picture;
    picture.peak_bytes = std::max<int64_t>(0, peak_bytes_);
    picture.peak_ps = peak_ps_;
    for (size_t kind = 0; kind < workload::kStorageKindCount; ++kind) {
      picture.kinds.emplace_back(project::memory_kind_name(kind));
      picture.peak_by_kind.push_back(peak_by_kind_[kind]);
      auto& of_bin = picture.by_kind.emplace_back();
      for (const Live::Kinds& at : by_kind_) of_bin.push_back(at[kind]);
    }
    return picture;
  }

 private:
  const Bins& bins_;
  std::vector<int64_t> most_;
  std::vector<Live::Kinds> by_kind_;
  int64_t peak_bytes_ = -1, peak_ps_ = 0;
  Live::Kinds peak_by_kind_{};
};

}  // namespace

MemoryPicture picture_memory(const project::Run& run, size_t role, int64_t bin_count) {
  const Bins bins = bins_of(run, bin_count);
  TRN_CHECK(role < run.workloads.size(), report, "no role " + std::to_string(role),
            "the run has " + std::to_string(run.workloads.size()));
  workload::Workload workload = *run.workloads[role];
  workload::classify_storages(workload);
  project::hold_for_copies(workload, *run.roles[role].program, *run.timeline,
                           first_task(run, workload.rank));
  const std::map<int64_t, int64_t> starts = starts_of_records(run, role);
  Live live(workload);
  Highest highest(bins);
  if (starts.empty()) return highest.finish();
  const int64_t begin = starts.begin()->first, end = starts.rbegin()->first;
  auto next = starts.begin();
  int64_t now = 0;
  for (const workload::AllocationEvent& event : workload.allocations) {
    if (event.record > end + 1) break;
    if (event.record >= begin) {
      const int64_t before = now;
      for (; next != starts.end() && next->first <= event.record; ++next) {
        now = std::max(now, next->second);
      }
      highest.hold(before, now, live);
    }
    live.apply(event);
    if (event.record >= begin) highest.hold(now, now, live);
  }
  highest.hold(now, run.timeline->makespan_ps, live);
  return highest.finish();
}

}  // namespace trnsim::report
