// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/step_shapes.h"

#include <algorithm>
#include <map>

namespace trnsim::project {
namespace {

using workload::Record;
using workload::RecordKind;

std::vector<int64_t> shape_of(const workload::Workload& workload, const workload::Step& step) {
  std::vector<int64_t> shape;
  for (int64_t i = step.begin; i < step.end; ++i) {
    const Record& record = workload.records[size_t(i)];
    switch (record.kind) {
      case RecordKind::op:
        shape.insert(shape.end(), {int64_t(record.kind), record.signature, int64_t(record.phase)});
        break;
      case RecordKind::call: {
        const workload::Call& call = workload.calls[size_t(record.payload)];
        shape.insert(shape.end(),
                     {int64_t(record.kind), int64_t(call.kind), call.group, call.bytes});
        break;
      }
      case RecordKind::host_read:
        shape.push_back(int64_t(record.kind));
        break;
      default:
        break;
    }
  }
  return shape;
}

// Ops and calls of the step after the last of its optimizers.
int64_t work_at_end(const workload::Workload& workload, const workload::Step& step) {
  const std::vector<uint8_t> outside = workload::outside_step(workload, step);
  int64_t count = 0;
  for (int64_t i = step.end - 1; i >= step.begin; --i) {
    const Record& record = workload.records[size_t(i)];
    const auto kind = workload::MarkerKind(record.payload);
    if (record.kind == RecordKind::marker && (kind == workload::MarkerKind::optimizer_end ||
                                              kind == workload::MarkerKind::optimizer_skipped)) {
      return count;
    }
    const bool is_work = record.kind == RecordKind::op || record.kind == RecordKind::call;
    count += is_work && !outside[size_t(i - step.begin)];
  }
  return 0;
}

}  // namespace

std::vector<StepShape> step_shapes(const workload::Workload& workload,
                                   const workload::Step& measured) {
  std::vector<StepShape> shapes;
  std::vector<std::vector<int64_t>> keys;
  int64_t index = 0;
  for (const workload::Step& step : workload::find_steps(workload)) {
    if (!step.whole) continue;
    // The last one has no next batch in it.
    const bool is_cut = step.end == int64_t(workload.records.size());
    if (is_cut && step.begin != measured.begin) continue;
    std::vector<int64_t> key = shape_of(workload, step);
    const size_t at = size_t(std::find(keys.begin(), keys.end(), key) - keys.begin());
    if (at == keys.size()) {
      keys.push_back(std::move(key));
      shapes.push_back({step, index, 0, true, false});
    }
    ++shapes[at].count;
    shapes[at].is_first &= step.creates_state;
    shapes[at].has_measured |= step.begin == measured.begin;
    ++index;
  }
  return shapes;
}

int64_t work_missing_at_end(const workload::Workload& workload, const workload::Step& step) {
  if (!step.whole || step.end != int64_t(workload.records.size())) return 0;
  const auto steps = workload::find_steps(workload);
  const auto before = std::find_if(steps.begin(), steps.end(), [&](const workload::Step& other) {
    return other.whole && other.end == step.begin;
  });
  if (before == steps.end()) return 0;
  return std::max<int64_t>(work_at_end(workload, *before) - work_at_end(workload, step), 0);
}

int64_t most_optimizer_steps(const workload::Workload& workload, const workload::Step& step) {
  std::map<int64_t, int64_t> count;
  int64_t most = 0;
  for (int64_t i = step.begin; i < step.end; ++i) {
    const Record& record = workload.records[size_t(i)];
    const bool ends = record.kind == RecordKind::marker &&
                      record.payload == int32_t(workload::MarkerKind::optimizer_end);
    if (ends) most = std::max(most, ++count[record.value]);
  }
  return most;
}

}  // namespace trnsim::project
