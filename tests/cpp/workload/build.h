// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A Workload written down in a test: one call a record.
#pragma once

#include "workload/workload.h"

namespace trnsim::workload::test {

struct Builder {
  Workload workload;
  std::unordered_map<std::string, int32_t> index;

  Builder() { workload.groups.push_back({"", RankPattern{0, {}, {}}}); }

  int32_t storage(int64_t bytes, StorageKind kind = StorageKind::temporary) {
    const int32_t id = int32_t(workload.storages.size());
    workload.storages.push_back({bytes, int64_t(workload.records.size()), -1, kind});
    workload.allocations.push_back({int64_t(workload.records.size()), id, 0, false});
    return id;
  }
  void free(int32_t id) {
    workload.storages[size_t(id)].died = int64_t(workload.records.size());
    workload.allocations.push_back({int64_t(workload.records.size()), id, 0, true});
  }
  Record& op(const std::string& text, Phase phase, std::vector<TensorUse> uses = {}) {
    Record record;
    record.signature = intern_signature(workload, Signature::parse(text), index);
    record.phase = phase;
    record.uses_begin = int64_t(workload.uses.size());
    record.uses_count = int32_t(uses.size());
    workload.uses.insert(workload.uses.end(), uses.begin(), uses.end());
    workload.records.push_back(record);
    return workload.records.back();
  }
  Record& marker(MarkerKind kind, int64_t value) {
    Record record;
    record.kind = RecordKind::marker;
    record.payload = int32_t(kind);
    record.value = value;
    workload.records.push_back(record);
    return workload.records.back();
  }
};

}  // namespace trnsim::workload::test
