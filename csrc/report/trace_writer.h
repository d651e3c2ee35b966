// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// TraceWriter: streams a Perfetto trace (.pftrace) to a file, one packet at a time; memory stays
// constant but for the table of interned names. Field numbers are those of Perfetto's
// trace_packet.proto and track_event.proto. Times become whole ns, rounded down, as Perfetto holds
// them; ends follow begins on a track in the order of the calls, so slices nest as they were
// written.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/part_file.h"
#include "report/proto.h"

namespace trnsim::report {

class TraceWriter {
 public:
  explicit TraceWriter(const std::string& path) : file_(path) {}  // throws as PartFile does

  using Notes = std::vector<std::pair<std::string, std::string>>;  // shown beside a slice
  // Each returns the track's id.
  uint64_t add_process(int32_t pid, const std::string& name);
  uint64_t add_thread(int32_t pid, int32_t tid, const std::string& name);
  enum class Unit : uint8_t { none, bytes, percent };
  uint64_t add_counter(uint64_t parent, const std::string& name, Unit unit);

  // flow != 0 draws an arrow from the slice that starts it to the one that ends it.
  void begin_slice(uint64_t track, int64_t time_ps, const std::string& name, const Notes& notes,
                   uint64_t flow_out, uint64_t flow_in);
  void end_slice(uint64_t track, int64_t time_ps);
  void set_counter(uint64_t track, int64_t time_ps, double value);

  int64_t bytes_written() const { return file_.bytes_written(); }
  void finish() { file_.finish(); }

 private:
  struct Interned {
    uint64_t id = 0;
    bool is_new = false;
  };
  Interned intern(std::unordered_map<std::string, uint64_t>& table, const std::string& text);
  void write_packet(const ProtoMessage& packet);
  void write_event(int64_t time_ps, const ProtoMessage& event, const ProtoMessage& interned);
  uint64_t add_track(const ProtoMessage& descriptor);

  PartFile file_;
  uint64_t next_track_ = 1;
  bool is_first_ = true;
  std::unordered_map<std::string, uint64_t> names_, note_names_, note_values_;
};

}  // namespace trnsim::report
