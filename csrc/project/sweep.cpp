// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/sweep.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "workload/messages.h"

namespace trnsim::project {
namespace {

using lower::DepKind;
using lower::QueueKind;
using lower::TaskKind;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The first activity that holds wins, and among equals the earliest task in Program order.
bool comes_before(Activity a, int32_t task_a, Activity b, int32_t task_b) {
  return a != b ? a < b : task_a < task_b;
}

void append(std::vector<Segment>& segments, Segment segment) {
  if (segment.begin_ps >= segment.end_ps) return;
  if (!segments.empty()) {
    Segment& last = segments.back();
    if (last.end_ps == segment.begin_ps && last.task == segment.task &&
        last.activity == segment.activity) {
      last.end_ps = segment.end_ps;
      return;
    }
  }
  segments.push_back(segment);
}

}  // namespace

bool is_engine(QueueKind kind) {
  return kind == QueueKind::tensor || kind == QueueKind::vector || kind == QueueKind::scalar ||
         kind == QueueKind::gpsimd || kind == QueueKind::dma || kind == QueueKind::host_link;
}

RoleIndex::RoleIndex(const lower::Program& program)
    : previous(program.tasks.size(), -1), sequence(program.tasks.size(), -1) {
  std::vector<std::vector<int32_t>> of_queue(program.queues.size());
  // A collective is one of its group's, a message one between its two ranks with its tag.
  std::map<std::tuple<int32_t, int, int32_t, int32_t>, int64_t> counts;
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    const lower::Task& task = program.tasks[i];
    auto& queue = of_queue[size_t(task.queue)];
    if (!queue.empty()) previous[i] = queue.back();
    queue.push_back(int32_t(i));
    if (task.kind != TaskKind::call) continue;
    const lower::CallTemplate& call = program.calls[size_t(task.call)];
    sequence[i] = workload::is_message(call.kind)
                      ? counts[{call.group, int(call.kind), call.peer, call.tag}]++
                      : counts[{call.group, -1, -1, 0}]++;
  }
  for (size_t q = 0; q < of_queue.size(); ++q) {
    if (of_queue[q].empty()) continue;
    last_tasks.push_back(of_queue[q].back());
    if (is_engine(program.queues[q].kind)) engine_queues.push_back(std::move(of_queue[q]));
  }
}

Sweep::Sweep(const simulate::Timeline& timeline) : timeline_(timeline) {
  const fold::System& system = *timeline.system;
  for (const auto& role : system.roles) roles_.emplace_back(*role);
  for (const simulate::CallSpan& span : timeline.calls) {
    start_of_call_[{span.communicator, span.sequence}] = span.start_ps;
  }
  for (const auto& communicator : system.communicators) {
    bool differs = false;
    const fold::Rank& first = system.ranks[size_t(communicator.members[0])];
    for (const int32_t member : communicator.members) {
      const fold::Rank& rank = system.ranks[size_t(member)];
      differs |= rank.factor != first.factor || rank.start_ps != first.start_ps ||
                 rank.changes != first.changes;
    }
    is_disturbed_.push_back(differs);
  }
}

const lower::Program& Sweep::program_of(int64_t rank) const {
  const fold::System& system = *timeline_.system;
  return *system.roles[size_t(system.ranks[size_t(rank)].role)];
}
const RoleIndex& Sweep::index_of(int64_t rank) const {
  return roles_[size_t(timeline_.system->ranks[size_t(rank)].role)];
}
int64_t Sweep::start_of(int64_t rank, int32_t task) const {
  return timeline_.starts_ps[size_t(timeline_.first_task[size_t(rank)] + task)];
}
int64_t Sweep::end_of(int64_t rank, int32_t task) const {
  return timeline_.ends_ps[size_t(timeline_.first_task[size_t(rank)] + task)];
}

std::vector<Segment> Sweep::segments(int64_t rank) const {
  const RoleIndex& index = index_of(rank);
  std::vector<Segment> segments;
  std::vector<size_t> cursor(index.engine_queues.size(), 0);
  int64_t now = 0;
  while (now < timeline_.makespan_ps) {
    int32_t owner = -1, next_task = -1;  // running now; first to start later
    int64_t boundary = kNever, next_start = kNever;
    for (size_t q = 0; q < cursor.size(); ++q) {
      const auto& queue = index.engine_queues[q];
      // Tasks that are over, and those without length, which own nothing.
      while (cursor[q] < queue.size() &&
             (end_of(rank, queue[cursor[q]]) <= now ||
              end_of(rank, queue[cursor[q]]) == start_of(rank, queue[cursor[q]]))) {
        ++cursor[q];
      }
      if (cursor[q] == queue.size()) continue;
      const int32_t task = queue[cursor[q]];
      const int64_t start = start_of(rank, task);
      if (start <= now) {
        const auto& tasks = program_of(rank).tasks;
        const auto& queues = program_of(rank).queues;
        const auto key = [&](int32_t t) {
          const lower::Task& of = tasks[size_t(t)];
          return std::tuple(queues[size_t(of.queue)].kind == QueueKind::host_link, of.op, t);
        };
        if (owner < 0 || key(task) < key(owner)) owner = task;
        boundary = std::min(boundary, end_of(rank, task));
      } else if (start < next_start || (start == next_start && task < next_task)) {
        next_start = start;
        next_task = task;
      }
    }
    if (owner >= 0) {
      const int64_t end = std::min(boundary, next_start);
      append(segments, {now, end, owner, Activity::compute});
      now = end;
    } else {
      const int64_t end = std::min(next_start, timeline_.makespan_ps);
      gap(rank, now, end, next_task, segments);
      now = end;
    }
  }
  return segments;
}

void Sweep::gap(int64_t rank, int64_t begin_ps, int64_t end_ps, int32_t next_task,
                std::vector<Segment>& segments) const {
  std::vector<Wait> found = waits(rank, begin_ps, next_task);
  const int64_t rank_start = timeline_.system->ranks[size_t(rank)].start_ps;
  if (rank_start > begin_ps) found.push_back({begin_ps, rank_start, -1, Activity::stall});
  std::vector<int64_t> cuts{begin_ps, end_ps};
  int64_t done_ps = 0;  // after the last task: when everything of the rank has ended
  if (next_task < 0) {
    for (const int32_t task : index_of(rank).last_tasks) {
      done_ps = std::max(done_ps, end_of(rank, task));
    }
    cuts.push_back(done_ps);
  }
  for (const Wait& wait : found) {
    cuts.push_back(wait.begin_ps);
    cuts.push_back(wait.end_ps);
  }
  std::sort(cuts.begin(), cuts.end());
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int64_t from = std::max(cuts[i], begin_ps), to = std::min(cuts[i + 1], end_ps);
    if (from >= to) continue;
    Segment segment{from, to, next_task, Activity::latency};
    if (next_task < 0 && from >= done_ps) segment.activity = Activity::bubble;
    for (const Wait& wait : found) {
      if (wait.begin_ps > from || wait.end_ps < to) continue;
      if (segment.activity == Activity::latency ||
          comes_before(wait.activity, wait.task, segment.activity, segment.task)) {
        segment.activity = wait.activity;
        segment.task = wait.task;
      }
    }
    append(segments, segment);
  }
}

// Launches and calls among the unfinished ancestors of `next_task` (of the whole rank where it is
// -1). Of a task whose start is awaited, only what holds its start back matters; of one whose end
// is awaited, the task itself and its end bounds too.
std::vector<Sweep::Wait> Sweep::waits(int64_t rank, int64_t after_ps, int32_t next_task) const {
  const lower::Program& program = program_of(rank);
  const RoleIndex& index = index_of(rank);
  struct Visit {
    int32_t task;
    bool for_end;
  };
  std::vector<Visit> stack;
  std::unordered_map<int32_t, bool> seen;  // task -> its end is awaited
  const auto visit = [&](int32_t task, bool for_end) {
    if (task < 0 || (for_end ? end_of(rank, task) : start_of(rank, task)) <= after_ps) return;
    const auto [found, is_new] = seen.try_emplace(task, for_end);
    if (!is_new && (found->second || !for_end)) return;
    found->second = for_end;
    stack.push_back({task, for_end});
  };
  const auto visit_ancestors = [&](int32_t task, bool for_end) {
    visit(index.previous[size_t(task)], true);
    const lower::Task& of = program.tasks[size_t(task)];
    for (int32_t d = of.deps_begin; d < of.deps_begin + of.deps_count; ++d) {
      const lower::Dep& dep = program.deps[size_t(d)];
      if (dep.kind != DepKind::end_bound || for_end) visit(dep.task, dep.kind != DepKind::start);
    }
  };
  if (next_task >= 0) {
    visit_ancestors(next_task, false);
  } else {
    for (const int32_t task : index.last_tasks) visit(task, true);
  }
  while (!stack.empty()) {
    const Visit next = stack.back();
    stack.pop_back();
    visit_ancestors(next.task, next.for_end);
  }
  std::vector<Wait> found;
  for (const auto& [task, for_end] : seen) {
    if (!for_end) continue;
    const lower::TaskKind kind = program.tasks[size_t(task)].kind;
    if (kind == TaskKind::launch) {
      found.push_back({start_of(rank, task), end_of(rank, task), task, Activity::host});
    } else if (kind == TaskKind::call) {
      add_call(rank, task, found);
    }
  }
  return found;
}

void Sweep::add_call(int64_t rank, int32_t task, std::vector<Wait>& waits) const {
  const lower::Program& program = program_of(rank);
  const int32_t template_id = program.tasks[size_t(task)].call;
  const auto& call = program.calls[size_t(template_id)];
  const int32_t communicator = fold::communicator_of(*timeline_.system, int32_t(rank), template_id);
  const int64_t arrival = start_of(rank, task), end = end_of(rank, task);
  const auto found = start_of_call_.find({communicator, index_of(rank).sequence[size_t(task)]});
  // A group of one has no call: it waits for nobody.
  const int64_t last =
      found == start_of_call_.end() ? arrival : std::clamp(found->second, arrival, end);
  // A step of a collective waits as the collective would.
  Activity late = Activity::bubble;
  if (!workload::is_message(call.asked_kind())) {
    const fold::Rank& at = timeline_.system->ranks[size_t(rank)];
    const int32_t group = at.communicator_of_slot[size_t(call.asked_group())];
    const bool is_disturbed = group >= 0 && is_disturbed_[size_t(group)];
    late = is_disturbed ? Activity::stall : Activity::communication;
  }
  if (last > arrival) waits.push_back({arrival, last, task, late});
  if (end > last) waits.push_back({last, end, task, Activity::communication});
}

}  // namespace trnsim::project
