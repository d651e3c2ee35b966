// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <set>

#include "project/shares.h"
#include "small_timeline.h"

namespace trnsim::project {
namespace {

std::map<Activity, int64_t> times(const std::vector<Segment>& segments) {
  std::map<Activity, int64_t> result;
  for (const Segment& s : segments) result[s.activity] += s.end_ps - s.begin_ps;
  return result;
}

TEST(Sweep, EngineTimeIsComputeAndTheEarlierOpOwnsAnOverlap) {
  // dma 0..10 of op 0, tensor 10..30 of op 0; dma 10..25 of op 1 runs under it.
  SmallRun small;
  const int32_t load = small.task(QueueKind::dma, TaskKind::load, 10, small.op("a"));
  small.task(QueueKind::tensor, TaskKind::compute, 20, 0, {{load, DepKind::end, 0}});
  small.task(QueueKind::dma, TaskKind::load, 15, small.op("b"));
  const auto timeline = small.run(1);
  const Sweep sweep(timeline);
  const Attribution attribution = attribute(sweep, 0);
  EXPECT_EQ(timeline.makespan_ps, 30);
  EXPECT_EQ(attribution.op_ps, (std::vector<int64_t>{30, 0}));
  EXPECT_EQ(share_step(timeline, sweep).breakdown.compute_ps, 30);
  // dma: 10 + 15 of 30, tensor: 20 of 30
  EXPECT_DOUBLE_EQ(share_step(timeline, sweep).engine_busy.at("dma"), 25.0 / 30.0);
  EXPECT_DOUBLE_EQ(share_step(timeline, sweep).engine_busy.at("tensor"), 20.0 / 30.0);
}

TEST(Sweep, AWaitForACollectiveIsExposedAndOneUnderComputeIsHidden) {
  // compute 0..10, all-reduce 10..50 beside compute 10..40, then compute 50..60 that needs it:
  // ten picoseconds of the transfer are exposed.
  SmallRun small;
  const int32_t first = small.compute(QueueKind::tensor, 10);
  const int32_t reduce = small.all_reduce(40, {{first, DepKind::end, 0}});
  small.compute(QueueKind::tensor, 30);
  small.compute(QueueKind::tensor, 10, {{reduce, DepKind::end, 0}});
  const auto timeline = small.run(2);
  const Sweep sweep(timeline);
  const Shares shares = share_step(timeline, sweep);
  EXPECT_EQ(timeline.makespan_ps, 60);
  EXPECT_EQ(shares.breakdown.exposed_communication_ps, 10);
  EXPECT_EQ(shares.breakdown.compute_ps, 50);
  EXPECT_EQ(shares.exposed_by_group_ps.at("world"), 10);
}

TEST(Sweep, ALateMemberIsCommunicationAndAJitteredOneIsAStall) {
  // rank 1 takes 15 longer to arrive; the transfer takes 5.
  SmallRun small;
  const int32_t work = small.compute(QueueKind::tensor, 10);
  small.all_reduce(5, {{work, DepKind::end, 0}});
  small.delays = {{0, 0}, {15, 0}};
  auto timeline = small.run(2);
  EXPECT_EQ(times(Sweep(timeline).segments(0))[Activity::communication], 20);
  auto system = std::make_shared<fold::System>(*timeline.system);
  system->ranks[1].factor = 5 << 15;  // rank 1 is a slow chip: 10 * 2.5 = 25
  timeline.system = system;
  const auto slow = times(Sweep(timeline).segments(0));
  EXPECT_EQ(slow.at(Activity::stall), 15);
  EXPECT_EQ(slow.at(Activity::communication), 5);
}

TEST(Sweep, WaitingForALaunchIsHostAndTheEndOfAShorterRankIsBubble) {
  SmallRun small;
  const int32_t launch = small.task(QueueKind::host, TaskKind::launch, 7, -1);
  small.compute(QueueKind::vector, 10, {{launch, DepKind::end, 0}});
  small.delays = {{0, 0}, {0, 30}};
  const auto timeline = small.run(2);
  const Sweep sweep(timeline);
  auto fast = times(sweep.segments(0));
  EXPECT_EQ(fast[Activity::host], 7);
  EXPECT_EQ(fast[Activity::compute], 10);
  EXPECT_EQ(fast[Activity::bubble], 30);
  EXPECT_EQ(critical_rank(timeline), 1);
  // Means: host 7, bubble 15, and compute (10 + 40) / 2.
  const Breakdown b = share_step(timeline, sweep).breakdown;
  EXPECT_EQ(b.host_ps, 7);
  EXPECT_EQ(b.bubble_ps, 15);
  EXPECT_EQ(b.compute_ps, 25);
}

TEST(Sweep, AHostThatWaitsForACollectiveWaitsForTheTransfer) {
  // all-reduce 0..20, the host reads its result, launches (5), and compute follows: 20 of the gap
  // is communication and 5 is host.
  SmallRun small;
  const int32_t reduce = small.all_reduce(20);
  small.task(QueueKind::host, TaskKind::host_wait, 0, -1, {{reduce, DepKind::end, 0}});
  const int32_t launch = small.task(QueueKind::host, TaskKind::launch, 5, -1);
  small.compute(QueueKind::tensor, 10, {{launch, DepKind::end, 0}});
  const auto timeline = small.run(2);
  auto found = times(Sweep(timeline).segments(0));
  EXPECT_EQ(found[Activity::communication], 20);
  EXPECT_EQ(found[Activity::host], 5);
  EXPECT_EQ(found[Activity::compute], 10);
}

TEST(Sweep, ALagBetweenEnginesCountsAsCompute) {
  SmallRun small;
  const int32_t load = small.task(QueueKind::dma, TaskKind::load, 10, small.op("a"));
  small.task(QueueKind::tensor, TaskKind::compute, 5, 0, {{load, DepKind::end, 4}});
  const auto timeline = small.run(1);
  const Sweep sweep(timeline);
  EXPECT_EQ(times(sweep.segments(0))[Activity::latency], 4);
  EXPECT_EQ(attribute(sweep, 0).op_ps[0], 19);
  EXPECT_EQ(share_step(timeline, sweep).breakdown.compute_ps, 19);
}

// The definition, read off the Timeline at one instant, with no sweep: everything is recomputed.
Activity activity_at(const simulate::Timeline& timeline, int64_t rank, int64_t now) {
  const auto& program = *timeline.system->roles[0];
  const size_t base = size_t(timeline.first_task[size_t(rank)]);
  const auto start = [&](int32_t t) { return timeline.starts_ps[base + size_t(t)]; };
  const auto end = [&](int32_t t) { return timeline.ends_ps[base + size_t(t)]; };
  const int32_t count = int32_t(program.tasks.size());
  const auto on_engine = [&](int32_t t) {
    return is_engine(program.queues[size_t(program.tasks[size_t(t)].queue)].kind);
  };
  int32_t next = -1;
  bool is_done = true;
  for (int32_t t = 0; t < count; ++t) {
    is_done = is_done && end(t) <= now;
    if (!on_engine(t) || end(t) == start(t)) continue;
    if (start(t) <= now && now < end(t)) return Activity::compute;
    if (start(t) > now && (next < 0 || start(t) < start(next))) next = t;
  }
  if (is_done) return Activity::bubble;
  // Everything unfinished that `next` (or the end of the step) needs, to a fixpoint: (task, whether
  // its end is needed, and not its start alone).
  std::set<std::pair<int32_t, bool>> needed;
  for (int32_t t = 0; t < count; ++t) {
    if (next < 0 && end(t) > now) needed.insert({t, true});
  }
  if (next >= 0) needed.insert({next, false});
  for (size_t before = 0; before != needed.size();) {
    before = needed.size();
    for (const auto& [t, for_end] : std::set<std::pair<int32_t, bool>>(needed)) {
      const lower::Task& task = program.tasks[size_t(t)];
      for (int32_t d = task.deps_begin; d < task.deps_begin + task.deps_count; ++d) {
        const lower::Dep& dep = program.deps[size_t(d)];
        if (dep.kind == DepKind::end_bound && !for_end) continue;
        const bool on_start = dep.kind == DepKind::start;
        if ((on_start ? start(dep.task) : end(dep.task)) > now)
          needed.insert({dep.task, !on_start});
      }
      for (int32_t p = 0; p < t; ++p) {
        if (program.tasks[size_t(p)].queue == task.queue && end(p) > now) needed.insert({p, true});
      }
    }
  }
  bool communicates = false;
  for (const auto& [t, for_end] : needed) {
    if (!for_end || start(t) > now || end(t) <= now) continue;
    if (program.tasks[size_t(t)].kind == TaskKind::launch) return Activity::host;
    if (program.tasks[size_t(t)].kind == TaskKind::call) communicates = true;
  }
  return communicates ? Activity::communication : Activity::latency;
}

SmallRun random_run(uint32_t seed, int64_t ranks) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return int(random() % uint32_t(n)); };
  SmallRun small;
  const int tasks = 4 + below(14);
  for (int32_t t = 0; t < tasks; ++t) {
    std::vector<lower::Dep> deps;
    for (int d = below(3); d > 0 && t > 0; --d) {
      const DepKind kind = DepKind(below(3));
      deps.push_back({below(t), kind, below(3) == 0 ? below(4) : 0});
    }
    constexpr QueueKind kEngines[] = {QueueKind::tensor, QueueKind::vector, QueueKind::dma};
    switch (below(5)) {
      case 0:
        small.task(QueueKind::host, TaskKind::launch, below(6), -1, deps);
        break;
      case 1:
        small.all_reduce(below(12), deps);
        break;
      default:
        small.compute(kEngines[below(3)], below(9), deps);
    }
  }
  small.delays.assign(size_t(ranks), std::vector<int64_t>(size_t(tasks), 0));
  for (auto& of_rank : small.delays) {
    for (int64_t& delay : of_rank) delay = below(4) == 0 ? below(5) : 0;
  }
  return small;
}

TEST(Sweep, EqualsTheDefinitionAtEveryPicosecondOfRandomTimelines) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const int64_t ranks = 1 + seed % 3;
    const auto timeline = random_run(seed, ranks).run(ranks);
    const Sweep sweep(timeline);
    std::map<Activity, int64_t> sums;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t now = 0;
      for (const Segment& segment : sweep.segments(rank)) {
        ASSERT_EQ(segment.begin_ps, now) << "segments tile the step, seed " << seed;
        for (; now < segment.end_ps; ++now) {
          ASSERT_EQ(int(activity_at(timeline, rank, now)), int(segment.activity))
              << "seed " << seed << " rank " << rank << " at " << now;
        }
        sums[segment.activity] += segment.end_ps - segment.begin_ps;
      }
      ASSERT_EQ(now, timeline.makespan_ps) << "seed " << seed;
    }
    const Shares shares = share_step(timeline, sweep);
    const Breakdown& b = shares.breakdown;
    EXPECT_EQ(b.compute_ps + b.exposed_communication_ps + b.bubble_ps + b.host_ps + b.stall_ps,
              timeline.makespan_ps);
    EXPECT_EQ(b.host_ps, sums[Activity::host] / ranks);
    EXPECT_EQ(b.exposed_communication_ps, sums[Activity::communication] / ranks);
    EXPECT_EQ(b.bubble_ps, sums[Activity::bubble] / ranks);
    int64_t by_group = 0;
    for (const auto& [name, time] : shares.exposed_by_group_ps) by_group += time;
    EXPECT_EQ(by_group, b.exposed_communication_ps);
  }
}

TEST(Attribution, EveryPicosecondOfARankHasOneOwner) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto timeline = random_run(seed, 2).run(2);
    const Sweep sweep(timeline);
    for (int64_t rank = 0; rank < 2; ++rank) {
      const Attribution a = attribute(sweep, rank);
      int64_t sum = a.host_ps + a.idle_ps;
      for (const int64_t time : a.op_ps) sum += time;
      for (const int64_t time : a.call_ps) sum += time;
      EXPECT_EQ(sum, timeline.makespan_ps) << "seed " << seed;
    }
  }
}

TEST(Shares, NumbersOfRepeatedLayersBecomeStars) {
  EXPECT_EQ(star_numbers("model.layers.12.attn.0"), "model.layers.*.attn.*");
  EXPECT_EQ(star_numbers("conv2d.layer1"), "conv2d.layer1");
  EXPECT_EQ(star_numbers(""), "");
  EXPECT_EQ(star_numbers("3"), "*");
}

}  // namespace
}  // namespace trnsim::project
