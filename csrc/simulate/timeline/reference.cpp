// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/timeline/reference.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "simulate/network/transfers.h"
#include "simulate/timeline/mix.h"

namespace trnsim::simulate {
namespace {

constexpr int64_t kNotYet = -1;

struct RoleTables {
  QueueIndex queues;
  std::vector<std::vector<int64_t>> lags_of_end, lags_of_start;  // of dependents, above 0, by task
};

struct RankState {
  std::vector<int64_t> start_ps, end_ps, release_ps;  // by task
  std::vector<int32_t> head;                          // by queue
  // Of an engine's queue: what was left of its running task at a time, and whether it is slowed.
  std::vector<int64_t> work_ps, since_ps;
  bool is_slow = false;
};

class ReferenceLanes final : public Lanes {
 public:
  explicit ReferenceLanes(const fold::System& system) : system_(system) {
    for (const auto& program : system.roles) tables_.push_back(make_tables(*program));
    for (size_t rank = 0; rank < system.ranks.size(); ++rank) {
      const lower::Program& program = program_of(int32_t(rank));
      RankState& state = ranks_.emplace_back();
      for (auto* times : {&state.start_ps, &state.end_ps, &state.release_ps}) {
        times->assign(program.tasks.size(), kNotYet);
      }
      for (auto* times : {&state.work_ps, &state.since_ps}) {
        times->assign(program.queues.size(), 0);
      }
      state.head.assign(program.queues.size(), 0);
      wake(int32_t(rank), system.ranks[rank].start_ps);
    }
  }

  void run(int64_t now_ps, std::vector<Arrival>& arrivals) override {
    while (!moments_.empty() && moments_.top().first <= now_ps) {
      const auto [time, rank] = moments_.top();
      TRN_ASSERT(time == now_ps, "a moment was passed over");
      moments_.pop();
      while (advance(rank, now_ps, arrivals)) {
      }
    }
  }

  void release(const std::vector<int32_t>& ranks, const std::vector<int32_t>& tasks,
               int64_t time_ps) override {
    for (size_t i = 0; i < ranks.size(); ++i) {
      ranks_[size_t(ranks[i])].release_ps[size_t(tasks[i])] = time_ps;
      wake(ranks[i], time_ps);
    }
  }

  void change_speeds(const std::vector<int32_t>& ranks, bool are_slow, int64_t time_ps) override {
    for (const int32_t rank : ranks) {
      RankState& state = ranks_[size_t(rank)];
      const std::vector<lower::Queue>& queues = program_of(rank).queues;
      for (int32_t queue = 0; queue < int32_t(queues.size()); ++queue) {
        const int32_t speed = speed_of(rank, queue);
        if (is_running(rank, queue, time_ps)) {
          state.work_ps[size_t(queue)] -= work_done(time_ps - state.since_ps[size_t(queue)], speed);
          state.since_ps[size_t(queue)] = time_ps;
        }
      }
      state.is_slow = are_slow;
      for (int32_t queue = 0; queue < int32_t(queues.size()); ++queue) {
        if (is_running(rank, queue, time_ps)) set_end(rank, queue, head_task(rank, queue));
      }
    }
  }

  int64_t next_ps() const override { return moments_.empty() ? kNever : moments_.top().first; }
  int64_t ended_count() const override { return ended_count_; }
  int32_t head(int32_t rank, int32_t queue) const override {
    return ranks_[size_t(rank)].head[size_t(queue)];
  }
  bool head_started(int32_t rank, int32_t queue) const override {
    const int32_t task = head_task(rank, queue);
    return task >= 0 && ranks_[size_t(rank)].start_ps[size_t(task)] != kNotYet;
  }

  void write(Timeline& timeline) const override {
    timeline.first_task.assign(1, 0);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankState& state = ranks_[rank];
      const fold::Rank& at = system_.ranks[rank];
      timeline.starts_ps.insert(timeline.starts_ps.end(), state.start_ps.begin(),
                                state.start_ps.end());
      timeline.ends_ps.insert(timeline.ends_ps.end(), state.end_ps.begin(), state.end_ps.end());
      timeline.first_task.push_back(int64_t(timeline.ends_ps.size()));
      int64_t& last_end_ps = timeline.last_end_ps.emplace_back(0);
      for (size_t task = 0; task < state.end_ps.size(); ++task) {
        const int64_t end = state.end_ps[task];
        last_end_ps = std::max(last_end_ps, end);
        timeline.hash += mix_end(hash_seed(at.role, int32_t(task)), end) * uint64_t(at.count);
      }
    }
  }

 private:
  using Moment = std::pair<int64_t, int32_t>;  // time, rank

  static RoleTables make_tables(const lower::Program& program) {
    RoleTables tables{index_queues(program), {}, {}};
    tables.lags_of_end.resize(program.tasks.size());
    tables.lags_of_start.resize(program.tasks.size());
    for (const lower::Dep& dep : program.deps) {
      if (dep.lag_ps == 0) continue;
      auto& lags = dep.kind == lower::DepKind::start ? tables.lags_of_start : tables.lags_of_end;
      lags[size_t(dep.task)].push_back(dep.lag_ps);
    }
    return tables;
  }

  const lower::Program& program_of(int32_t rank) const {
    return *system_.roles[size_t(system_.ranks[size_t(rank)].role)];
  }
  const RoleTables& tables_of(int32_t rank) const {
    return tables_[size_t(system_.ranks[size_t(rank)].role)];
  }
  void wake(int32_t rank, int64_t time_ps) { moments_.push({time_ps, rank}); }

  int32_t head_task(int32_t rank, int32_t queue) const {
    const QueueIndex& queues = tables_of(rank).queues;
    const int32_t at = queues.first[size_t(queue)] + ranks_[size_t(rank)].head[size_t(queue)];
    return at < queues.first[size_t(queue) + 1] ? queues.tasks[size_t(at)] : -1;
  }

  // One look at every queue; true when something started or ended.
  bool advance(int32_t rank, int64_t now_ps, std::vector<Arrival>& arrivals) {
    if (now_ps < system_.ranks[size_t(rank)].start_ps) return false;
    bool changed = false;
    const int32_t queue_count = int32_t(program_of(rank).queues.size());
    for (int32_t queue = 0; queue < queue_count; ++queue) {
      const int32_t task = head_task(rank, queue);
      if (task < 0) continue;
      if (ranks_[size_t(rank)].start_ps[size_t(task)] == kNotYet) {
        if (!may_start(rank, task, now_ps)) continue;
        start(rank, task, now_ps, arrivals);
        changed = true;
      }
      if (may_end(rank, task, now_ps)) {
        end(rank, task, now_ps);
        changed = true;
      }
    }
    return changed;
  }

  bool holds(int32_t rank, const lower::Dep& dep, int64_t now_ps) const {
    const RankState& state = ranks_[size_t(rank)];
    const int64_t other = dep.kind == lower::DepKind::start ? state.start_ps[size_t(dep.task)]
                                                            : state.end_ps[size_t(dep.task)];
    return other != kNotYet && now_ps >= other + dep.lag_ps;
  }

  bool may_start(int32_t rank, int32_t task, int64_t now_ps) const {
    const lower::Program& program = program_of(rank);
    const lower::Task& at = program.tasks[size_t(task)];
    for (int32_t i = 0; i < at.deps_count; ++i) {
      const lower::Dep& dep = program.deps[size_t(at.deps_begin + i)];
      if (dep.kind != lower::DepKind::end_bound && !holds(rank, dep, now_ps)) return false;
    }
    return true;
  }

  void start(int32_t rank, int32_t task, int64_t now_ps, std::vector<Arrival>& arrivals) {
    ranks_[size_t(rank)].start_ps[size_t(task)] = now_ps;
    const lower::Task& at = program_of(rank).tasks[size_t(task)];
    if (at.kind == lower::TaskKind::call) {
      arrivals.push_back({rank, task, now_ps});
    } else {
      ranks_[size_t(rank)].work_ps[size_t(at.queue)] = duration_of(rank, at, now_ps);
      ranks_[size_t(rank)].since_ps[size_t(at.queue)] = now_ps;
      set_end(rank, at.queue, task);
    }
    for (const int64_t lag : tables_of(rank).lags_of_start[size_t(task)]) wake(rank, now_ps + lag);
  }

  // Of a task that is no call, as long as the speed stays.
  void set_end(int32_t rank, int32_t queue, int32_t task) {
    RankState& state = ranks_[size_t(rank)];
    const int64_t left_ps = time_of_work(state.work_ps[size_t(queue)], speed_of(rank, queue));
    state.release_ps[size_t(task)] = state.since_ps[size_t(queue)] + left_ps;
    wake(rank, state.release_ps[size_t(task)]);
  }

  int32_t speed_of(int32_t rank, int32_t queue) const {
    if (!ranks_[size_t(rank)].is_slow) return machine::kFullSpeed;
    return fold::slowed_speed(system_, program_of(rank).queues[size_t(queue)].kind);
  }

  // Whether the head of the queue has started, is no call, and would still compute after time_ps.
  bool is_running(int32_t rank, int32_t queue, int64_t time_ps) const {
    const int32_t task = head_task(rank, queue);
    if (task < 0 || program_of(rank).tasks[size_t(task)].kind == lower::TaskKind::call)
      return false;
    const RankState& state = ranks_[size_t(rank)];
    return state.start_ps[size_t(task)] != kNotYet && state.release_ps[size_t(task)] > time_ps;
  }

  int64_t duration_of(int32_t rank, const lower::Task& task, int64_t start_ps) const {
    if (task.kind != lower::TaskKind::compute) return task.duration_ps;
    const int32_t factor = fold::factor_at(system_.ranks[size_t(rank)], start_ps);
    return scale_duration(task.duration_ps, factor);
  }

  bool may_end(int32_t rank, int32_t task, int64_t now_ps) const {
    const int64_t release = ranks_[size_t(rank)].release_ps[size_t(task)];
    if (release == kNotYet || now_ps < release) return false;
    const lower::Program& program = program_of(rank);
    const lower::Task& at = program.tasks[size_t(task)];
    for (int32_t i = 0; i < at.deps_count; ++i) {
      const lower::Dep& dep = program.deps[size_t(at.deps_begin + i)];
      if (dep.kind == lower::DepKind::end_bound && !holds(rank, dep, now_ps)) return false;
    }
    return true;
  }

  void end(int32_t rank, int32_t task, int64_t now_ps) {
    RankState& state = ranks_[size_t(rank)];
    state.end_ps[size_t(task)] = now_ps;
    ++state.head[size_t(program_of(rank).tasks[size_t(task)].queue)];
    ++ended_count_;
    for (const int64_t lag : tables_of(rank).lags_of_end[size_t(task)]) wake(rank, now_ps + lag);
  }

  const fold::System& system_;
  std::vector<RoleTables> tables_;
  std::vector<RankState> ranks_;
  std::priority_queue<Moment, std::vector<Moment>, std::greater<>> moments_;
  int64_t ended_count_ = 0;
};

}  // namespace

std::unique_ptr<Lanes> make_reference_lanes(const fold::System& system) {
  return std::make_unique<ReferenceLanes>(system);
}

}  // namespace trnsim::simulate
