// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/timeline/lane_tables.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <span>

#include "simulate/timeline/lanes.h"
#include "simulate/timeline/mix.h"

namespace trnsim::simulate {
namespace {

using lower::DepKind;

class RoleMaker {
 public:
  RoleMaker(const lower::Program& program, int32_t role, bool keep_times, LaneTables& tables)
      : program_(program), role_(role), keep_times_(keep_times), tables_(tables) {
    TRN_CHECK(program.queues.size() <= std::numeric_limits<int16_t>::max(), simulate,
              "role " + program.role + " has " + std::to_string(program.queues.size()) + " queues",
              "exchange messages with fewer peers");
  }

  void make() {
    table_.task_count = int32_t(program_.tasks.size());
    table_.queue_count = int32_t(program_.queues.size());
    table_.task_begin = int32_t(tables_.tasks.size());
    table_.queue_begin = int32_t(tables_.first_tasks.size());
    make_tasks();
    make_queues();
    if (keep_times_) {
      keep_all();
    } else {
      find_readers();
      reuse_slots();
      write_readers();
    }
    for (size_t i = first_dep_; i < tables_.deps.size(); ++i) {
      DepRow& dep = tables_.deps[i];
      dep.slot = dep.on_start ? task(dep.task).start_slot : task(dep.task).end_slot;
    }
    tables_.roles.push_back(table_);
  }

 private:
  TaskRow& task(int32_t index) { return tables_.tasks[size_t(table_.task_begin + index)]; }

  void make_tasks() {
    first_dep_ = tables_.deps.size();
    tables_.tasks.reserve(tables_.tasks.size() + program_.tasks.size());
    tables_.deps.reserve(tables_.deps.size() + program_.deps.size());
    for (int32_t index = 0; index < table_.task_count; ++index) {
      const lower::Task& at = program_.tasks[size_t(index)];
      TaskRow& row = tables_.tasks.emplace_back();
      row.duration_ps = at.duration_ps;
      row.hash_seed = hash_seed(role_, index);
      row.queue = int16_t(at.queue);
      row.is_call = at.kind == lower::TaskKind::call;
      row.is_scaled = at.kind == lower::TaskKind::compute;
      row.deps_begin = int32_t(tables_.deps.size());
      for (const bool bounds : {false, true}) {
        for (int32_t i = 0; i < at.deps_count; ++i) {
          add_dep(program_.deps[size_t(at.deps_begin + i)], bounds, row);
        }
      }
      row.is_simple = row.is_call == 0 && row.bounds == 0 && row.start_deps <= 2 &&
                      row.duration_ps < int64_t(1) << 48;
    }
  }

  void add_dep(const lower::Dep& dep, bool bounds, TaskRow& row) {
    if ((dep.kind == DepKind::end_bound) != bounds) return;
    const int16_t queue = int16_t(program_.tasks[size_t(dep.task)].queue);
    if (queue == row.queue && dep.lag_ps == 0) return;  // queue order says it already
    tables_.deps.push_back(
        {dep.lag_ps, dep.task, kNone, queue, uint8_t(dep.kind == DepKind::start)});
    ++(bounds ? row.bounds : row.start_deps);
  }

  void make_queues() {
    std::vector<int32_t> first(size_t(table_.queue_count), table_.task_count);
    std::vector<int32_t> calls(size_t(table_.queue_count), kNone);
    for (int32_t index = table_.task_count; index-- > 0;) {
      TaskRow& row = task(index);
      row.next = first[size_t(row.queue)];
      first[size_t(row.queue)] = index;
      if (row.is_call) calls[size_t(row.queue)] = 0;
    }
    for (int32_t& call : calls) {
      if (call != kNone) call = table_.call_queue_count++;
    }
    tables_.first_tasks.insert(tables_.first_tasks.end(), first.begin(), first.end());
    tables_.call_queues.insert(tables_.call_queues.end(), calls.begin(), calls.end());
  }

  void keep_all() {
    for (int32_t index = 0; index < table_.task_count; ++index) {
      task(index).end_slot = index;
      task(index).start_slot = table_.task_count + index;
    }
    table_.slot_count = 2 * table_.task_count;
  }

  // For each task, the tasks that read its end, then those that read its start: list 2 * task and
  // the one after it.
  void find_readers() {
    const auto each = [&](const auto& visit) {
      for (int32_t index = 0; index < table_.task_count; ++index) {
        const TaskRow& row = task(index);
        for (int32_t i = 0; i < row.start_deps + row.bounds; ++i) {
          const DepRow& dep = tables_.deps[size_t(row.deps_begin + i)];
          visit(size_t(dep.task) * 2 + dep.on_start, index);
        }
      }
    };
    first_reader_.assign(size_t(table_.task_count) * 2 + 1, 0);
    each([&](size_t list, int32_t) { ++first_reader_[list + 1]; });
    std::partial_sum(first_reader_.begin(), first_reader_.end(), first_reader_.begin());
    readers_.resize(size_t(first_reader_.back()));
    std::vector<int32_t> filled = first_reader_;
    each([&](size_t list, int32_t reader) { readers_[size_t(filled[list]++)] = reader; });
  }
  std::span<const int32_t> readers_in(size_t list) const {
    const auto first = readers_.begin() + first_reader_[list];
    return {first, readers_.begin() + first_reader_[list + 1]};
  }

  void write_readers() {
    if (tables_.first_reader.empty()) tables_.first_reader.push_back(0);
    const int64_t before = int64_t(tables_.readers.size());
    tables_.readers.insert(tables_.readers.end(), readers_.begin(), readers_.end());
    for (size_t list = 2; list < first_reader_.size(); list += 2) {
      tables_.first_reader.push_back(before + first_reader_[list]);
    }
  }

  // before_[q]: tasks of queue q below this index have ended whenever the present task starts.
  void look_back(int32_t index, std::vector<int32_t>& clocks,
                 const std::vector<int32_t>& previous) {
    const TaskRow& row = task(index);
    const size_t queues = size_t(table_.queue_count);
    before_ = clocks.data() + size_t(index) * queues;
    const auto merge = [&](int32_t other, bool ended) {
      const int32_t* clock = clocks.data() + size_t(other) * queues;
      for (size_t q = 0; q < queues; ++q) before_[q] = std::max(before_[q], clock[q]);
      int32_t& own = before_[size_t(task(other).queue)];
      if (ended) own = std::max(own, other + 1);
    };
    if (previous[size_t(row.queue)] != kNone) merge(previous[size_t(row.queue)], true);
    for (int32_t i = 0; i < row.start_deps; ++i) {
      const DepRow& dep = tables_.deps[size_t(row.deps_begin + i)];
      merge(dep.task, !dep.on_start);
    }
  }

  // Whether the task that wrote last, and all that read what it wrote, have ended.
  bool is_free(size_t list) {
    const auto has_ended = [&](int32_t holder) {
      return holder < before_[size_t(task(holder).queue)];
    };
    return has_ended(int32_t(list / 2)) && std::ranges::all_of(readers_in(list), has_ended);
  }

  int32_t take_slot(size_t list) {
    constexpr size_t kLook = 16;  // slots tried, oldest first: more finds few and costs time
    const size_t count = std::min(kLook, taken_.size());
    for (size_t i = 0; i < count; ++i) {
      const auto [slot, holder] = taken_.front();
      taken_.pop_front();
      const bool free = is_free(holder);
      taken_.push_back({slot, free ? list : holder});
      if (free) return slot;
    }
    taken_.push_back({table_.slot_count, list});
    return table_.slot_count++;
  }

  void reuse_slots() {
    std::vector<int32_t> clocks(size_t(table_.task_count) * size_t(table_.queue_count), 0);
    std::vector<int32_t> previous(size_t(table_.queue_count), kNone);
    for (int32_t index = 0; index < table_.task_count; ++index) {
      look_back(index, clocks, previous);
      previous[size_t(task(index).queue)] = index;
      const size_t ends = size_t(index) * 2, starts = ends + 1;
      if (!readers_in(ends).empty()) task(index).end_slot = take_slot(ends);
      if (!readers_in(starts).empty()) task(index).start_slot = take_slot(starts);
    }
  }

  const lower::Program& program_;
  int32_t role_;
  bool keep_times_;
  LaneTables& tables_;
  RoleTable table_;
  size_t first_dep_ = 0;
  std::vector<int32_t> first_reader_, readers_;
  int32_t* before_ = nullptr;
  struct Taken {
    int32_t slot;
    size_t list;  // readers of the time that it holds
  };
  std::deque<Taken> taken_;  // longest unused first
};

}  // namespace

int32_t LaneTables::count_before(const RoleTable& role, int32_t queue, int32_t head) const {
  const auto first = tasks.begin() + role.task_begin;
  return int32_t(std::count_if(first, first + std::min(head, role.task_count),
                               [&](const TaskRow& task) { return task.queue == queue; }));
}

LaneTables make_lane_tables(const fold::System& system, bool keep_times) {
  LaneTables tables;
  for (size_t role = 0; role < system.roles.size(); ++role) {
    RoleMaker(*system.roles[role], int32_t(role), keep_times, tables).make();
  }
  return tables;
}

}  // namespace trnsim::simulate
