// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "lower/plan.h"

#include <algorithm>
#include <set>
#include <vector>

#include "lower/order.h"
#include "workload/captured_graph.h"

namespace trnsim::lower {
namespace {

using workload::MarkerKind;
using workload::Record;
using workload::RecordKind;
using workload::Signature;

class Planner {
 public:
  Planner(const workload::Workload& workload, const std::vector<Cost>& costs,
          const PlanOptions& options)
      : workload_(workload),
        costs_(costs),
        options_(options),
        current_(workload.storages.size(), -1),
        call_unit_(workload.calls.size(), -1) {}

  Plan run(const workload::Step& step, const std::vector<uint8_t>& outside) {
    find_copied(step);
    for (const int64_t index : issue_order(workload_, step, outside)) {
      add(index, workload_.records[size_t(index)]);
    }
    mark_survivors(step);
    return std::move(plan_);
  }

 private:
  // Events that streams with copies to or from the host wait for.
  void find_copied(const workload::Step& step) {
    std::set<int32_t> copying;  // streams, of which a wait may come before the first copy
    std::vector<const Record*> waits;
    for (int64_t i = step.begin; i < step.end; ++i) {
      const Record& record = workload_.records[size_t(i)];
      if (record.kind == RecordKind::op && costs_[size_t(record.signature)].host_link >= 0) {
        copying.insert(record.stream);
      }
      if (record.kind == RecordKind::event_wait) waits.push_back(&record);
    }
    for (const Record* wait : waits) {
      if (copying.count(wait->stream) > 0) copied_behind_.insert(wait->payload);
    }
  }

  // What a copy to the host waits for is a unit that nothing joins later: it would wait for that,
  // too.
  void add_event(const Record& record) {
    events_[record.payload] =
        Event{last_unit(record.stream), record.stream, fences_[record.stream]};
    if (copied_behind_.count(record.payload) > 0) {
      fenced_at_[record.stream] = int32_t(plan_.units.size());
    }
  }

  void add(int64_t index, const Record& record) {
    switch (record.kind) {
      case RecordKind::op:
        return add_op(index, record);
      case RecordKind::call:
        return add_call(index, record);
      case RecordKind::wait:
        return add_wait(record);
      case RecordKind::host_read:
        return add_host_read(index, record);
      case RecordKind::event_record:
        return add_event(record);
      case RecordKind::event_wait:
        return add_event_wait(record);
      case RecordKind::marker:
        if (record.payload == int32_t(MarkerKind::optimizer_begin) ||
            record.payload == int32_t(MarkerKind::optimizer_end)) {
          if (!options_.whole_graphs) end_graph();
        }
        return;
    }
  }

  int64_t storage_bytes(int32_t storage) const { return workload_.storages[size_t(storage)].bytes; }

  // The value that a storage holds now.
  int32_t current(int32_t storage) {
    if (storage < 0) return -1;
    int32_t& value = current_[size_t(storage)];
    if (value < 0) {
      value = int32_t(plan_.values.size());
      plan_.values.push_back({-1, storage, storage_bytes(storage), {}, false});
    }
    return value;
  }

  int32_t write(int32_t storage, int32_t unit) {
    if (storage < 0) return -1;
    current_[size_t(storage)] = int32_t(plan_.values.size());
    plan_.values.push_back({unit, storage, storage_bytes(storage), {}, false});
    return current_[size_t(storage)];
  }

  void read(int32_t value, int32_t unit, bool must_write) {
    if (value < 0) return;
    Value& read = plan_.values[size_t(value)];
    if (read.producer == unit) return;
    if (read.readers.empty() || read.readers.back() != unit) read.readers.push_back(unit);
    read.must_write |= must_write;
  }

  int32_t last_unit(int32_t stream) const {
    const auto found = last_unit_.find(stream);
    return found == last_unit_.end() ? -1 : found->second;
  }

  int32_t storage_of_use(const Record& record, size_t use) const {
    if (int64_t(use) >= record.uses_count) return -1;
    return workload_.uses[size_t(record.uses_begin) + use].storage;
  }

  void end_graph() {
    if (first_of_graph_ == int32_t(plan_.units.size())) return;
    ++graph_;
    first_of_graph_ = int32_t(plan_.units.size());
  }

  // A captured graph is a region that no compiler has seen.
  bool is_compiled(const Record& record) const {
    return record.region >= 0 && !workload::is_captured_graph(workload_, record);
  }

  int32_t new_unit(UnitKind kind, int64_t index, const Record& record) {
    Unit unit;
    unit.kind = kind;
    unit.record = index;
    unit.phase = record.phase;
    unit.stream = record.stream;
    unit.graph = graph_;
    unit.region = record.region;
    unit.fused = options_.fuse || (options_.fuse_regions && is_compiled(record));
    for (const auto& [queue, fence] : fences_[record.stream]) unit.fences.push_back(fence);
    plan_.units.push_back(std::move(unit));
    return int32_t(plan_.units.size()) - 1;
  }

  void add_op(int64_t index, const Record& record) {
    const Signature& signature = workload_.signature_of(record);
    const Cost& cost = costs_[size_t(record.signature)];
    if (cost.fusion == Fusion::nothing) {
      for (size_t i = signature.inputs.size(); i < size_t(record.uses_count); ++i) {
        const int32_t storage = storage_of_use(record, i);
        if (storage >= 0) current_[size_t(storage)] = -1;
      }
      return;
    }
    if (record.region != region_) {
      if (!options_.whole_graphs) end_graph();
      region_ = record.region;
    }
    Member member;
    member.record = index;
    member.cost = &cost;
    int32_t latest = -1;
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
      member.inputs.push_back(current(storage_of_use(record, i)));
      if (member.inputs.back() >= 0) {
        latest = std::max(latest, plan_.values[size_t(member.inputs.back())].producer);
      }
    }
    int32_t unit = -1;
    if (can_join(latest, record, cost)) {
      unit = latest;
    } else {
      if (options_.graph_per_op) end_graph();
      unit = new_unit(UnitKind::ops, index, record);
      if (cost.host_link >= 0) keep_copy_in_order(unit, record.stream, cost.host_link);
    }
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
      read(member.inputs[i], unit, signature.inputs[i].mutated || cost.host_link >= 0);
    }
    for (size_t i = 0; i < signature.outputs.size(); ++i) {
      member.written.push_back(write(storage_of_use(record, signature.inputs.size() + i), unit));
    }
    write_mutated(record, signature, unit, member);
    absorb(plan_.units[size_t(unit)], signature, cost);
    plan_.units[size_t(unit)].members.push_back(std::move(member));
    last_unit_[record.stream] = unit;
  }

  // A copy to or from the host is on a queue of its own: what a stream holds before it ends first,
  // and what comes after it waits.
  void keep_copy_in_order(int32_t unit, int32_t stream, int8_t way) {
    constexpr int32_t kHostLinkKey = -(1 << 20);  // below any stream's
    plan_.units[size_t(unit)].host_link = way;
    if (last_unit(stream) >= 0) plan_.units[size_t(unit)].fences.push_back(last_unit(stream));
    fences_[stream][kHostLinkKey - way] = unit;
  }

  // Written arguments that the op does not return.
  void write_mutated(const Record& record, const Signature& signature, int32_t unit,
                     Member& member) {
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
      if (!signature.inputs[i].mutated) continue;
      const int32_t storage = storage_of_use(record, i);
      const int32_t now = storage < 0 ? -1 : current_[size_t(storage)];
      const bool done =
          now >= 0 && plan_.values[size_t(now)].producer == unit &&
          std::find(member.written.begin(), member.written.end(), now) != member.written.end();
      member.written.push_back(done ? now : write(storage, unit));
    }
  }

  static int64_t wide_row_bytes(const Signature& signature, const Cost& cost) {
    int64_t bytes = 0;
    for (const auto* slots : {&signature.inputs, &signature.outputs}) {
      for (const auto& slot : *slots) {
        if (slot.meta.element_count() >= cost.elements) {
          bytes += cost.row_length * workload::dtype_bytes(slot.meta.dtype);
        }
      }
    }
    return 2 * bytes;  // double buffered
  }

  bool can_join(int32_t latest, const Record& record, const Cost& cost) {
    if (latest < first_of_graph_ || latest < fenced_at_[record.stream]) return false;
    if (cost.fusion != Fusion::pointwise && cost.fusion != Fusion::rows) return false;
    const Unit& unit = plan_.units[size_t(latest)];
    if (unit.kind != UnitKind::ops || !unit.open || unit.phase != record.phase ||
        unit.stream != record.stream) {
      return false;
    }
    if (!unit.fused || unit.region != record.region) return false;
    if (unit.has_anchor && options_.anchors_alone) return false;
    const bool same =
        cost.elements == unit.elements &&
        (cost.row_length == unit.row_length || !(unit.has_rows || cost.fusion == Fusion::rows));
    const bool one_a_row = cost.fusion == Fusion::pointwise && unit.has_rows &&
                           cost.elements * unit.row_length == unit.elements;
    if (!same && !one_a_row) return false;
    if (!unit.has_rows && cost.fusion != Fusion::rows) return true;
    return unit.row_bytes + wide_row_bytes(workload_.signature_of(record), cost) <=
           options_.sbuf_partition_bytes;
  }

  void absorb(Unit& unit, const Signature& signature, const Cost& cost) {
    if (unit.members.empty()) {
      unit.elements = cost.elements;
      unit.row_length = cost.row_length;
      unit.open = cost.fusion != Fusion::alone;
    }
    unit.has_anchor |= cost.fusion == Fusion::anchor;
    unit.has_rows |= cost.fusion == Fusion::rows;
    unit.row_bytes += wide_row_bytes(signature, cost);
  }

  void add_call(int64_t index, const Record& record) {
    const workload::Call& call = workload_.calls[size_t(record.payload)];
    const size_t inputs = record.signature >= 0 ? workload_.signature_of(record).inputs.size()
                                                : size_t(record.uses_count);
    if (workload_.groups[size_t(call.group)].ranks.size() < 2) {  // its result is its input
      const int32_t value = inputs > 0 ? current(storage_of_use(record, 0)) : -1;
      for (size_t i = inputs; i < size_t(record.uses_count); ++i) {
        const int32_t storage = storage_of_use(record, i);
        if (storage >= 0) current_[size_t(storage)] = value;
      }
      return;
    }
    const int32_t unit = new_unit(UnitKind::call, index, record);
    plan_.units[size_t(unit)].call = record.payload;
    call_unit_[size_t(record.payload)] = unit;
    std::vector<int32_t> reads;
    for (size_t i = 0; i < std::min(inputs, size_t(record.uses_count)); ++i) {
      reads.push_back(current(storage_of_use(record, i)));
      read(reads.back(), unit, true);
    }
    const bool only_inputs = inputs >= size_t(record.uses_count);
    for (size_t i = only_inputs ? 0 : inputs; i < size_t(record.uses_count); ++i) {
      const int32_t storage = storage_of_use(record, i);
      if (storage < 0) continue;
      if (call.kind == workload::CallKind::send) continue;
      // What is written in place is also read.
      const int32_t before = current_[size_t(storage)];
      if (before >= 0 && std::find(reads.begin(), reads.end(), before) == reads.end()) {
        reads.push_back(before);
        read(before, unit, true);
      }
      write(storage, unit);
    }
    plan_.units[size_t(unit)].reads = std::move(reads);
  }

  void fence(int32_t stream, int32_t queue, int32_t unit) {
    if (unit < 0) return;
    int32_t& kept = fences_[stream].try_emplace(queue, -1).first->second;
    kept = std::max(kept, unit);
    fenced_at_[stream] = int32_t(plan_.units.size());
  }

  void add_wait(const Record& record) {
    const int32_t unit = record.payload < 0 ? -1 : call_unit_[size_t(record.payload)];
    if (unit < 0) return;
    const workload::Call& call = workload_.calls[size_t(record.payload)];
    fence(record.stream, queue_key(call), unit);
  }

  // Units on one queue end in order, so that the last one stands for all.
  int32_t queue_key(const workload::Call& call) const {
    if (call.kind == workload::CallKind::send) return (1 << 20) + 2 * call.peer;
    if (call.kind == workload::CallKind::recv) return (1 << 20) + 2 * call.peer + 1;
    return collective_queue(call.group, options_.collective_streams);
  }

  void add_event_wait(const Record& record) {
    const auto event = events_.find(record.payload);
    if (event == events_.end()) return;  // recorded before the step: already over
    for (const auto& [queue, unit] : event->second.fences) fence(record.stream, queue, unit);
    fence(record.stream, -1 - event->second.stream, event->second.unit);
  }

  void add_host_read(int64_t index, const Record& record) {
    const int32_t unit = new_unit(UnitKind::host_wait, index, record);
    plan_.units[size_t(unit)].waits_for_all = record.uses_count == 0;
    for (size_t i = 0; i < size_t(record.uses_count); ++i) {
      const int32_t value = current(storage_of_use(record, i));
      read(value, unit, true);
      plan_.units[size_t(unit)].reads.push_back(value);
    }
    end_graph();
  }

  void mark_survivors(const workload::Step& step) {
    for (size_t storage = 0; storage < current_.size(); ++storage) {
      const int32_t value = current_[storage];
      const int64_t died = workload_.storages[storage].died;
      if (value >= 0 && (died < 0 || died > step.end)) {
        plan_.values[size_t(value)].must_write = true;
      }
    }
  }

  struct Event {
    int32_t unit = -1, stream = 0;
    std::map<int32_t, int32_t> fences;
  };

  const workload::Workload& workload_;
  const std::vector<Cost>& costs_;
  const PlanOptions& options_;
  Plan plan_;
  std::vector<int32_t> current_;                          // value by storage
  std::vector<int32_t> call_unit_;                        // by index in Workload::calls
  std::map<int32_t, std::map<int32_t, int32_t>> fences_;  // stream -> queue -> last unit
  std::map<int32_t, int32_t> fenced_at_, last_unit_;      // by stream
  std::map<int32_t, Event> events_;
  std::set<int32_t> copied_behind_;  // events
  int32_t graph_ = 0, first_of_graph_ = 0, region_ = -1;
};

}  // namespace

Plan plan_step(const workload::Workload& workload, const workload::Step& step,
               const std::vector<uint8_t>& outside, const std::vector<Cost>& costs,
               const PlanOptions& options) {
  return Planner(workload, costs, options).run(step, outside);
}

bool comes_next(const Plan& plan, int32_t producer, int32_t reader) {
  int32_t before = reader - 1;
  while (before > producer && plan.units[size_t(before)].host_link >= 0) --before;
  return before == producer;
}

bool stays_on_chip(const Plan& plan, const Value& value, int32_t reader, const Target& target) {
  if (target.is_gpu() || value.producer < 0 || !comes_next(plan, value.producer, reader)) {
    return false;
  }
  const Unit &from = plan.units[size_t(value.producer)], &to = plan.units[size_t(reader)];
  if (from.host_link >= 0 || to.host_link >= 0) return false;
  if (from.kind != UnitKind::ops || to.kind != UnitKind::ops || from.graph != to.graph ||
      from.phase != to.phase) {
    return false;
  }
  if (target.is_tpu()) {
    const machine::Tpu& tpu = target.chip.tpu;
    const Rational vmem = Rational::of(tpu.vmem_bytes, target.ranks_per_chip);
    return !(tpu.vmem_resident_fraction * vmem < Rational{value.bytes, 1});
  }
  const machine::NeuronCore& core = target.core();
  const int64_t partition_bytes = ceil_div(value.bytes, core.partitions * target.cores);
  const Rational limit = core.sbuf_resident_fraction * Rational{core.sbuf_partition_bytes, 1};
  return !(limit < Rational{partition_bytes, 1});
}

int32_t collective_queue(int32_t group, int64_t collective_streams) {
  return collective_streams > 0 ? int32_t(group % collective_streams) : group;
}

}  // namespace trnsim::lower
