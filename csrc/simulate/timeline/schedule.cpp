// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/timeline/schedule.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "simulate/timeline/pieces.h"

namespace trnsim::simulate {
namespace {

constexpr int32_t kClosed = std::numeric_limits<int32_t>::max();

// Runs the queues of one lane from release to release, without times.
class SegmentMaker {
 public:
  SegmentMaker(const LaneTables& tables, const RoleTable& role, const Rows& rows, LaneState& state)
      : tables_(tables), role_(role), rows_(rows), state_(state), closed_(state.heads.size(), 0) {}

  void run(Segment& segment) {
    segment_ = &segment;
    for (int32_t task = first_open(); task != kClosed;) {
      const int32_t queue = row_of(task).queue;
      if (!step(task, row_of(task))) closed_[size_t(queue)] = 1;
      task = next_open(task + 1);
    }
  }

 private:
  const TaskRow& row_of(int32_t task) const {
    return tables_.tasks[size_t(role_.task_begin + task)];
  }
  const DepRow& dep(const TaskRow& row, int32_t index) const {
    return tables_.deps[size_t(row.deps_begin + index)];
  }
  int32_t key(size_t queue) const {
    const bool open = closed_[queue] == 0 && state_.heads[queue] < role_.task_count;
    return open ? state_.heads[queue] : kClosed;
  }
  int32_t first_open() const {
    int32_t first = kClosed;
    for (size_t queue = 0; queue < closed_.size(); ++queue) first = std::min(first, key(queue));
    return first;
  }
  int32_t next_open(int32_t candidate) const {
    if (candidate < role_.task_count && key(size_t(row_of(candidate).queue)) == candidate) {
      return candidate;
    }
    return first_open();
  }

  bool has_ended(const DepRow& on) const { return state_.heads[size_t(on.queue)] > on.task; }
  bool has_started(const DepRow& on) const {
    const size_t queue = size_t(on.queue);
    return has_ended(on) || (state_.heads[queue] == on.task && state_.started[queue] != 0);
  }
  bool may_start(const TaskRow& row) const {
    for (int32_t i = 0; i < row.start_deps; ++i) {
      const DepRow& on = dep(row, i);
      if (!(on.on_start ? has_started(on) : has_ended(on))) return false;
    }
    return true;
  }
  bool may_end(const TaskRow& row) const {
    if (row.is_call && state_.released[call_queue(row)] == 0) return false;
    for (int32_t i = 0; i < row.bounds; ++i) {
      if (!has_ended(dep(row, row.start_deps + i))) return false;
    }
    return true;
  }
  size_t call_queue(const TaskRow& row) const {
    return size_t(tables_.call_queues[size_t(role_.queue_begin + row.queue)]);
  }

  // Starts and ends the task as far as it goes; false when its queue has to wait.
  bool step(int32_t task, const TaskRow& row) {
    const size_t queue = size_t(row.queue);
    const bool starts = state_.started[queue] == 0;
    if (starts && !may_start(row)) return false;
    state_.started[queue] = 1;
    const bool ends = may_end(row);
    if (starts || ends) add(starts, ends, task, row);
    if (!ends) return false;
    state_.heads[queue] = row.next;
    state_.started[queue] = 0;
    if (row.is_call) {
      state_.released[call_queue(row)] = 0;
      segment_->consumed.push_back(int32_t(call_queue(row)));
    }
    return true;
  }

  void add(bool starts, bool ends, int32_t task, const TaskRow& row) {
    Op& op = segment_->ops.emplace_back();
    op.starts = starts;
    op.ends = ends;
    op.task = task;
    op.seed = row.hash_seed;
    op.free = rows_.free(row.queue);
    op.from = op.free;
    if (op.starts) add_start(op, task, row);
    if (op.ends) add_end(op, row);
    segment_->quick_ops.push_back(quick(op));
  }

  QuickOp quick(const Op& op) const {
    QuickOp quick;
    quick.is_quick = op.starts && op.ends && op.bounds == 0 && op.start_terms <= 2 &&
                     op.start == Rows::kNobody && op.duration_ps >> 32 == 0 &&
                     rows_.count() <= std::numeric_limits<uint16_t>::max();
    if (quick.is_quick == 0) return quick;
    quick.weights = hash_weights(op.seed);
    quick.duration_ps = uint32_t(op.duration_ps);
    quick.from = quick.to = uint16_t(op.free);
    if (op.end != Rows::kNobody) quick.second = uint16_t(op.end);
    quick.factors = uint8_t(op.factors);
    for (int32_t i = 0; i < 2; ++i) {
      const bool waits = i < op.start_terms;
      const Term term = waits ? segment_->terms[size_t(op.terms_begin + i)] : Term{0, op.free};
      quick.others[i] = uint16_t(term.row);
      quick.is_quick &= term.lag_ps == 0;
      quick.waits = uint8_t(op.start_terms);
    }
    return quick;
  }

  void add_start(Op& op, int32_t task, const TaskRow& row) {
    op.terms_begin = int32_t(segment_->terms.size());
    add_terms(row, 0, row.start_deps);
    op.start_terms = uint16_t(row.start_deps);
    if (row.start_slot != kNone) op.start = rows_.slot(row.start_slot);
    if (row.is_call) {
      segment_->arrivals.push_back({int32_t(call_queue(row)), task});
      op.arrival = rows_.arrival(int32_t(call_queue(row)));
      return;
    }
    op.duration_ps = row.duration_ps;
    if (row.is_scaled) op.factors = Rows::kFactors;
    if (!op.ends) op.base = rows_.base(row.queue);
  }

  void add_end(Op& op, const TaskRow& row) {
    if (!op.starts) {
      op.terms_begin = int32_t(segment_->terms.size());
      op.from = row.is_call ? rows_.release(int32_t(call_queue(row))) : rows_.base(row.queue);
    }
    add_terms(row, row.start_deps, row.bounds);
    op.bounds = uint16_t(row.bounds);
    if (row.end_slot != kNone) op.end = rows_.slot(row.end_slot);
  }

  void add_terms(const TaskRow& row, int32_t first, int32_t count) {
    for (int32_t i = first; i < first + count; ++i) {
      segment_->terms.push_back({dep(row, i).lag_ps, rows_.slot(dep(row, i).slot)});
    }
  }

  const LaneTables& tables_;
  const RoleTable& role_;
  const Rows& rows_;
  LaneState& state_;
  std::vector<uint8_t> closed_;
  Segment* segment_ = nullptr;
};

}  // namespace

bool LaneState::operator<(const LaneState& other) const {
  return std::tie(heads, started, released) < std::tie(other.heads, other.started, other.released);
}

Schedule::Schedule(const LaneTables& tables, int32_t role, int32_t max_factor)
    : tables_(tables), role_(tables.roles[size_t(role)]) {
  constexpr int64_t kOpsPerTask = 8, kOpsAtLeast = 4096;
  rows_ = {role_.queue_count, role_.call_queue_count, role_.slot_count};
  cutter_ = std::make_unique<PieceCutter>(tables, role_, rows_, max_factor);
  ops_allowed_ = kOpsAtLeast + kOpsPerTask * role_.task_count;
  LaneState first;
  const auto heads = tables.first_tasks.begin() + role_.queue_begin;
  first.heads.assign(heads, heads + role_.queue_count);
  first.started.assign(size_t(role_.queue_count), 0);
  first.released.assign(size_t(role_.call_queue_count), 0);
  find_state(std::move(first), 0);
}

Schedule::~Schedule() = default;

int32_t Schedule::find_state(LaneState state, int64_t ended) {
  const auto [found, added] = index_.emplace(std::move(state), int32_t(states_.size()));
  if (added) states_.push_back({&found->first, ended, {}});
  return found->second;
}

const Segment* Schedule::segment(int32_t state, const std::vector<int32_t>& released) {
  for (const auto& [calls, made] : states_[size_t(state)].segments) {
    if (calls == released) return made.get();
  }
  if (is_full()) return nullptr;
  auto made = make(state, released);
  ops_made_ += int64_t(made->ops.size()) + 1;
  auto& segments = states_[size_t(state)].segments;
  segments.push_back({released, std::move(made)});
  return segments.back().second.get();
}

std::unique_ptr<Segment> Schedule::make(int32_t from, const std::vector<int32_t>& released) {
  auto segment = std::make_unique<Segment>();
  LaneState state = this->state(from);
  for (const int32_t queue : released) state.released[size_t(queue)] = 1;
  SegmentMaker(tables_, role_, rows_, state).run(*segment);
  cutter_->cut(*segment);
  const int64_t ended = std::count_if(segment->ops.begin(), segment->ops.end(),
                                      [](const Op& op) { return op.ends != 0; });
  segment->next_state = find_state(std::move(state), states_[size_t(from)].ended + ended);
  return segment;
}

}  // namespace trnsim::simulate
