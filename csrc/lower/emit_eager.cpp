// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include <map>

#include "lower/emit.h"
#include "workload/captured_graph.h"

namespace trnsim::lower {
namespace {

class EagerEmitter {
 public:
  EagerEmitter(const Emission& emission, Builder& builder)
      : plan_(*emission.plan),
        workload_(*emission.workload),
        target_(*emission.target),
        emission_(emission),
        builder_(builder),
        done_(plan_.units.size(), -1) {
    host_ = builder.queue(QueueKind::host, 0);
    tensor_ = builder.queue(QueueKind::tensor, 0);
    vector_ = builder.queue(QueueKind::vector, 0);
  }

  void run() {
    size_t count = 1;
    for (size_t i = 0; i < plan_.units.size(); i += count) {
      count = batch_size(emission_, i);
      switch (plan_.units[i].kind) {
        case UnitKind::ops:
          emit_kernel(i);
          break;
        case UnitKind::call:
          emit_calls(i, count);
          break;
        case UnitKind::host_wait:
          emit_host_wait(i);
          break;
      }
    }
  }

 private:
  int32_t launch(const Unit& unit) {
    ++builder_.program().hidden_host_ops;
    return builder_.task(TaskKind::launch, host_, launch_ps(unit), -1, {});
  }

  // An op of many products may take launches for each of them.
  int64_t launch_ps(const Unit& unit) const {
    const int64_t once_ps = target_.chip.gpu.host_launch_ps;
    int64_t products = 0;
    for (const Member& member : unit.members) {
      for (const GemmShape& shape : member.cost->gemms) {
        if (shape.batch > 1 || shape.is_of_group) products += shape.batch;
      }
    }
    return std::max(once_ps, scale_up(int128(products) * once_ps, target_.grouped_launches));
  }

  // Each kernel has its own launch, but a captured graph is launched as a whole.
  int32_t launch_of(const Unit& unit) {
    const workload::Record& record = workload_.records[size_t(unit.record)];
    const bool captured = workload::is_captured_graph(workload_, record);
    if (!captured || record.region != region_) launched_ = launch(unit);
    region_ = captured ? record.region : -1;
    return launched_;
  }

  int32_t last_of(int32_t stream) const {
    const auto found = last_.find(stream);
    return found == last_.end() ? -1 : found->second;
  }

  // The launch, the kernel before it on its stream, and what the stream was made to wait for.
  std::vector<Dep> deps_of(const Unit& unit) {
    std::vector<Dep> deps{{launch_of(unit)}, {last_of(unit.stream)}};
    for (const int32_t fence : unit.fences) deps.push_back({done_[size_t(fence)]});
    return deps;
  }

  void emit_kernel(size_t index) {
    const Unit& unit = plan_.units[index];
    const GroupCost group = cost_group(plan_, int32_t(index), workload_, target_);
    const int32_t op = int32_t(builder_.program().ops.size());
    builder_.program().ops.push_back(make_op(plan_, int32_t(index), workload_, group, target_));
    const bool tensor = unit.members.front().cost->executed_flops > 0;
    const bool is_copy = unit.host_link >= 0;
    const int32_t queue = is_copy  ? builder_.queue(QueueKind::host_link, unit.host_link)
                          : tensor ? tensor_
                                   : vector_;
    const std::vector<Dep> deps = deps_of(unit);
    done_[index] = builder_.task(is_copy ? host_copy_kind(unit) : TaskKind::compute, queue,
                                 group.gpu_ps, op, deps);
    last_[unit.stream] = done_[index];
  }

  // The library's stream waits for the caller's; the caller's goes on until a wait. A batch is one
  // launch.
  void emit_calls(size_t first, size_t count) {
    std::vector<Arrival> together;
    for (size_t i = first; i < first + count; ++i) {
      const Queue& queue = emission_.call_queue[i];
      together.push_back({builder_.queue(queue.kind, queue.index), emission_.call_template[i], {}});
    }
    together.front().deps = deps_of(plan_.units[first]);
    const std::vector<int32_t> tasks = arrivals_.emit(builder_, together);
    for (size_t i = 0; i < count; ++i) done_[first + i] = tasks[i];
  }

  void emit_host_wait(size_t index) {
    const Unit& unit = plan_.units[index];
    std::vector<Dep> deps{{last_of(unit.stream)}};
    for (const int32_t fence : unit.fences) deps.push_back({done_[size_t(fence)]});
    if (unit.waits_for_all) {
      const size_t queues = builder_.program().queues.size();
      for (size_t queue = 0; queue < queues; ++queue) {
        if (int32_t(queue) != host_) deps.push_back({builder_.last_of(int32_t(queue))});
      }
    }
    done_[index] = builder_.task(TaskKind::host_wait, host_, 0, -1, deps);
  }

  const Plan& plan_;
  const workload::Workload& workload_;
  const Target& target_;
  const Emission& emission_;
  Builder& builder_;
  std::vector<int32_t> done_;
  std::map<int32_t, int32_t> last_;  // last kernel of each stream
  int32_t host_ = 0, tensor_ = 0, vector_ = 0;
  int32_t launched_ = -1, region_ = -1;  // the last launch, and the captured graph it was for
  Arrivals arrivals_;
};

}  // namespace

void emit_eager(const Emission& emission, Builder& builder) {
  EagerEmitter(emission, builder).run();
}

}  // namespace trnsim::lower
