// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/ring.h"

#include <algorithm>

#include "capture/recorder.h"

namespace trnsim::capture {
namespace {

constexpr const char* kMark = "below_diagonal";

bool is_whole_attention(const workload::Signature& signature) {
  return signature.op.find("scaled_dot_product") != signature.op.npos &&
         signature.int_or("is_causal", 0) == 0 && signature.scalar(kMark) == nullptr;
}

// The marked signature, which is the Workload's once it is needed.
int32_t marked(workload::Workload& workload, workload::Signature signature) {
  signature.scalars.push_back({kMark, true});
  auto& all = workload.signatures;
  const auto found = std::find(all.begin(), all.end(), signature);
  const auto index = int32_t(found - all.begin());
  if (found == all.end()) all.push_back(std::move(signature));
  return index;
}

}  // namespace

int64_t record_count() {
  int64_t count = 0;
  if (!is_recording()) return count;
  edit_recording(
      [&](workload::Workload& workload, int32_t) { count = int64_t(workload.records.size()); });
  return count;
}

void mark_below_diagonal(int64_t first_record) {
  if (!is_recording()) return;
  edit_recording([&](workload::Workload& workload, int32_t) {
    for (size_t i = size_t(first_record); i < workload.records.size(); ++i) {
      workload::Record& record = workload.records[i];
      if (record.kind != workload::RecordKind::op) continue;
      const workload::Signature& signature = workload.signatures[size_t(record.signature)];
      if (is_whole_attention(signature)) record.signature = marked(workload, signature);
    }
  });
}

}  // namespace trnsim::capture
