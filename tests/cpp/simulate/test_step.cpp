// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "base/error.h"
#include "scenes.h"

namespace trnsim::simulate {
namespace {

using lower::DepKind;
using lower::QueueKind;
using scenes::after;
using scenes::ProgramBuilder;

SimulateOptions reference_options() {
  SimulateOptions options;
  options.engine = Engine::reference;
  options.certify = true;
  return options;
}

using Times = std::vector<int64_t>;
constexpr int64_t kGBps = 1'000'000'000 * int64_t(1024);  // in rate units: 1 byte = 1000 ps

// One rank that plays the builder's Program.
Timeline run_alone(const ProgramBuilder& builder, int32_t factor = 1 << 16, int64_t start_ps = 0) {
  auto system = std::make_shared<fold::System>();
  system->roles = {builder.build()};
  scenes::add_rank(*system, 0);
  system->ranks[0].factor = factor;
  system->ranks[0].start_ps = start_ps;
  return simulate_step(system, reference_options());
}

TEST(Lane, AQueueRunsItsTasksInOrder) {
  ProgramBuilder builder;
  const int32_t tensor = builder.queue(QueueKind::tensor, 0);
  builder.task(tensor, 10);
  builder.task(tensor, 0);
  builder.task(tensor, 5);
  const Timeline timeline = run_alone(builder);
  EXPECT_EQ(timeline.starts_ps, Times({0, 10, 10}));
  EXPECT_EQ(timeline.ends_ps, Times({10, 10, 15}));
  EXPECT_EQ(timeline.makespan_ps, 15);
}

TEST(Lane, AChipsFactorIsReadAtATasksStart) {
  ProgramBuilder builder;
  const int32_t tensor = builder.queue(QueueKind::tensor, 0);
  for (int i = 0; i < 4; ++i) builder.task(tensor, 10);
  auto system = std::make_shared<fold::System>();
  system->roles = {builder.build()};
  scenes::add_rank(*system, 0);
  // Begins in the middle of the first task, and again exactly where the third starts.
  const auto changed = fold::with_factor_changes(*system, 0, {{5, 2 << 16}, {30, 1 << 15}});
  EXPECT_EQ(simulate_step(changed, reference_options()).ends_ps, Times({10, 30, 35, 40}));
  EXPECT_THROW(fold::with_factor_changes(*system, 0, {{5, 1}, {5, 2}}), Error);
  EXPECT_THROW(fold::with_factor_changes(*system, 0, {{5, -1}}), Error);
  EXPECT_THROW(fold::with_factor_changes(*system, 1, {}), Error);
}

TEST(Lane, ADependenceJoinsTwoQueues) {
  ProgramBuilder builder;
  const int32_t tensor = builder.queue(QueueKind::tensor, 0);
  const int32_t vector = builder.queue(QueueKind::vector, 0);
  const int32_t matmul = builder.task(tensor, 10);
  builder.task(vector, 3);
  builder.task(vector, 5, {after(matmul)});
  EXPECT_EQ(run_alone(builder).starts_ps, Times({0, 0, 10}));
}

TEST(Lane, AStartDependenceWaitsForStartPlusLag) {
  ProgramBuilder builder;
  const int32_t dma = builder.queue(QueueKind::dma, 0);
  const int32_t tensor = builder.queue(QueueKind::tensor, 0);
  const int32_t load = builder.task(dma, 100);
  builder.task(tensor, 5, {{load, DepKind::start, 7}});
  EXPECT_EQ(run_alone(builder).starts_ps, Times({0, 7}));
}

TEST(Lane, AnEndBoundHoldsTheEngineUntilItIsMet) {
  // The tensor task is done at 5 but ends with the load plus 3, and the next waits for that.
  ProgramBuilder builder;
  const int32_t dma = builder.queue(QueueKind::dma, 0);
  const int32_t tensor = builder.queue(QueueKind::tensor, 0);
  const int32_t load = builder.task(dma, 100);
  builder.task(tensor, 5, {{load, DepKind::end_bound, 3}});
  builder.task(tensor, 1);
  EXPECT_EQ(run_alone(builder).ends_ps, Times({100, 103, 104}));
}

TEST(Lane, AFactorScalesComputeAndNeitherLagsNorLoads) {
  ProgramBuilder builder;
  const int32_t dma = builder.queue(QueueKind::dma, 0);
  const int32_t tensor = builder.queue(QueueKind::tensor, 0);
  const int32_t load = builder.task(dma, 100);
  builder.program.tasks[size_t(load)].kind = lower::TaskKind::load;
  builder.task(tensor, 101, {{load, DepKind::end, 10}});
  // 101 * 1.5 = 151.5, rounded half up.
  EXPECT_EQ(run_alone(builder, 3 << 15).ends_ps, Times({100, 110 + 152}));
}

TEST(Lane, StartsAtItsRanksOffset) {
  ProgramBuilder builder;
  builder.task(builder.queue(QueueKind::host, 0), 10);
  EXPECT_EQ(run_alone(builder, 1 << 16, 42).starts_ps, Times({42}));
}

// Two ranks of one role: work, all_reduce, work. Rank 1 starts late.
struct Pair {
  ProgramBuilder builder;
  int32_t reduce, tensor, stream, call;

  explicit Pair(int64_t bytes) {
    tensor = builder.queue(QueueKind::tensor, 0);
    stream = builder.queue(QueueKind::collective, 0);
    builder.group("dp");
    reduce = builder.call_template(scenes::all_reduce(0, bytes));
    const int32_t work = builder.task(tensor, 100);
    call = builder.call(stream, reduce, {after(work)});
    builder.task(tensor, 50, {after(call)});
  }
  std::shared_ptr<fold::System> place(int64_t late_ps) const {
    auto system = std::make_shared<fold::System>();
    system->roles = {builder.build()};
    scenes::add_rank(*system, 0);
    scenes::add_rank(*system, 0);
    system->ranks[1].start_ps = late_ps;
    system->links.push_back({"up", kGBps});
    scenes::add_group(*system, 0, {0, 1}, "dp");
    return system;
  }
};

TEST(Call, StartsWhenTheLastMemberArrivesAndEndsForAll) {
  const Pair pair(8);
  auto system = pair.place(30);
  // 8 bytes at 1 GB/s = 8000 ps after a latency of 11: 130 + 11 + 8000.
  scenes::add_variable(*system, 0, pair.reduce, 11, 8, {{0, fold::kWeightOne}});
  const Timeline timeline = simulate_step(system, reference_options());
  EXPECT_EQ(timeline.ends_ps, Times({100, 8141, 8191, 130, 8141, 8191}));
  EXPECT_EQ(timeline.starts_ps, Times({0, 100, 8141, 30, 130, 8141}));
  ASSERT_EQ(timeline.calls.size(), 1u);
  const CallSpan& span = timeline.calls[0];
  EXPECT_EQ(span.first_arrival_ps, 100);
  EXPECT_EQ(span.start_ps, 130);
  EXPECT_EQ(span.end_ps, 8141);
  EXPECT_EQ(span.entry_ps, Times({141}));
  EXPECT_EQ(span.phase_end_ps, Times({8141}));
}

TEST(Call, ZeroBytesEndAfterTheLatenciesOfAllPhases) {
  const Pair pair(0);
  auto system = pair.place(0);
  scenes::add_variable(*system, 0, pair.reduce, 11, 0, {});
  scenes::add_variable(*system, 0, pair.reduce, 5, 0, {});
  const Timeline timeline = simulate_step(system, reference_options());
  EXPECT_EQ(timeline.ends_ps[1], 116);
  EXPECT_EQ(timeline.solve_count, 0);
}

TEST(Call, AGroupOfOneTakesNoTime) {
  const Pair pair(1 << 20);
  auto system = std::make_shared<fold::System>();
  system->roles = {pair.builder.build()};
  scenes::add_rank(*system, 0);
  scenes::add_group(*system, 0, {0}, "dp");
  EXPECT_EQ(simulate_step(system, reference_options()).ends_ps, Times({100, 100, 150}));
}

TEST(Call, TwoCommunicatorsOnOneLinkShareIt) {
  const Pair pair(8);
  auto system = pair.place(0);
  scenes::add_rank(*system, 0);
  scenes::add_rank(*system, 0);
  scenes::add_group(*system, 0, {2, 3}, "dp");
  system->ranks[3].start_ps = 4000;
  for (const int32_t communicator : {0, 1}) {
    scenes::add_variable(*system, communicator, pair.reduce, 0, 8, {{0, fold::kWeightOne}});
  }
  // The first moves 4 bytes alone until 4100, then 4 at half the rate: 8000 ps more. The second has
  // 4 bytes left then and takes the whole link: 4000 ps.
  const Timeline timeline = simulate_step(system, reference_options());
  EXPECT_EQ(timeline.calls[0].end_ps, 12100);
  EXPECT_EQ(timeline.calls[1].end_ps, 16100);
  EXPECT_EQ(timeline.solve_count, 4);
}

TEST(Call, APhaseStartsWhenTheOneBeforeEnds) {
  const Pair pair(8);
  auto system = pair.place(0);
  scenes::add_variable(*system, 0, pair.reduce, 10, 8, {{0, fold::kWeightOne}});
  scenes::add_variable(*system, 0, pair.reduce, 20, 3, {{0, fold::kWeightOne}});
  EXPECT_EQ(simulate_step(system, reference_options()).calls[0].end_ps,
            100 + 10 + 8000 + 20 + 3000);
}

TEST(Call, AFlowOnADeadLinkIsNamed) {
  const Pair pair(8);
  auto system = pair.place(0);
  system->links[0].rate = 0;
  scenes::add_variable(*system, 0, pair.reduce, 0, 8, {{0, fold::kWeightOne}});
  fold::mark_private(*system);
  try {
    simulate_step(system, reference_options());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "a transfer of all_reduce (8 bytes) of dp is stalled on link up from 0 us on: "
                 "let the link live, or leave out @TIME, so that routes go around it");
  }
}

std::string error_of(const std::shared_ptr<fold::System>& system) {
  try {
    simulate_step(system, reference_options());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::simulate);
    return error.what();
  }
  return "";
}

TEST(Call, UnequalBytesAreAMismatch) {
  auto system = Pair(100).place(0);
  system->roles.push_back(Pair(99).builder.build());
  system->ranks[1].role = 1;
  EXPECT_EQ(error_of(system),
            "call 0 on dp does not match: rank 0 makes all_reduce of 100 bytes, rank 1 makes "
            "all_reduce of 99 bytes: make the same calls in the same order on every member");
}

TEST(Call, AMemberThatNeverCallsIsNamed) {
  auto system = Pair(100).place(0);
  ProgramBuilder silent;
  silent.queue(QueueKind::tensor, 0);
  silent.group("dp");
  system->roles.push_back(silent.build());
  system->ranks[1].role = 1;
  EXPECT_EQ(
      error_of(system),
      "deadlock: rank 0 tensor 0 task 2 waits for rank 0 collective 0 task 1 (all_reduce 0 on "
      "dp), which waits for rank 1, which never calls it: make the same calls in the same "
      "order on every member");
}

TEST(Call, OppositeOrderOnOneStreamIsACycle) {
  auto system = std::make_shared<fold::System>();
  for (const bool swapped : {false, true}) {
    ProgramBuilder builder;
    const int32_t stream = builder.queue(QueueKind::collective, 0);
    builder.group("tp");
    builder.group("dp");
    for (const int32_t slot : {0, 1}) builder.call_template(scenes::all_reduce(slot, 0));
    builder.call(stream, swapped ? 1 : 0);
    builder.call(stream, swapped ? 0 : 1);
    system->roles.push_back(builder.build());
  }
  scenes::add_rank(*system, 0);
  scenes::add_rank(*system, 1);
  scenes::add_group(*system, 0, {0, 1}, "tp");
  scenes::add_group(*system, 1, {0, 1}, "dp");
  EXPECT_EQ(
      error_of(system),
      "deadlock: rank 0 collective 0 task 0 (all_reduce 0 on tp) waits for rank 1 collective "
      "0 task 1 (all_reduce 0 on tp), which stands behind rank 1 collective 0 task 0 "
      "(all_reduce 0 on dp), which waits for rank 0 collective 0 task 1 (all_reduce 0 on dp), "
      "which stands behind rank 0 collective 0 task 0 (all_reduce 0 on tp) (cycle): make the "
      "same calls in the same order on every member");
}

TEST(Call, OppositeOrderOnTwoStreamsRuns) {
  auto system = std::make_shared<fold::System>();
  for (const bool swapped : {false, true}) {
    ProgramBuilder builder;
    for (const int32_t stream : {0, 1}) builder.queue(QueueKind::collective, stream);
    builder.group("tp");
    builder.group("dp");
    for (const int32_t slot : {0, 1}) builder.call_template(scenes::all_reduce(slot, 0));
    builder.call(swapped ? 1 : 0, swapped ? 1 : 0);
    builder.call(swapped ? 0 : 1, swapped ? 0 : 1);
    system->roles.push_back(builder.build());
  }
  scenes::add_rank(*system, 0);
  scenes::add_rank(*system, 1);
  scenes::add_group(*system, 0, {0, 1}, "tp");
  scenes::add_group(*system, 1, {0, 1}, "dp");
  EXPECT_EQ(simulate_step(system, reference_options()).makespan_ps, 0);
}

TEST(Step, PrivateCallsResolvedInTheLaneChangeNothing) {
  for (uint64_t seed = 0; seed < scenes::seeds(2000); ++seed) {
    const auto system = scenes::random_system(seed);
    SimulateOptions options = reference_options();
    const Timeline shortcut = simulate_step(system, options);
    options.use_private = false;
    const Timeline events = simulate_step(system, options);
    ASSERT_EQ(shortcut.ends_ps, events.ends_ps) << "seed " << seed;
    ASSERT_EQ(shortcut.starts_ps, events.starts_ps) << "seed " << seed;
    ASSERT_EQ(shortcut.hash, events.hash);
    for (size_t i = 0; i < events.calls.size(); ++i) {
      ASSERT_EQ(shortcut.calls[i].entry_ps, events.calls[i].entry_ps) << "seed " << seed;
      ASSERT_EQ(shortcut.calls[i].phase_end_ps, events.calls[i].phase_end_ps);
    }
  }
}

TEST(Step, NamesOfRanksAndLinksDoNotMatter) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const auto system = scenes::random_system(seed);
    std::vector<int32_t> order;
    for (size_t i = system->ranks.size(); i-- > 0;) order.push_back(int32_t(i));
    const Timeline named = simulate_step(system, reference_options());
    const Timeline renamed = simulate_step(scenes::relabelled(*system, order), reference_options());
    ASSERT_EQ(named.hash, renamed.hash) << "seed " << seed;
    ASSERT_EQ(named.makespan_ps, renamed.makespan_ps);
  }
}

}  // namespace
}  // namespace trnsim::simulate
