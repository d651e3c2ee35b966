// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include <algorithm>

#include "lower/emit.h"

namespace trnsim::lower {
namespace {

class GraphEmitter {
 public:
  GraphEmitter(const Emission& emission, Builder& builder)
      : plan_(*emission.plan),
        workload_(*emission.workload),
        target_(*emission.target),
        emission_(emission),
        builder_(builder),
        tasks_(plan_.units.size()),
        weights_(plan_.units.size(), -1),
        groups_(plan_.units.size()) {
    host_ = builder.queue(QueueKind::host, 0);
    for (size_t i = 0; i < 4; ++i) {
      engines_[i] = builder.queue(QueueKind(size_t(QueueKind::tensor) + i), 0);
    }
    dma_ = builder.queue(QueueKind::dma, 0);
  }

  void run() {
    for (size_t i = 0; i < plan_.units.size(); ++i) {
      if (plan_.units[i].kind == UnitKind::ops) {
        groups_[i] = cost_group(plan_, int32_t(i), workload_, target_);
      }
    }
    for (size_t i = 0; i < plan_.units.size();) {
      const size_t count = batch_size(emission_, i);
      emit(int32_t(i), int32_t(count));
      i += count;
    }
  }

 private:
  const Unit& unit(int32_t index) const { return plan_.units[size_t(index)]; }

  // Of a call, with the others of its batch.
  void emit(int32_t index, int32_t count) {
    switch (unit(index).kind) {
      case UnitKind::ops:
        return unit(index).host_link >= 0 ? emit_host_copy(index) : emit_ops(index);
      case UnitKind::call:
        return emit_calls(index, count);
      case UnitKind::host_wait:
        return emit_host_wait(index);
    }
  }

  void launch(int32_t graph) {
    if (graph == launched_) return;
    launched_ = graph;
    launch_ = builder_.task(TaskKind::launch, host_, target_.launch_ps(), -1, {});
    last_ops_ = {-1, -1};
  }

  int32_t end_of(int32_t index) const { return tasks_[size_t(index)].done; }

  // The wait for another unit: its end, with P0 after a call, and Q0 before one.
  Dep after(int32_t producer, int64_t lag_ps) const {
    return {end_of(producer), DepKind::end, lag_ps};
  }

  std::vector<Dep> producer_deps(int32_t index, bool& cold) const {
    std::vector<Dep> deps;
    bool in_graph = false;
    for (const int32_t producer : groups_[size_t(index)].producers) {
      const bool is_call = unit(producer).kind == UnitKind::call;
      cold |= is_call;
      in_graph |= unit(producer).graph == unit(index).graph && !is_call;
      const bool on_chip = !is_call && reads_only_on_chip(producer, index);
      deps.push_back({on_chip ? tasks_[size_t(producer)].computed : end_of(producer), DepKind::end,
                      is_call ? target_.fill_ps() : 0});
    }
    for (const int32_t fence : unit(index).fences) {
      deps.push_back(after(fence, unit(fence).kind == UnitKind::call ? target_.fill_ps() : 0));
    }
    if (!in_graph) deps.push_back({launch_, DepKind::end, cold ? target_.fill_ps() : 0});
    return deps;
  }

  // Everything that `reader` takes from `producer` is still in SBUF.
  bool reads_only_on_chip(int32_t producer, int32_t reader) const {
    if (!comes_next(plan_, producer, reader)) return false;
    for (const Member& member : unit(reader).members) {
      for (const int32_t value : member.inputs) {
        if (value < 0 || plan_.values[size_t(value)].producer != producer) continue;
        if (!stays_on_chip(plan_, plan_.values[size_t(value)], reader, target_)) return false;
      }
    }
    return true;
  }

  // An op of the engines, and no copy to or from the host.
  bool is_computed(int32_t index) const {
    return unit(index).kind == UnitKind::ops && unit(index).host_link < 0;
  }

  bool is_first(int32_t index) const {
    for (int32_t i = index - 1; i >= 0 && unit(i).graph == unit(index).graph; --i) {
      if (is_computed(i)) return false;
    }
    return true;
  }

  bool is_last(int32_t index) const {
    for (size_t i = size_t(index) + 1; i < plan_.units.size(); ++i) {
      if (unit(int32_t(i)).graph != unit(index).graph) return true;
      if (is_computed(int32_t(i))) return false;
    }
    return true;
  }

  // `before` is the end of the op before the last one: two buffers.
  void emit_weights(int32_t index, int32_t before, int64_t fill_ps) {
    const GroupCost& group = groups_[size_t(index)];
    if (group.load_weights_ps == 0 || weights_[size_t(index)] >= 0) return;
    const Dep dep = before < 0 ? Dep{launch_, DepKind::end, fill_ps} : Dep{before, DepKind::end, 0};
    weights_[size_t(index)] =
        builder_.task(TaskKind::load_weights, dma_, group.load_weights_ps, op_index(index), {dep});
  }

  int32_t op_index(int32_t index) {
    int32_t& op = tasks_[size_t(index)].op;
    if (op < 0) {
      op = int32_t(builder_.program().ops.size());
      builder_.program().ops.push_back(
          make_op(plan_, index, workload_, groups_[size_t(index)], target_));
    }
    return op;
  }

  void emit_ops(int32_t index) {
    launch(unit(index).graph);
    const GroupCost& group = groups_[size_t(index)];
    bool cold = is_first(index);
    const std::vector<Dep> producers = producer_deps(index, cold);
    emit_weights(index, last_ops_[0], cold ? target_.fill_ps() : 0);
    const int32_t weights = weights_[size_t(index)];
    int32_t load = -1;
    if (group.load_ps > 0) {
      load = builder_.task(TaskKind::load, dma_, group.load_ps, op_index(index), producers);
    }
    int64_t bound_ps = 0;
    int32_t first = -1;
    const int32_t last = emit_engines(index, weights, load, cold, producers, first, bound_ps);
    // The next op's weights come before this op's results in the queue.
    size_t next = size_t(index) + 1;
    while (next < plan_.units.size() && unit(int32_t(next)).host_link >= 0) ++next;
    if (next < plan_.units.size() && unit(int32_t(next)).kind == UnitKind::ops &&
        unit(int32_t(next)).graph == unit(index).graph) {
      emit_weights(int32_t(next), last_ops_[1], 0);
    }
    const int32_t store = emit_store(index, producers, load, first, last, bound_ps);
    UnitTasks& tasks = tasks_[size_t(index)];
    tasks.computed = last >= 0 ? last : load >= 0 ? load : weights;
    tasks.done = store >= 0 ? store : tasks.computed;
    TRN_ASSERT(tasks.done >= 0, "an op has no task");
    last_ops_ = {last_ops_[1], tasks.done};
  }

  // The busiest engine first, then the others, which end with it. Returns the last of them.
  int32_t emit_engines(int32_t index, int32_t weights, int32_t load, bool cold,
                       const std::vector<Dep>& producers, int32_t& first, int64_t& bound_ps) {
    const auto& engine_ps = groups_[size_t(index)].engine_ps;
    const size_t bound =
        size_t(std::max_element(engine_ps.begin(), engine_ps.end()) - engine_ps.begin());
    bound_ps = engine_ps[bound];
    if (bound_ps == 0) return -1;
    std::vector<Dep> deps;
    const int32_t begin = cold && weights >= 0 ? weights : load >= 0 ? load : weights;
    deps.push_back({begin, DepKind::start, 0});
    if (load < 0 || begin != load) deps.insert(deps.end(), producers.begin(), producers.end());
    deps.push_back({weights, DepKind::end_bound, 0});
    deps.push_back({load, DepKind::end_bound, 0});
    first = builder_.task(TaskKind::compute, engines_[bound], bound_ps, op_index(index), deps);
    int32_t last = first;
    for (size_t i = 0; i < 4; ++i) {
      if (i == bound || engine_ps[i] == 0) continue;
      last = builder_.task(
          TaskKind::compute, engines_[i], engine_ps[i], op_index(index),
          {{first, DepKind::start, bound_ps - engine_ps[i]}, {last, DepKind::end_bound, 0}});
    }
    return last;
  }

  int32_t emit_store(int32_t index, const std::vector<Dep>& producers, int32_t load, int32_t first,
                     int32_t last, int64_t bound_ps) {
    const int64_t store_ps = groups_[size_t(index)].store_ps;
    if (store_ps == 0) return -1;
    const int64_t drain_ps = is_last(index) ? target_.drain_ps() : 0;
    std::vector<Dep> deps;
    if (first >= 0) {
      deps.push_back({first, DepKind::start, std::max<int64_t>(0, bound_ps - store_ps)});
      deps.push_back({last, DepKind::end_bound, drain_ps});
    } else if (load < 0) {
      deps = producers;
    } else {
      deps.push_back({load, DepKind::start, 0});
    }
    return builder_.task(TaskKind::store, dma_, store_ps + drain_ps, op_index(index), deps);
  }

  // On the link to the host, which is a DMA queue of its own.
  void emit_host_copy(int32_t index) {
    launch(unit(index).graph);
    const GroupCost& group = groups_[size_t(index)];
    bool cold = is_first(index);
    const std::vector<Dep> deps = producer_deps(index, cold);
    const int64_t copy_ps =
        std::max(group.dma_ps(), *std::max_element(group.engine_ps.begin(), group.engine_ps.end()));
    UnitTasks& tasks = tasks_[size_t(index)];
    tasks.computed = tasks.done = builder_.task(
        host_copy_kind(unit(index)), builder_.queue(QueueKind::host_link, unit(index).host_link),
        copy_ps, op_index(index), deps);
  }

  void emit_calls(int32_t first, int32_t count) {
    std::vector<Arrival> together;
    for (int32_t i = first; i < first + count; ++i) {
      launch(unit(i).graph);
      const Queue& queue = emission_.call_queue[size_t(i)];
      together.push_back({builder_.queue(queue.kind, queue.index),
                          emission_.call_template[size_t(i)], deps_of_call(i)});
    }
    const std::vector<int32_t> tasks = arrivals_.emit(builder_, together);
    for (int32_t i = 0; i < count; ++i) {
      tasks_[size_t(first + i)].computed = tasks_[size_t(first + i)].done = tasks[size_t(i)];
    }
  }

  std::vector<Dep> deps_of_call(int32_t index) const {
    std::vector<Dep> deps{{launch_, DepKind::end, 0}};
    for (const int32_t value : unit(index).reads) {
      const int32_t producer = value < 0 ? -1 : plan_.values[size_t(value)].producer;
      if (producer >= 0 && producer != index) deps.push_back(after(producer, drain(producer)));
    }
    for (const int32_t fence : unit(index).fences) deps.push_back(after(fence, 0));
    return deps;
  }

  int64_t drain(int32_t producer) const {
    return is_computed(producer) && !is_last(producer) ? target_.drain_ps() : 0;
  }

  void emit_host_wait(int32_t index) {
    std::vector<Dep> deps;
    for (const int32_t value : unit(index).reads) {
      const int32_t producer = value < 0 ? -1 : plan_.values[size_t(value)].producer;
      if (producer >= 0) deps.push_back(after(producer, drain(producer)));
    }
    for (const int32_t fence : unit(index).fences) {
      if (unit(fence).host_link >= 0) deps.push_back(after(fence, 0));
    }
    if (unit(index).waits_for_all) {
      const size_t queues = builder_.program().queues.size();
      for (size_t queue = 0; queue < queues; ++queue) {
        if (int32_t(queue) != host_) deps.push_back({builder_.last_of(int32_t(queue))});
      }
    }
    const int32_t task = builder_.task(TaskKind::host_wait, host_, 0, -1, deps);
    tasks_[size_t(index)].computed = tasks_[size_t(index)].done = task;
  }

  const Plan& plan_;
  const workload::Workload& workload_;
  const Target& target_;
  const Emission& emission_;
  Builder& builder_;
  std::vector<UnitTasks> tasks_;
  std::vector<int32_t> weights_;  // load_weights task of each unit
  std::vector<GroupCost> groups_;
  int32_t host_ = 0, dma_ = 0;
  std::array<int32_t, 4> engines_{};
  Arrivals arrivals_;
  int32_t launched_ = -1, launch_ = -1;
  std::array<int32_t, 2> last_ops_{-1, -1};  // ends of ops i-2 and i-1 of this graph
};

}  // namespace

void emit_graphs(const Emission& emission, Builder& builder) {
  GraphEmitter(emission, builder).run();
}

}  // namespace trnsim::lower
