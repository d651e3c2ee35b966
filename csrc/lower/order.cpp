// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "lower/order.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace trnsim::lower {
namespace {

using workload::MarkerKind;
using workload::Record;
using workload::RecordKind;

constexpr int32_t kNoStream = -1;

class Orderer {
 public:
  explicit Orderer(const workload::Workload& workload) : workload_(workload) {}

  std::vector<int64_t> run(const std::vector<int64_t>& records) {
    find_main_stream(records);
    for (const int64_t index : records) add(index);
    flush_all();
    return std::move(order_);
  }

 private:
  const Record& record(int64_t index) const { return workload_.records[size_t(index)]; }

  void find_main_stream(const std::vector<int64_t>& records) {
    std::map<int32_t, int64_t> ops;
    for (const int64_t index : records) ops[record(index).stream] += is_op(record(index));
    for (const auto& [stream, count] : ops) {
      if (count > ops[main_stream_]) main_stream_ = stream;
    }
  }
  static bool is_op(const Record& record) { return record.kind == RecordKind::op; }

  void add(int64_t index) {
    const Record& at = record(index);
    if (needs_everything(at)) flush_all();
    if (at.kind == RecordKind::event_wait) {
      const auto behind = stream_of_event_.find(at.payload);
      if (behind != stream_of_event_.end() && behind->second != at.stream) flush(behind->second);
    }
    if (at.stream != main_stream_ && can_be_put_off(at)) {
      const auto waiting = put_off_.find(at.stream);
      const bool behind_a_call = waiting != put_off_.end() || at.kind == RecordKind::wait;
      if (behind_a_call && !touches_put_off(at, at.stream)) return put_off(index, at);
    }
    if (touches_put_off(at, kNoStream)) flush_all();
    order_.push_back(index);
  }

  static bool can_be_put_off(const Record& at) {
    return at.kind == RecordKind::op || at.kind == RecordKind::wait ||
           at.kind == RecordKind::event_record || at.kind == RecordKind::event_wait;
  }
  // Waits of the host, and the boundaries of optimizers.
  static bool needs_everything(const Record& at) {
    if (at.kind == RecordKind::host_read) return at.uses_count == 0;
    return at.kind == RecordKind::marker && (at.payload == int32_t(MarkerKind::optimizer_begin) ||
                                             at.payload == int32_t(MarkerKind::optimizer_end));
  }

  void put_off(int64_t index, const Record& at) {
    put_off_[at.stream].push_back(index);
    if (at.kind == RecordKind::event_record) stream_of_event_[at.payload] = at.stream;
    for (int32_t i = 0; i < at.uses_count; ++i) touched_[storage(at, i)] = at.stream;
  }
  // Whether it uses a tensor of a put-off record on a stream other than `but`.
  bool touches_put_off(const Record& at, int32_t but) const {
    if (touched_.empty()) return false;
    for (int32_t i = 0; i < at.uses_count; ++i) {
      const auto found = touched_.find(storage(at, i));
      if (found != touched_.end() && found->second != but) return true;
    }
    return false;
  }
  int32_t storage(const Record& at, int32_t use) const {
    return workload_.uses[size_t(at.uses_begin + use)].storage;
  }

  void flush(int32_t stream) {
    const auto found = put_off_.find(stream);
    if (found == put_off_.end()) return;
    order_.insert(order_.end(), found->second.begin(), found->second.end());
    put_off_.erase(found);
    if (put_off_.empty()) {
      touched_.clear();
      stream_of_event_.clear();
    }
  }
  void flush_all() {
    while (!put_off_.empty()) flush(put_off_.begin()->first);
  }

  const workload::Workload& workload_;
  int32_t main_stream_ = 0;
  std::map<int32_t, std::vector<int64_t>> put_off_;  // by stream, in the script's order
  std::map<int32_t, int32_t> stream_of_event_;       // of events that are put off
  std::unordered_map<int32_t, int32_t> touched_;     // storages of put-off records -> stream
  std::vector<int64_t> order_;
};

}  // namespace

std::vector<int64_t> issue_order(const workload::Workload& workload, const workload::Step& step,
                                 const std::vector<uint8_t>& outside) {
  std::vector<int64_t> records;
  bool has_side_stream = false;
  for (int64_t i = step.begin; i < step.end; ++i) {
    if (!outside.empty() && outside[size_t(i - step.begin)]) continue;
    records.push_back(i);
    has_side_stream |=
        workload.records[size_t(i)].stream != workload.records[size_t(step.begin)].stream;
  }
  return has_side_stream ? Orderer(workload).run(records) : records;
}

}  // namespace trnsim::lower
