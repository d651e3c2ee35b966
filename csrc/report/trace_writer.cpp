// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "report/trace_writer.h"

namespace trnsim::report {
namespace {

// perfetto/trace/trace.proto, trace_packet.proto, track_event/*.proto, interned_data.proto
namespace field {
constexpr uint32_t kTracePacket = 1;
constexpr uint32_t kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11, kInternedData = 12,
                   kSequenceFlags = 13, kTrackDescriptor = 60;
constexpr uint32_t kUuid = 1, kTrackName = 2, kProcess = 3, kThread = 4, kParentUuid = 5,
                   kCounter = 8;
constexpr uint32_t kProcessPid = 1, kProcessName = 6;
constexpr uint32_t kThreadPid = 1, kThreadTid = 2, kThreadName = 5;
constexpr uint32_t kCounterUnit = 3, kCounterUnitName = 6;
constexpr uint32_t kDebugAnnotations = 4, kEventType = 9, kNameIid = 10, kTrackUuid = 11,
                   kDoubleCounterValue = 44, kFlowIds = 47, kTerminatingFlowIds = 48;
constexpr uint32_t kAnnotationNameIid = 1, kAnnotationStringIid = 17;
constexpr uint32_t kEventNames = 2, kAnnotationNames = 3, kAnnotationStrings = 29;
constexpr uint32_t kIid = 1, kText = 2;
}  // namespace field

enum EventType : uint64_t { slice_begin = 1, slice_end = 2, counter = 4 };
constexpr uint64_t kUnitSizeBytes = 3;
constexpr uint64_t kStateCleared = 1, kNeedsState = 2;
constexpr uint64_t kSequence = 1;

constexpr int64_t kPsPerNs = 1000;

}  // namespace

void TraceWriter::write_packet(const ProtoMessage& packet) {
  ProtoMessage trace;
  trace.add_message(field::kTracePacket, packet);
  file_.write(trace.bytes());
}

uint64_t TraceWriter::add_track(const ProtoMessage& descriptor) {
  ProtoMessage packet;
  packet.add_uint(field::kSequenceId, kSequence);
  packet.add_message(field::kTrackDescriptor, descriptor);
  write_packet(packet);
  return next_track_++;
}

uint64_t TraceWriter::add_process(int32_t pid, const std::string& name) {
  ProtoMessage process, track;
  process.add_int(field::kProcessPid, pid);
  process.add_bytes(field::kProcessName, name);
  track.add_uint(field::kUuid, next_track_);
  track.add_message(field::kProcess, process);
  return add_track(track);
}

uint64_t TraceWriter::add_thread(int32_t pid, int32_t tid, const std::string& name) {
  ProtoMessage thread, track;
  thread.add_int(field::kThreadPid, pid);
  thread.add_int(field::kThreadTid, tid);
  thread.add_bytes(field::kThreadName, name);
  track.add_uint(field::kUuid, next_track_);
  track.add_message(field::kThread, thread);
  return add_track(track);
}

uint64_t TraceWriter::add_counter(uint64_t parent, const std::string& name, Unit unit) {
  ProtoMessage counter, track;
  if (unit == Unit::bytes) counter.add_uint(field::kCounterUnit, kUnitSizeBytes);
  if (unit == Unit::percent) counter.add_bytes(field::kCounterUnitName, "%");
  track.add_uint(field::kUuid, next_track_);
  track.add_uint(field::kParentUuid, parent);
  track.add_bytes(field::kTrackName, name);
  track.add_message(field::kCounter, counter);
  return add_track(track);
}

TraceWriter::Interned TraceWriter::intern(std::unordered_map<std::string, uint64_t>& table,
                                          const std::string& text) {
  const auto [found, is_new] = table.try_emplace(text, table.size() + 1);
  return {found->second, is_new};
}

void TraceWriter::write_event(int64_t time_ps, const ProtoMessage& event,
                              const ProtoMessage& interned) {
  ProtoMessage packet;
  packet.add_uint(field::kTimestamp, uint64_t(time_ps / kPsPerNs));
  packet.add_uint(field::kSequenceId, kSequence);
  packet.add_uint(field::kSequenceFlags, is_first_ ? kStateCleared | kNeedsState : kNeedsState);
  is_first_ = false;
  if (!interned.bytes().empty()) packet.add_message(field::kInternedData, interned);
  packet.add_message(field::kTrackEvent, event);
  write_packet(packet);
}

void TraceWriter::begin_slice(uint64_t track, int64_t time_ps, const std::string& name,
                              const Notes& notes, uint64_t flow_out, uint64_t flow_in) {
  ProtoMessage event, interned;
  const auto reference = [&](auto& table, const std::string& text, uint32_t kind) {
    const Interned entry = intern(table, text);
    if (entry.is_new) {
      ProtoMessage item;
      item.add_uint(field::kIid, entry.id);
      item.add_bytes(field::kText, text);
      interned.add_message(kind, item);
    }
    return entry.id;
  };
  event.add_uint(field::kEventType, slice_begin);
  event.add_uint(field::kTrackUuid, track);
  event.add_uint(field::kNameIid, reference(names_, name, field::kEventNames));
  for (const auto& [key, value] : notes) {
    ProtoMessage note;
    note.add_uint(field::kAnnotationNameIid, reference(note_names_, key, field::kAnnotationNames));
    note.add_uint(field::kAnnotationStringIid,
                  reference(note_values_, value, field::kAnnotationStrings));
    event.add_message(field::kDebugAnnotations, note);
  }
  if (flow_out != 0) event.add_fixed64(field::kFlowIds, flow_out);
  if (flow_in != 0) event.add_fixed64(field::kTerminatingFlowIds, flow_in);
  write_event(time_ps, event, interned);
}

void TraceWriter::end_slice(uint64_t track, int64_t time_ps) {
  ProtoMessage event;
  event.add_uint(field::kEventType, slice_end);
  event.add_uint(field::kTrackUuid, track);
  write_event(time_ps, event, {});
}

void TraceWriter::set_counter(uint64_t track, int64_t time_ps, double value) {
  ProtoMessage event;
  event.add_uint(field::kEventType, counter);
  event.add_uint(field::kTrackUuid, track);
  event.add_double(field::kDoubleCounterValue, value);
  write_event(time_ps, event, {});
}

}  // namespace trnsim::report
