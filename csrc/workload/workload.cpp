// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "workload/workload.h"

#include <algorithm>

#include "base/error.h"
#include "workload/messages.h"

namespace trnsim::workload {
namespace {

void check_index(int64_t index, size_t count, int64_t lowest, const std::string& where,
                 const char* what) {
  TRN_CHECK(index >= lowest && index < int64_t(count), workload,
            where + " names " + what + " " + std::to_string(index) + " of " + std::to_string(count),
            "the Workload is damaged: capture it again");
}

template <typename Enum>
void check_code(Enum value, Enum last, const std::string& where, const char* what) {
  check_index(int64_t(value), size_t(last) + 1, 0, where, what);
}

void check_record(const Workload& workload, int64_t at) {
  const Record& record = workload.records[size_t(at)];
  const std::string where = "record " + std::to_string(at);
  check_code(record.kind, RecordKind::marker, where, "kind");
  check_code(record.phase, Phase::other, where, "phase");
  const bool has_signature = record.kind == RecordKind::op || record.kind == RecordKind::call;
  check_index(record.signature, workload.signatures.size(), record.kind == RecordKind::op ? 0 : -1,
              where, "signature");
  TRN_CHECK(has_signature || record.signature < 0, workload, where + " has a signature");
  check_index(record.module, workload.modules.size(), 0, where, "module");
  check_index(record.region, workload.regions.size(), -1, where, "region");
  TRN_CHECK(record.uses_count >= 0 && record.uses_begin >= 0, workload, where + " has no uses");
  check_index(record.uses_begin + record.uses_count, workload.uses.size() + 1, 0, where, "use");
  if (record.kind == RecordKind::op) {
    const size_t inputs = workload.signature_of(record).inputs.size();
    TRN_CHECK(size_t(record.uses_count) >= inputs, workload,
              where + " has " + std::to_string(record.uses_count) + " uses for " +
                  std::to_string(inputs) + " inputs");
  }
  if (record.kind == RecordKind::call || record.kind == RecordKind::wait)
    check_index(record.payload, workload.calls.size(), 0, where, "call");
  if (record.kind == RecordKind::marker)
    check_index(record.payload, size_t(MarkerKind::setup) + 1, 0, where, "marker");
}

// The one member with a part; -1 where none or several have one.
int64_t only_one(const std::vector<int64_t>& parts) {
  int64_t found = -1;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == 0) continue;
    if (found >= 0) return -1;
    found = int64_t(i);
  }
  return found;
}

}  // namespace

int64_t shift_of(const Call& call, int64_t own) {
  const int64_t to = only_one(call.splits), members = int64_t(call.splits.size());
  if (own < 0 || to < 0) return -1;
  const int64_t distance = (to - own + members) % members;
  if (call.received.empty()) return distance;
  const int64_t from = only_one(call.received);
  return from == (own - distance + members) % members ? distance : -1;
}

int32_t input_count(const Workload& workload, const Record& record) {
  if (record.signature < 0) return record.uses_count;
  return std::min(record.uses_count, int32_t(workload.signature_of(record).inputs.size()));
}

void check_workload(const Workload& workload) {
  TRN_CHECK(!workload.modules.empty() && workload.modules[0].empty(), workload,
            "the first module of a Workload is not its root");
  TRN_CHECK(workload.world_size > 0 && workload.rank >= 0 && workload.rank < workload.world_size,
            workload,
            "rank " + std::to_string(workload.rank) + " of " + std::to_string(workload.world_size));
  TRN_CHECK(!workload.played_by || workload.played_by->index_of(workload.rank) >= 0, workload,
            "rank " + std::to_string(workload.rank) + " is not of the ranks of its own role");
  for (const Group& group : workload.groups) {
    const std::string problem = group.ranks.problem_of(workload.world_size);
    TRN_CHECK(problem.empty(), workload, "group '" + group.name + "' names " + problem,
              "give each of its ranks once, from 0 to one below the world size");
  }
  for (size_t i = 0; i < workload.records.size(); ++i) check_record(workload, int64_t(i));
  for (size_t i = 0; i < workload.uses.size(); ++i)
    check_index(workload.uses[i].storage, workload.storages.size(), -1, "use " + std::to_string(i),
                "storage");
  for (size_t i = 0; i < workload.calls.size(); ++i) {
    const std::string where = "call " + std::to_string(i);
    check_index(workload.calls[i].group, workload.groups.size(), 0, where, "group");
    check_code(workload.calls[i].kind, CallKind::barrier, where, "kind");
    check_code(workload.calls[i].dtype, DType::other, where, "dtype");
    TRN_CHECK(workload.calls[i].batch < 0 || is_message(workload.calls[i].kind), workload,
              where + " is of a batch, and no message");
  }
  const size_t boundaries = workload.records.size() + 1;
  for (size_t i = 0; i < workload.storages.size(); ++i) {
    const std::string where = "storage " + std::to_string(i);
    TRN_CHECK(workload.storages[i].bytes >= 0, workload, where + " has a negative size");
    check_code(workload.storages[i].kind, StorageKind::temporary, where, "kind");
    check_index(workload.storages[i].born, boundaries, 0, where, "record");
    check_index(workload.storages[i].died, boundaries, -1, where, "record");
  }
  std::vector<bool> live(workload.storages.size(), false);
  for (size_t i = 0; i < workload.allocations.size(); ++i) {
    const AllocationEvent& event = workload.allocations[i];
    const std::string where = "allocation " + std::to_string(i);
    check_index(event.storage, live.size(), 0, where, "storage");
    check_index(event.record, boundaries, 0, where, "record");
    TRN_CHECK(live[size_t(event.storage)] == event.is_free, workload,
              where + (event.is_free ? " frees a storage that is not live"
                                     : " allocates a storage that is live"));
    live[size_t(event.storage)] = !event.is_free;
  }
}

}  // namespace trnsim::workload
