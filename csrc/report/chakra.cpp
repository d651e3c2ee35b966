// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "report/chakra.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lower/cost.h"
#include "lower/order.h"
#include "project/roles.h"
#include "report/tasks.h"

namespace trnsim::report {
namespace {

using workload::CallKind;
using workload::Record;
using workload::RecordKind;

// Follows the records as lower/plan.cpp does, which makes the units that the Program's ops are.
class Maker {
 public:
  Maker(const project::Run& run, size_t role)
      : run_(run),
        workload_(*run.workloads[role]),
        program_(*run.roles[role].program),
        target_(lower::make_target(run.machine, run.placement.ranks_per_chip)),
        writer_(workload_.storages.size(), -1),
        node_of_call_(workload_.calls.size(), -1),
        node_of_op_(program_.ops.size(), -1),
        written_(workload_.storages.size(), -1) {
    for (size_t op = 0; op < program_.ops.size(); ++op) {
      for (const int64_t record : program_.ops[op].records) op_of_record_[record] = int32_t(op);
    }
  }

  ChakraGraph make(const workload::Step& step) {
    const auto outside = workload::outside_step(workload_, step);
    for (const int64_t index : lower::issue_order(workload_, step, outside)) add(index);
    set_times();
    for (ChakraNode& node : graph_.nodes) {
      sort(node.data_deps);
      sort(node.ctrl_deps);
    }
    return std::move(graph_);
  }

 private:
  static void sort(std::vector<int32_t>& deps) {
    std::sort(deps.begin(), deps.end());
    deps.erase(std::unique(deps.begin(), deps.end()), deps.end());
  }

  ChakraNode& node(int32_t index) { return graph_.nodes[size_t(index)]; }

  void add(int64_t index) {
    const Record& record = workload_.records[size_t(index)];
    switch (record.kind) {
      case RecordKind::op:
        return add_op(index, record);
      case RecordKind::call:
        return add_call(record);
      case RecordKind::wait:
        if (record.payload >= 0) wait_for(record.stream, node_of_call_[size_t(record.payload)]);
        return;
      case RecordKind::host_read:
        return add_host_read(record);
      case RecordKind::event_record:
        events_[record.payload] = waits_of(record.stream);
        return;
      case RecordKind::event_wait: {
        const auto event = events_.find(record.payload);
        if (event == events_.end()) return;  // recorded before the step: already over
        for (const int32_t at : event->second) wait_for(record.stream, at);
        return;
      }
      case RecordKind::marker:
        return;
    }
  }

  int32_t storage_of(const Record& record, size_t use) const {
    if (int64_t(use) >= record.uses_count) return -1;
    return workload_.uses[size_t(record.uses_begin) + use].storage;
  }

  // The last node of a stream, and all that the stream has waited for.
  std::vector<int32_t> waits_of(int32_t stream) {
    std::vector<int32_t> waits;
    for (const auto& [queue, at] : fences_[stream]) waits.push_back(at);
    if (last_.count(stream)) waits.push_back(last_[stream]);
    return waits;
  }

  // What ends in the order in which it was issued: calls of a group, messages to a peer, ops of a
  // stream. The last one stands for all.
  using QueueKey = std::tuple<int32_t, int32_t, int32_t>;
  QueueKey queue_of(int32_t index) {
    const ChakraNode& of = node(index);
    if (of.call < 0) return {-1, of.stream, 0};
    const workload::Call& call = workload_.calls[size_t(of.call)];
    if (call.kind == CallKind::send) return {1, call.group, call.peer};
    if (call.kind == CallKind::recv) return {2, call.group, call.peer};
    return {0, call.group, 0};
  }

  void wait_for(int32_t stream, int32_t other) {
    if (other < 0) return;
    int32_t& kept = fences_[stream].try_emplace(queue_of(other), other).first->second;
    kept = std::max(kept, other);
    pending_[stream].push_back(other);
  }

  int32_t new_node(ChakraKind kind, const Record& record, const std::string& name) {
    const int32_t index = int32_t(graph_.nodes.size());
    ChakraNode made;
    made.kind = kind;
    made.name = name;
    made.stream = record.stream;
    made.region = record.region;
    made.module = record.module;
    made.phase = record.phase;
    made.ctrl_deps = std::move(pending_[record.stream]);
    pending_[record.stream].clear();
    const int32_t before = last_.count(record.stream) ? last_[record.stream] : -1;
    if (before >= 0) made.ctrl_deps.push_back(before);
    if (host_ > before) made.ctrl_deps.push_back(host_);  // the host issued it after that
    graph_.nodes.push_back(std::move(made));
    return index;
  }

  void read(int32_t index, int32_t storage) {
    const int32_t from = storage < 0 ? -1 : writer_[size_t(storage)];
    if (from >= 0 && from != index) node(index).data_deps.push_back(from);
  }

  void write(int32_t index, int32_t storage) {
    if (storage < 0) return;
    writer_[size_t(storage)] = index;
    if (written_[size_t(storage)] == index) return;
    written_[size_t(storage)] = index;
    node(index).output_bytes += workload_.storages[size_t(storage)].bytes;
  }

  void add_op(int64_t index, const Record& record) {
    const workload::Signature& signature = workload_.signature_of(record);
    const size_t inputs = signature.inputs.size();
    const auto found = op_of_record_.find(index);
    if (found == op_of_record_.end()) {  // an allocation: what stood there before is gone
      for (size_t i = inputs; i < size_t(record.uses_count); ++i) {
        const int32_t storage = storage_of(record, i);
        if (storage >= 0) writer_[size_t(storage)] = -1;
      }
      return;
    }
    int32_t& at = node_of_op_[size_t(found->second)];
    if (at < 0) {
      const lower::Op& op = program_.ops[size_t(found->second)];
      at = new_node(ChakraKind::comp, record, op.name);
      node(at).read_bytes = op.read_bytes;
      node(at).write_bytes = op.write_bytes;
      node(at).phase = op.phase;
      node(at).dtype = op.dtype;
      last_[record.stream] = at;
      tails_[queue_of(at)] = at;
    }
    const lower::Cost cost = lower::cost_of(signature, target_);
    node(at).flops += int64_t(cost.executed_flops);
    if (cost.executed_flops > 0) node(at).dtype = cost.dtype;
    const bool is_cycles = cost.vector_cycles + cost.scalar_cycles + cost.gpsimd_cycles > 0;
    if (is_cycles && of_cycles_.insert(at).second) ++graph_.ops_of_cycles;
    for (size_t i = 0; i < inputs; ++i) read(at, storage_of(record, i));
    for (size_t i = inputs; i < size_t(record.uses_count); ++i) write(at, storage_of(record, i));
    for (size_t i = 0; i < inputs; ++i) {
      if (signature.inputs[i].mutated) write(at, storage_of(record, i));
    }
  }

  void add_call(const Record& record) {
    const workload::Call& call = workload_.calls[size_t(record.payload)];
    const size_t uses = size_t(record.uses_count);
    const size_t inputs =
        record.signature < 0 ? uses : std::min(workload_.signature_of(record).inputs.size(), uses);
    if (workload_.groups[size_t(call.group)].ranks.size() < 2) {  // its result is its input
      const int32_t storage = inputs > 0 ? storage_of(record, 0) : -1;
      const int32_t from = storage < 0 ? -1 : writer_[size_t(storage)];
      for (size_t i = inputs; i < uses; ++i) {
        if (storage_of(record, i) >= 0) writer_[size_t(storage_of(record, i))] = from;
      }
      return;
    }
    const int32_t at = new_node(ChakraKind::call, record, call_kind_name(call.kind));
    node(at).call = record.payload;
    node_of_call_[size_t(record.payload)] = at;
    tails_[queue_of(at)] = at;
    for (size_t i = 0; i < uses; ++i) read(at, storage_of(record, i));
    if (call.kind == CallKind::send) return;
    for (size_t i = inputs >= uses ? 0 : inputs; i < uses; ++i) write(at, storage_of(record, i));
  }

  void add_host_read(const Record& record) {
    const int32_t at = new_node(ChakraKind::host_read, record, "trnsim::host_read");
    for (size_t i = 0; i < size_t(record.uses_count); ++i) read(at, storage_of(record, i));
    node(at).waits_for_all = record.uses_count == 0;
    if (node(at).waits_for_all) {
      for (const auto& [queue, other] : tails_) node(at).data_deps.push_back(other);
    }
    host_ = at;
  }

  // Calls and waits of the host have one task each, in the order of the nodes.
  void set_times() {
    std::vector<int32_t> calls, waits;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (node(int32_t(i)).kind == ChakraKind::call) calls.push_back(int32_t(i));
      if (node(int32_t(i)).kind == ChakraKind::host_read) waits.push_back(int32_t(i));
    }
    std::vector<uint8_t> is_timed(graph_.nodes.size(), 0);
    size_t next_call = 0, next_wait = 0;
    const size_t first = size_t(first_task(run_, workload_.rank));
    for (size_t t = 0; t < program_.tasks.size(); ++t) {
      const lower::Task& task = program_.tasks[t];
      int32_t at = task.op >= 0 ? node_of_op_[size_t(task.op)] : -1;
      if (task.kind == lower::TaskKind::call) at = calls.at(next_call++);
      if (task.kind == lower::TaskKind::host_wait) at = waits.at(next_wait++);
      if (at < 0 || task.kind == lower::TaskKind::launch) continue;
      const int64_t begin = run_.timeline->starts_ps[first + t];
      const int64_t end = run_.timeline->ends_ps[first + t];
      ChakraNode& of = node(at);
      of.start_ps = is_timed[size_t(at)] ? std::min(of.start_ps, begin) : begin;
      of.end_ps = std::max(of.end_ps, end);
      is_timed[size_t(at)] = 1;
    }
  }

  const project::Run& run_;
  const workload::Workload& workload_;
  const lower::Program& program_;
  const lower::Target target_;
  ChakraGraph graph_;
  std::vector<int32_t> writer_;  // by storage: the node that made what it holds
  std::vector<int32_t> node_of_call_, node_of_op_, written_;
  std::map<int64_t, int32_t> op_of_record_;
  std::map<int32_t, int32_t> last_;                  // node by stream
  std::map<int32_t, std::vector<int32_t>> pending_;  // by stream: what its next node waits for
  std::map<int32_t, std::map<QueueKey, int32_t>> fences_;  // by stream: what it has waited for
  std::map<QueueKey, int32_t> tails_;
  std::map<int32_t, std::vector<int32_t>> events_;
  std::set<int32_t> of_cycles_;
  int32_t host_ = -1;
};

}  // namespace

ChakraGraph chakra_graph(const project::Run& run, size_t role) {
  TRN_CHECK(!run.options.step_mode, report,
            "a Chakra trace holds collectives, and here they are simulated step by step",
            "leave --collectives step out");
  const project::Case of = project::make_case(run.workloads, run.options);
  return Maker(run, role).make(of.roles[role].step);
}

}  // namespace trnsim::report
