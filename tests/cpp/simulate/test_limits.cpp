// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The largest and the smallest: right, or refused in one line; never wrapped.
#include <gtest/gtest.h>

#include "base/error.h"
#include "scenes.h"

namespace trnsim::simulate {
namespace {

constexpr int64_t kSecond = 1'000'000'000'000;
constexpr int64_t kGBps = 1024ll * 1'000'000'000;  // in 1/1024 B/s

SimulateOptions with(Engine engine, bool use_private) {
  SimulateOptions options;
  options.engine = engine;
  options.use_private = use_private;
  options.certify = true;
  return options;
}

// Every way to run it gives this makespan.
void expect_makespan(const std::shared_ptr<const fold::System>& system, int64_t expected_ps) {
  for (const Engine engine : {Engine::reference, Engine::bulk}) {
    for (const bool use_private : {false, true}) {
      EXPECT_EQ(simulate_step(system, with(engine, use_private)).makespan_ps, expected_ps);
    }
  }
}

// Every way to run it is refused, with these words.
void expect_refused(const std::shared_ptr<const fold::System>& system, const std::string& words) {
  for (const Engine engine : {Engine::reference, Engine::bulk}) {
    for (const bool use_private : {false, true}) {
      try {
        const Timeline timeline = simulate_step(system, with(engine, use_private));
        ADD_FAILURE() << "gave " << timeline.makespan_ps << " ps, not: " << words;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      }
    }
  }
}

std::shared_ptr<fold::System> tasks_of(const std::vector<int64_t>& durations_ps, int32_t factor) {
  scenes::ProgramBuilder builder;
  const int32_t queue = builder.queue(lower::QueueKind::tensor, 0);
  for (const int64_t duration_ps : durations_ps) builder.task(queue, duration_ps);
  auto system = std::make_shared<fold::System>();
  system->roles.push_back(builder.build());
  scenes::add_rank(*system, 0);
  system->ranks[0].factor = factor;
  return system;
}

// `calls` all-reduces of `bytes` over a link of `rate`, one after the other.
std::shared_ptr<fold::System> calls_of(int calls, int64_t bytes, int64_t rate, int64_t latency_ps) {
  scenes::ProgramBuilder builder;
  const int32_t group = builder.group("world");
  const int32_t stream = builder.queue(lower::QueueKind::collective, 0);
  const int32_t call = builder.call_template(scenes::all_reduce(group, bytes));
  for (int i = 0; i < calls; ++i) builder.call(stream, call);
  auto system = std::make_shared<fold::System>();
  system->roles.push_back(builder.build());
  for (int rank = 0; rank < 2; ++rank) scenes::add_rank(*system, 0);
  system->links.push_back({"link", rate});
  const int32_t on = scenes::add_group(*system, group, {0, 1}, "world");
  scenes::add_variable(*system, on, call, latency_ps, bytes, {{0, fold::kWeightOne}});
  fold::mark_private(*system);
  return system;
}

TEST(Limits, TasksOfAMillionSeconds) {
  expect_makespan(tasks_of({1'000'000 * kSecond}, 1 << 16), 1'000'000 * kSecond);
  expect_makespan(tasks_of({1'000'000 * kSecond, 1'000'000 * kSecond}, 1 << 16),
                  2'000'000 * kSecond);
  expect_refused(tasks_of(std::vector<int64_t>(10, 1'000'000 * kSecond), 1 << 16),
                 "takes more than 26 days");
}

TEST(Limits, FactorsUpTo32768) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();  // 2^15 less 2^-16
  expect_makespan(tasks_of({kSecond}, kMost), 32768 * kSecond - 15258789);
  expect_refused(tasks_of({1'000'000 * kSecond}, kMost), "takes more than 26 days");
}

TEST(Limits, MessagesOfOneByteAndOfTerabytes) {
  expect_makespan(calls_of(1, 1, kGBps, 0), 1000);
  expect_makespan(calls_of(1, 1, 3 * kGBps, 0), 334);  // rounded up
  const int64_t terabyte = 1'000'000'000'000;
  expect_makespan(calls_of(1, 1000 * terabyte, kGBps, 0), 1'000'000 * kSecond);
  expect_makespan(calls_of(2, 1000 * terabyte, kGBps, 7), 2'000'000 * kSecond + 14);
}

TEST(Limits, BytesBeyond31And32Bits) {
  for (const int64_t bytes : {(int64_t(1) << 31) - 1, int64_t(1) << 31, (int64_t(1) << 32) + 1}) {
    expect_makespan(calls_of(1, bytes, kGBps, 0), bytes * 1000);
  }
}

TEST(Limits, TransfersThatNeverEndInTimeAreRefused) {
  expect_refused(calls_of(1, std::numeric_limits<int64_t>::max(), 1, 0), "more than 26 days");
  expect_refused(calls_of(3, 1'000'000'000'000'000, kGBps, 0), "more than 26 days");
  expect_refused(calls_of(1, 1, kGBps, std::numeric_limits<int64_t>::max()), "more than 26 days");
}

TEST(Limits, AStartAfterTheEndOfTimeIsRefused) {
  auto system = tasks_of({kSecond}, 1 << 16);
  system->ranks[0].start_ps = std::numeric_limits<int64_t>::max();
  expect_refused(system, "takes more than 26 days");
}

TEST(Limits, GroupsOfOneAndCallsOfNothingTakeNoTime) {
  scenes::ProgramBuilder builder;
  const int32_t group = builder.group("alone");
  const int32_t stream = builder.queue(lower::QueueKind::collective, 0);
  builder.call(stream, builder.call_template(scenes::all_reduce(group, 1000)));
  auto system = std::make_shared<fold::System>();
  system->roles.push_back(builder.build());
  scenes::add_rank(*system, 0);
  scenes::add_group(*system, group, {0}, "alone");
  expect_makespan(system, 0);
  expect_makespan(calls_of(5, 0, kGBps, 3), 15);  // latency alone
}

}  // namespace
}  // namespace trnsim::simulate
