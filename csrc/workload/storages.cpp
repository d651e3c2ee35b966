// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What each storage is for, and the peak of memory that the allocation trace leads to.
#include <algorithm>

#include "base/error.h"
#include "workload/caching_allocator.h"
#include "workload/workload.h"

namespace trnsim::workload {
namespace {

// What the records do with one storage.
struct Life {
  bool used = false;
  Phase made_in = Phase::other;  // phase of the first write, or of the first read without one
  bool made_by_call = false;     // a message arrives in it, as at a stage of a pipeline
  bool written_in_backward = false, read_by_optimizer = false;
  bool sent = false;  // by a collective or a message
};

std::vector<Life> lives(const Workload& workload) {
  std::vector<Life> out(workload.storages.size());
  for (const Record& record : workload.records) {
    const int32_t inputs = input_count(workload, record);
    for (int32_t i = 0; i < record.uses_count; ++i) {
      const int32_t storage = workload.uses[size_t(record.uses_begin + i)].storage;
      if (storage < 0) continue;  // a number of the host, or a tensor without bytes
      Life& life = out[size_t(storage)];
      if (!life.used) {
        life.made_in = record.phase;
        life.made_by_call = record.kind == RecordKind::call;
      }
      life.used = true;
      if (record.kind == RecordKind::call) life.sent = true;
      if (i >= inputs && record.phase == Phase::backward) life.written_in_backward = true;
      if (i < inputs && record.phase == Phase::optimizer) life.read_by_optimizer = true;
    }
  }
  return out;
}

// Indices of the records for which `matches` holds; rising.
template <typename Matches>
std::vector<int64_t> places(const Workload& workload, const Matches& matches) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < workload.records.size(); ++i)
    if (matches(workload.records[i])) out.push_back(int64_t(i));
  return out;
}

// Ends of optimizers that no backward pass goes on behind, as where each parameter steps in it.
std::vector<int64_t> ends_behind_backward(const Workload& workload,
                                          const std::vector<int64_t>& optimizer_ends) {
  std::vector<int64_t> out;
  auto end = optimizer_ends.rbegin();
  bool goes_on = false;
  for (int64_t i = int64_t(workload.records.size()) - 1; i >= 0; --i) {
    const Record& record = workload.records[size_t(i)];
    if (end != optimizer_ends.rend() && *end == i) {
      if (!goes_on) out.push_back(i);
      ++end;
    } else if (record.kind == RecordKind::op && record.phase != Phase::optimizer) {
      goes_on = record.phase == Phase::backward;
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Whether the storage is alive at the first of `at` that is not before its birth.
bool lives_into(const Storage& storage, const std::vector<int64_t>& at) {
  const auto next = std::lower_bound(at.begin(), at.end(), storage.born);
  return next != at.end() && (storage.died < 0 || storage.died > *next);
}

// A buffer of messages that the optimizer reads is where gradients live (DDP's bucket views).
bool is_settled(StorageKind kind, const Life& life) {
  if (kind == StorageKind::communication) return !life.read_by_optimizer;
  return kind == StorageKind::parameter || kind == StorageKind::buffer ||
         kind == StorageKind::input || kind == StorageKind::gradient;
}

}  // namespace

void classify_storages(Workload& workload) {
  const std::vector<Life> all = lives(workload);
  const auto backward =
      places(workload, [](const Record& record) { return record.phase == Phase::backward; });
  const auto optimizer_ends = places(workload, [](const Record& record) {
    return record.kind == RecordKind::marker &&
           record.payload == int32_t(MarkerKind::optimizer_end);
  });
  const auto behind_backward = ends_behind_backward(workload, optimizer_ends);
  for (size_t i = 0; i < workload.storages.size(); ++i) {
    Storage& storage = workload.storages[i];
    const Life& life = all[i];
    if (is_settled(storage.kind, life)) continue;
    storage.kind = StorageKind::temporary;
    if (!life.used) continue;
    const bool forward = life.made_in == Phase::forward || life.made_in == Phase::recomputation;
    const bool kept = storage.died < 0;
    // A pipeline's schedule reduces FSDP's gradients itself, behind the last backward pass.
    const bool reduced = life.sent && life.made_in != Phase::optimizer;
    if ((life.read_by_optimizer && (life.written_in_backward || reduced)) ||
        (life.written_in_backward && kept && optimizer_ends.empty() && !forward))
      storage.kind = StorageKind::gradient;
    else if (life.made_in == Phase::optimizer && (kept || lives_into(storage, optimizer_ends)))
      storage.kind = StorageKind::optimizer_state;
    else if (life.made_in == Phase::backward && !life.sent && lives_into(storage, behind_backward))
      storage.kind = StorageKind::gradient;  // of a parameter that another rank steps
    else if (forward && kept && !life.made_by_call && optimizer_ends.size() > 1 &&
             storage.born <= optimizer_ends[optimizer_ends.size() - 2])
      storage.kind = StorageKind::buffer;  // a copy of the parameters: no backward frees it
    else if (forward && lives_into(storage, backward))
      storage.kind = StorageKind::activation;
    else if (life.sent)
      storage.kind = StorageKind::communication;
  }
}

void order_frees(Workload& workload) {
  auto run = workload.allocations.begin();
  while (run != workload.allocations.end()) {
    auto end = run;
    while (end != workload.allocations.end() && end->is_free && end->record == run->record) ++end;
    std::sort(run, end, [](const AllocationEvent& a, const AllocationEvent& b) {
      return a.storage < b.storage;
    });
    run = end == run ? run + 1 : end;
  }
}

MemoryPeak replay_allocations(const Workload& workload) {
  CachingAllocator allocator(-1, uint64_t(1) << 40);
  std::vector<uint64_t> addresses(workload.storages.size(), 0);
  std::array<int64_t, kStorageKindCount> by_kind{};
  MemoryPeak peak;
  for (const AllocationEvent& event : workload.allocations) {
    const Storage& storage = workload.storages[size_t(event.storage)];
    uint64_t& address = addresses[size_t(event.storage)];
    if (storage.bytes == 0) continue;  // PyTorch asks no allocator for nothing
    if (event.is_free) {
      by_kind[size_t(storage.kind)] -= allocator.block_bytes(address);
      allocator.release(address);
      continue;
    }
    address = allocator.allocate(storage.bytes, event.stream);
    by_kind[size_t(storage.kind)] += allocator.block_bytes(address);
    if (allocator.stats().allocated_bytes <= peak.allocated_bytes) continue;
    peak.allocated_bytes = allocator.stats().allocated_bytes;
    peak.at_record = event.record;
    peak.by_kind = by_kind;
  }
  peak.reserved_bytes = allocator.stats().reserved_peak;
  peak.requested_bytes = allocator.stats().requested_peak;
  return peak;
}

}  // namespace trnsim::workload
