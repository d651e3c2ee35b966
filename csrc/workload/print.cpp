// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "base/error.h"
#include "workload/canonical.h"

namespace trnsim::workload {
namespace {

std::string call_text(const Workload& workload, int32_t index) {
  const Call& call = workload.calls[size_t(index)];
  const Group& group = workload.groups[size_t(call.group)];
  std::string text = std::string(call_kind_name(call.kind)) + " of " + std::to_string(call.bytes) +
                     " bytes " + dtype_name(call.dtype) + " in group " +
                     std::to_string(call.group) + " (" + group.ranks.text() + ")";
  if (call.peer >= 0) text += " peer " + std::to_string(call.peer);
  if (call.tag != 0) text += " tag " + std::to_string(call.tag);
  if (call.async) text += " async";
  if (call.batch >= 0) text += " batch " + std::to_string(call.batch);
  const auto add_parts = [&](const char* name, const std::vector<int64_t>& parts) {
    if (!parts.empty()) text += std::string(" ") + name;
    for (const int64_t bytes : parts) text += " " + std::to_string(bytes);
  };
  add_parts("splits", call.splits);
  add_parts("received", call.received);
  return text;
}

std::string what(const Workload& workload, const Record& record) {
  std::string text;
  switch (record.kind) {
    case RecordKind::op:
      return workload.signature_of(record).text();
    case RecordKind::call:
      text = call_text(workload, record.payload);
      return record.signature < 0 ? text : text + " " + workload.signature_of(record).text();
    case RecordKind::wait:
      return "wait for " + call_text(workload, record.payload);
    case RecordKind::host_read:
      return "host_read";
    case RecordKind::event_record:
      return "event_record " + std::to_string(record.payload);
    case RecordKind::event_wait:
      return "event_wait " + std::to_string(record.payload);
    case RecordKind::marker:
      return std::string("marker ") + marker_kind_name(MarkerKind(record.payload));
  }
  return "?";
}

}  // namespace

std::string print_with(const Workload& workload, int64_t at, const Record& record,
                       const TensorUse* uses) {
  std::string text = "#" + std::to_string(at) + " " + phase_name(record.phase);
  const std::string& module = workload.modules[size_t(record.module)];
  if (!module.empty()) text += " " + module;
  text += " " + what(workload, record);
  const int32_t inputs = input_count(workload, record);
  for (int32_t i = 0; i < record.uses_count; ++i) {
    if (i == 0 && inputs > 0) text += " reads";
    if (i == inputs) text += " writes";
    text += " s" + std::to_string(uses[i].storage) + "v" + std::to_string(uses[i].version);
  }
  if (record.value != -1) text += " value " + std::to_string(record.value);
  if (record.stream != 0) text += " stream " + std::to_string(record.stream);
  if (record.sequence_nr >= 0) text += " seq " + std::to_string(record.sequence_nr);
  if (record.region >= 0) text += " region " + workload.regions[size_t(record.region)];
  if (record.no_grad) text += " no_grad";
  return text;
}

std::string print_record(const Workload& workload, int64_t record) {
  TRN_CHECK(record >= 0 && record < int64_t(workload.records.size()), workload,
            "no record " + std::to_string(record) + " in a Workload of " +
                std::to_string(workload.records.size()));
  const Record& shown = workload.records[size_t(record)];
  std::string text = print_with(workload, record, shown, workload.uses.data() + shown.uses_begin);
  if (shown.fallback_read) text += " (value unknown)";
  return text;
}

}  // namespace trnsim::workload
