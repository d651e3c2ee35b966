// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Replayed segments: the same hash and makespan as the reference, on tiles of many lanes.
#include <gtest/gtest.h>

#include <cstdlib>

#include "scenes.h"
#include "simulate/timeline/lane_tables.h"
#include "simulate/timeline/mix.h"
#include "simulate/timeline/pieces.h"
#include "simulate/timeline/schedule.h"

namespace trnsim::simulate {
namespace {

SimulateOptions streaming(Backend backend = Backend::cpp) {
  SimulateOptions options;
  options.backend = backend;
  options.keep_times = false;
  return options;
}

void expect_same(const std::shared_ptr<const fold::System>& system, uint64_t seed) {
  SimulateOptions options;
  options.engine = Engine::reference;
  const Timeline expected = simulate_step(system, options);
  for (const Backend backend : {Backend::cpp, Backend::omp}) {
    const Timeline got = simulate_step(system, streaming(backend));
    ASSERT_EQ(got.hash, expected.hash) << "seed " << seed;
    ASSERT_EQ(got.makespan_ps, expected.makespan_ps) << "seed " << seed;
  }
}

TEST(Replay, EqualsTheReferenceOnTilesOfManyLanes) {
  for (uint64_t seed = 0; seed < scenes::seeds(150); ++seed)
    expect_same(scenes::grown(seed, 4, 1), seed);
}

// Durations of 2 ms and lags and starts as long: pieces that fit 32 bits, and some that do not.
TEST(Replay, EqualsTheReferenceAtAndBeyond32Bits) {
  for (uint64_t seed = 0; seed < scenes::seeds(150); ++seed) {
    expect_same(scenes::grown(seed, 3, seed % 2 == 0 ? 70'000 : 2'000'000), seed);
  }
}

TEST(Replay, AnyProcessorGivesTheSame) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto system = scenes::grown(seed, 4, seed % 3 == 0 ? 70'000 : 1);
    const Timeline expected = simulate_step(system, streaming());
    for (const char* processor : {"baseline", "avx2"}) {
      setenv("TRNSIM_CPU", processor, 1);
      const Timeline got = simulate_step(system, streaming());
      unsetenv("TRNSIM_CPU");
      ASSERT_EQ(got.hash, expected.hash) << processor << ", seed " << seed;
      ASSERT_EQ(got.makespan_ps, expected.makespan_ps) << processor << ", seed " << seed;
    }
  }
}

TEST(Replay, ManyRanksOfManyGroups) {
  for (uint64_t seed = 0; seed < 10; ++seed) expect_same(scenes::many_ranks(seed, 300), seed);
}

// Two engines, a barrier in the middle, a task longer than a piece.
TEST(Schedule, ASegmentEndsAtCallsAndIsCutIntoPieces) {
  scenes::ProgramBuilder builder;
  const int32_t tensor = builder.queue(lower::QueueKind::tensor, 0);
  const int32_t vector = builder.queue(lower::QueueKind::vector, 0);
  const int32_t stream = builder.queue(lower::QueueKind::collective, 0);
  builder.group("world");
  builder.call_template(scenes::all_reduce(0, 0));
  const int32_t first = builder.task(tensor, 10);
  builder.task(vector, 20, {scenes::after(first)});
  builder.task(vector, kPieceSpan_ps + 1);
  const int32_t call = builder.call(stream, 0, {scenes::after(first)});
  builder.task(tensor, 30, {scenes::after(call)});
  fold::System system;
  system.roles = {builder.build()};
  const LaneTables tables = make_lane_tables(system, false);
  Schedule schedule(tables, 0, 1 << 16);

  const Segment* before = schedule.segment(schedule.first_state(), {});
  ASSERT_NE(before, nullptr);
  EXPECT_EQ(before->ops.size(), 4u);  // with the start of the call
  ASSERT_EQ(before->arrivals.size(), 1u);
  EXPECT_EQ(before->arrivals[0], std::make_pair(0, call));
  ASSERT_EQ(before->pieces.size(), 3u);
  EXPECT_EQ(before->pieces[0].span_ps, 30);
  EXPECT_GT(before->pieces[1].span_ps, kPieceSpan_ps);
  EXPECT_EQ(schedule.ended(before->next_state), 3);
  EXPECT_EQ(schedule.segment(schedule.first_state(), {}), before);

  const Segment* after = schedule.segment(before->next_state, {0});
  ASSERT_NE(after, nullptr);
  EXPECT_EQ(after->ops.size(), 2u);
  EXPECT_EQ(after->consumed, std::vector<int32_t>({0}));
  EXPECT_EQ(schedule.ended(after->next_state), 5);
}

TEST(Hash, OneWrongEndAlwaysShows) {
  for (int32_t task = 0; task < 200; ++task) {
    const uint64_t seed = hash_seed(1, task);
    for (const int64_t end : {int64_t(0), int64_t(999), int64_t(1) << 40, int64_t(1) << 61}) {
      for (int bit = 0; bit < 61; ++bit) {
        ASSERT_NE(mix_end(seed, end), mix_end(seed, end + (int64_t(1) << bit)));
      }
    }
  }
}

TEST(Hash, TwoErrorsThatCancelInTheSumShow) {
  const uint64_t one = hash_seed(0, 1), other = hash_seed(0, 2);
  for (int64_t d = -1000; d <= 1000; ++d) {
    if (d == 0) continue;
    const int64_t e = 500'000, f = 731'000;
    const auto sum = [](uint64_t a, int64_t at, uint64_t b, int64_t and_at) {
      return mix_end(a, at) + mix_end(b, and_at);
    };
    ASSERT_NE(sum(one, e, one, f), sum(one, e + d, one, f - d));  // two ranks
    ASSERT_NE(sum(one, e, one, e), sum(one, e + d, one, e - d));
    ASSERT_NE(sum(one, e, other, f), sum(one, e + d, other, f - d));  // two tasks
    // Two tasks of two ranks, all sums kept.
    ASSERT_NE(sum(one, e, one, f) + sum(other, e, other, f),
              sum(one, e + d, one, f - d) + sum(other, e - d, other, f + d));
  }
}

TEST(Hash, ManyEndsOfOneTaskFromTheirSums) {
  const uint64_t seed = hash_seed(3, 77);
  uint64_t expected = 0, ends = 0, squares = 0;
  for (int64_t i = 1; i <= 100; ++i) {
    const int64_t end = i * i * 7'919'113'000;
    expected += mix_end(seed, end);
    ends += uint64_t(end);
    squares += uint64_t(end) * uint64_t(end);
  }
  EXPECT_EQ(mix_ends(seed, 100, ends, squares), expected);
}

}  // namespace
}  // namespace trnsim::simulate
