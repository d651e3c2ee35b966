// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Interference: by hand, against runs without it, and bulk against reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "scenes.h"
#include "simulate/shard.h"
#include "simulate/timeline/bulk.h"

namespace trnsim::simulate {
namespace {

using lower::QueueKind;
using scenes::after;
using scenes::ProgramBuilder;

constexpr int64_t kGBps = 1'000'000'000 * int64_t(1024);  // a byte takes 1,000 ps
constexpr int32_t kOdd = 40000;                           // of 65,536

SimulateOptions by(Engine engine, Backend backend = Backend::cpp) {
  SimulateOptions options;
  options.engine = engine;
  options.backend = backend;
  return options;
}

Timeline bulk(const std::shared_ptr<const fold::System>& system, Backend backend = Backend::cpp) {
  return simulate_step(system, by(Engine::bulk, backend));
}

Timeline reference(const std::shared_ptr<const fold::System>& system) {
  return simulate_step(system, by(Engine::reference));
}

void expect_same(const Timeline& got, const Timeline& expected) {
  ASSERT_EQ(got.ends_ps, expected.ends_ps);
  ASSERT_EQ(got.starts_ps, expected.starts_ps);
  ASSERT_EQ(got.first_task, expected.first_task);
  ASSERT_EQ(got.hash, expected.hash);
  ASSERT_EQ(got.makespan_ps, expected.makespan_ps);
  ASSERT_EQ(got.calls.size(), expected.calls.size());
  for (size_t i = 0; i < got.calls.size(); ++i) {
    ASSERT_EQ(got.calls[i].end_ps, expected.calls[i].end_ps);
    ASSERT_EQ(got.calls[i].first_arrival_ps, expected.calls[i].first_arrival_ps);
    ASSERT_EQ(got.calls[i].entry_ps, expected.calls[i].entry_ps);
    ASSERT_EQ(got.calls[i].phase_end_ps, expected.calls[i].phase_end_ps);
  }
}

// Ranks that play one Program, each two on a chip. Group 0 joins all; every call is one phase on a
// link of 1 GB/s of its own.
struct Scene {
  ProgramBuilder builder;
  int32_t tensor = builder.queue(QueueKind::tensor, 0);
  int32_t host = builder.queue(QueueKind::host, 0);
  int32_t vector = builder.queue(QueueKind::vector, 0);
  int32_t streams[2] = {builder.queue(QueueKind::collective, 0),
                        builder.queue(QueueKind::collective, 1)};
  std::vector<std::pair<int64_t, int64_t>> calls;  // latency, bytes

  Scene() {
    builder.group("a");
    builder.group("b");
  }
  int32_t call(int32_t group, int64_t latency_ps, int64_t bytes,
               const std::vector<lower::Dep>& deps = {}) {
    calls.push_back({latency_ps, bytes});
    return builder.call(streams[group], builder.call_template(scenes::all_reduce(group, bytes)),
                        deps);
  }
  // The end of each task of rank 0, the same by every engine.
  std::vector<int64_t> ends(int32_t tensor_speed, int32_t ranks = 2, int32_t ranks_per_chip = 1) {
    auto system = std::make_shared<fold::System>();
    system->roles = {builder.build()};
    system->speeds[0] = tensor_speed;
    std::vector<int32_t> members;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      scenes::add_rank(*system, 0);
      system->ranks.back().chip = rank / ranks_per_chip;
      members.push_back(rank);
    }
    for (int32_t group = 0; group < 2; ++group) scenes::add_group(*system, group, members, "all");
    for (int32_t call = 0; call < int32_t(calls.size()); ++call) {
      const auto [latency_ps, bytes] = calls[size_t(call)];
      system->links.push_back({"link", kGBps});
      scenes::add_variable(*system, builder.program.calls[size_t(call)].group, call, latency_ps,
                           bytes, {{call, fold::kWeightOne}});
    }
    fold::mark_private(*system);
    const Timeline timeline = reference(system);
    expect_same(bulk(system), timeline);
    return {timeline.ends_ps.begin(), timeline.ends_ps.begin() + timeline.first_task[1]};
  }
};

TEST(Interference, ATaskThatMeetsATransferByHand) {
  // Slowed from 1,000 to 5,000, while the call moves 4 bytes; not in its latency.
  Scene scene;
  const int32_t task = scene.builder.task(scene.tensor, 10000);
  const int32_t call = scene.call(0, 1000, 4);
  EXPECT_EQ(scene.ends(1 << 15)[size_t(task)], 12000);
  EXPECT_EQ(scene.ends(1 << 15)[size_t(call)], 5000);
  // floor(4000 * 40000 / 65536) = 2441 of the 9000 that were left.
  EXPECT_EQ(scene.ends(kOdd)[size_t(task)], 5000 + 9000 - 2441);
  EXPECT_EQ(scene.ends(1 << 16)[size_t(task)], 10000);
  EXPECT_EQ(scene.ends(1)[size_t(task)], 14000);  // 4000 / 65536 of a picosecond's work
}

TEST(Interference, ATaskThatStartsWhileSlowedByHand) {
  Scene scene;
  scene.call(0, 0, 8);
  const int32_t before = scene.builder.task(scene.tensor, 1000);
  const int32_t within = scene.builder.task(scene.tensor, 1000);
  const int32_t beyond = scene.builder.task(scene.tensor, 9000);
  // ceil(1000 * 65536 / 40000) = 1639 each; then floor(4722 * 40000 / 65536) = 2882 until 8000.
  const std::vector<int64_t> ends = scene.ends(kOdd);
  EXPECT_EQ(ends[size_t(before)], 1639);
  EXPECT_EQ(ends[size_t(within)], 2 * 1639);
  EXPECT_EQ(ends[size_t(beyond)], 8000 + 9000 - 2882);
}

TEST(Interference, HostsAndOtherEnginesKeepTheirSpeed) {
  Scene scene;
  scene.call(0, 0, 8);
  const int32_t launch = scene.builder.task(scene.host, 3000);
  const int32_t vector = scene.builder.task(scene.vector, 5000);
  const int32_t tensor = scene.builder.task(scene.tensor, 1000);
  const std::vector<int64_t> ends = scene.ends(1 << 15);
  EXPECT_EQ(ends[size_t(launch)], 3000);
  EXPECT_EQ(ends[size_t(vector)], 5000);
  EXPECT_EQ(ends[size_t(tensor)], 2000);
}

TEST(Interference, SeveralTransfersDoNotCompound) {
  Scene scene;
  const int32_t task = scene.builder.task(scene.tensor, 10000);
  scene.call(0, 1000, 4);
  scene.call(1, 2000, 6);  // 2000 to 8000: slowed from 1000 to 8000 in all
  EXPECT_EQ(scene.ends(1 << 15)[size_t(task)], 10000 + 3500);
}

TEST(Interference, OneTransferThatEndsAsAnotherBeginsIsNoChange) {
  // In halves, 2 * floor(5000 * 40000 / 65536) = 6102; in one piece 6103.
  for (const int32_t second : {0, 1}) {
    Scene scene;
    const int32_t task = scene.builder.task(scene.tensor, 20000);
    const int32_t call = scene.call(1 - second, 0, 5);
    scene.call(second, 0, 5, {after(call)});
    EXPECT_EQ(scene.ends(kOdd)[size_t(task)], 10000 + 20000 - 6103) << second;
  }
  Scene scene;
  const int32_t task = scene.builder.task(scene.tensor, 20000);
  scene.call(0, 0, 5);
  scene.call(0, 1, 5);  // a picosecond between
  EXPECT_EQ(scene.ends(kOdd)[size_t(task)], 10001 + 20000 - 6102 - 1);
}

TEST(Interference, ATaskThatIsDoneWaitsForItsBoundsAtAnySpeed) {
  Scene scene;
  const int32_t call = scene.call(0, 3000, 4);
  const int32_t task =
      scene.builder.task(scene.tensor, 2000, {{call, lower::DepKind::end_bound, 50}});
  const int32_t next = scene.builder.task(scene.tensor, 10);
  const std::vector<int64_t> ends = scene.ends(1 << 15);
  EXPECT_EQ(ends[size_t(task)], 7050);
  EXPECT_EQ(ends[size_t(next)], 7060);
}

TEST(Interference, AMemberSlowsEveryRankOfItsChip) {
  // Rank 0 alone calls with rank 2; rank 1 is on the chip of rank 0, rank 3 on that of rank 2 or,
  // with a chip each, nobody's.
  for (const int32_t ranks_per_chip : {1, 2}) {
    std::vector<std::shared_ptr<const lower::Program>> roles;
    for (const bool calls : {true, false}) {
      ProgramBuilder builder;
      builder.queue(QueueKind::tensor, 0);
      const int32_t stream = builder.queue(QueueKind::collective, 0);
      builder.group("a");
      builder.task(0, 6000);
      if (calls) builder.call(stream, builder.call_template(scenes::all_reduce(0, 4)));
      roles.push_back(builder.build());
    }
    auto system = std::make_shared<fold::System>();
    system->roles = roles;
    system->speeds[0] = 1 << 15;
    for (int32_t rank = 0; rank < 4; ++rank) {
      scenes::add_rank(*system, rank % 2);
      system->ranks.back().chip = rank / ranks_per_chip;
    }
    system->links = {{"link", kGBps}};
    scenes::add_variable(*system, scenes::add_group(*system, 0, {0, 2}, "a"), 0, 0, 4,
                         {{0, fold::kWeightOne}});
    const Timeline timeline = reference(system);
    expect_same(bulk(system), timeline);
    for (int32_t rank = 0; rank < 4; ++rank) {
      const bool is_slowed = rank % 2 == 0 || ranks_per_chip == 2;
      EXPECT_EQ(timeline.ends_ps[size_t(timeline.first_task[size_t(rank)])],
                is_slowed ? 8000 : 6000)
          << rank << " of " << ranks_per_chip;
    }
  }
}

// Of the queues of a random System, all are the tensor engine's.
std::shared_ptr<const fold::System> with_speed(const fold::System& system, size_t engine,
                                               int32_t speed) {
  fold::System result = system;
  result.speeds[engine] = speed;
  return std::make_shared<const fold::System>(std::move(result));
}

TEST(Interference, AtFullSpeedNothingChanges) {
  for (uint64_t seed = 0; seed < scenes::seeds(1000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto system = scenes::random_system(seed);
    const Timeline expected = bulk(system);
    // Of an engine that nobody uses, by the lanes of interference.
    const auto other = with_speed(*system, 3, 1);
    expect_same(bulk(other), expected);
    expect_same(reference(other), expected);
    if (HasFailure()) return;
  }
}

TEST(Interference, BulkEqualsTheReferenceOnRandomSystems) {
  int64_t slower = 0;
  for (uint64_t seed = 0; seed < scenes::seeds(4000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto base = scenes::random_system(seed);
    if (seed % 3 == 1) base = scenes::throttled(*base, seed);
    const auto system = scenes::with_interference(*base, seed);
    const Timeline expected = reference(system);
    expect_same(bulk(system), expected);
    SimulateOptions options = by(Engine::bulk);
    options.keep_times = false;
    const Timeline brief = simulate_step(system, options);
    ASSERT_EQ(brief.hash, expected.hash);
    ASSERT_EQ(brief.makespan_ps, expected.makespan_ps);
    ASSERT_TRUE(brief.ends_ps.empty());
    if (HasFailure()) return;
    slower += expected.makespan_ps > bulk(base).makespan_ps;
  }
  EXPECT_GT(slower, int64_t(scenes::seeds(4000)) / 4);
}

TEST(Interference, LinksThatChangeInMidRunEqualTheReference) {
  int64_t ended = 0;
  for (uint64_t seed = 0; seed < scenes::seeds(1000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto changing = scenes::with_random_changes(*scenes::random_system(seed), seed);
    const auto system = scenes::with_interference(*changing, seed);
    std::string texts[2];
    Timeline timelines[2];
    for (const bool is_bulk : {false, true}) {
      try {
        timelines[is_bulk] = is_bulk ? bulk(system) : reference(system);
      } catch (const Error& error) {
        texts[is_bulk] = error.what();
      }
    }
    ASSERT_EQ(texts[0], texts[1]);
    expect_same(timelines[1], timelines[0]);
    ended += texts[0].empty();
    if (HasFailure()) return;
  }
  EXPECT_GT(ended, int64_t(scenes::seeds(1000)) / 2);
}

TEST(Interference, ThreadsChangeNoDigit) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto system = scenes::with_interference(*scenes::many_ranks(seed, 1200), seed);
    const Timeline expected = bulk(system);
    expect_same(bulk(system, Backend::omp), expected);
    if (has_tbb()) expect_same(bulk(system, Backend::tbb), expected);
    const auto few = scenes::with_interference(*scenes::many_ranks(seed, 200), seed);
    expect_same(bulk(few), reference(few));
  }
}

TEST(Interference, CudaChangesNoDigit) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "this machine has no GPU";
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto system = scenes::with_interference(*scenes::random_system(seed), seed);
    expect_same(bulk(system, Backend::cuda), reference(system));
  }
  const auto system = scenes::with_interference(*scenes::many_ranks(1, 1200), 1);
  expect_same(bulk(system, Backend::cuda), bulk(system));
}

TEST(Interference, RanksAndLinksInAnotherOrderChangeNoDigit) {
  std::mt19937_64 random(1);
  for (uint64_t seed = 0; seed < scenes::seeds(1000); ++seed) {
    const auto system = scenes::with_interference(*scenes::random_system(seed), seed);
    std::vector<int32_t> order(system->ranks.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
    std::shuffle(order.begin(), order.end(), random);
    const auto other = scenes::relabelled(*system, order);
    ASSERT_EQ(bulk(other).hash, bulk(system).hash) << "seed " << seed;
    ASSERT_EQ(reference(other).hash, bulk(system).hash) << "seed " << seed;
  }
}

TEST(Interference, AChainNeverEndsEarlierAtALowerSpeed) {
  std::mt19937_64 random(7);
  for (int32_t round = 0; round < 50; ++round) {
    Scene scene;
    for (int32_t i = 0; i < 20; ++i) {
      const auto duration_ps = int64_t(random() % 5000);
      scene.builder.task(scene.tensor, duration_ps,
                         i > 0 ? std::vector{after(i - 1)} : std::vector<lower::Dep>{});
    }
    for (int32_t i = 0; i < 5; ++i) {
      scene.call(int32_t(random() % 2), int64_t(random() % 3000), int64_t(random() % 9));
    }
    std::vector<int64_t> before = scene.ends(1 << 16);
    for (const int32_t speed : {60000, kOdd, 1 << 15, 9999, 1}) {
      const std::vector<int64_t> slower = scene.ends(speed);
      for (size_t task = 0; task < slower.size(); ++task) ASSERT_GE(slower[task], before[task]);
      before = slower;
    }
  }
}

TEST(Interference, ADeadlockReadsTheSameFromBothEngines) {
  int found = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto system = scenes::with_interference(*scenes::deadlocked(seed), seed);
    std::string texts[2];
    for (const bool is_bulk : {false, true}) {
      try {
        is_bulk ? bulk(system) : reference(system);
      } catch (const Error& error) {
        texts[is_bulk] = error.what();
      }
    }
    ASSERT_EQ(texts[0], texts[1]) << "seed " << seed;
    found += !texts[0].empty();
  }
  EXPECT_GT(found, 30);
}

TEST(Interference, AnIdleEngineMakesNoTaskTooLong) {
  const auto system = scenes::random_system(3);
  EXPECT_EQ(bulk(with_speed(*system, 3, 1)).makespan_ps, bulk(system).makespan_ps);
  auto role = std::make_shared<lower::Program>(*system->roles[0]);
  role->tasks[0].duration_ps = int64_t(1) << 46;  // 70 s: 53 days at the least speed
  fold::System longer = *system;
  longer.roles[0] = role;
  EXPECT_NO_THROW(fold::check_system(*with_speed(longer, 3, 1)));
  const auto kind = role->queues[size_t(role->tasks[0].queue)].kind;
  const auto engine = int(kind) - int(lower::QueueKind::tensor);
  ASSERT_TRUE(engine >= 0 && engine < 5);
  EXPECT_THROW(fold::check_system(*with_speed(longer, engine, 1)), Error);
}

class Nobody final : public Exchange {
  std::vector<int64_t> all_gather(const std::vector<int64_t>& mine) override { return mine; }
};

template <typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Interference, SpeedsOutOfRangeAndSeveralProcessesAreRefused) {
  const auto base = scenes::random_system(1);
  for (const int32_t speed : {0, -1, 65537}) {
    EXPECT_EQ(message_of([&] { bulk(with_speed(*base, 2, speed)); }),
              "malformed System: the speed of an engine");
  }
  Nobody exchange;
  SimulateOptions options = by(Engine::bulk);
  options.exchange = &exchange;
  options.end_rank = 1;
  EXPECT_EQ(message_of([&] { simulate_step(with_speed(*base, 2, 5), options); }),
            "a run on several processes knows no chip.interference: "
            "run it in one process, or leave the figure out");
}

}  // namespace
}  // namespace trnsim::simulate
