// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "workload/messages.h"

#include <set>

namespace trnsim::workload {

bool is_message(CallKind kind) { return kind == CallKind::send || kind == CallKind::recv; }

bool is_message(const Workload& workload, const Record& record) {
  return record.kind == RecordKind::call && is_message(workload.calls[size_t(record.payload)].kind);
}

std::vector<std::pair<int32_t, int64_t>> peers_in_step(const Workload& workload, const Step& step) {
  std::set<std::pair<int32_t, int64_t>> peers;
  for (int64_t i = step.begin; i < step.end; ++i) {
    const Record& record = workload.records[size_t(i)];
    if (!is_message(workload, record)) continue;
    const Call& call = workload.calls[size_t(record.payload)];
    peers.emplace(call.group, call.peer);
  }
  return {peers.begin(), peers.end()};
}

}  // namespace trnsim::workload
