// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Messages that are issued together: when they arrive, and what waits for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "make.h"

namespace trnsim::lower::testing {
namespace {

using workload::CallKind;
const char* kOp = "aten::gelu(self: bfloat16[64,64]) -> (out0: bfloat16[64,64])";

// gelu -> y; then send of y to 1 and receive of z from 2, together or not; then a send of w to 1.
Script make(int32_t batch) {
  Script script;
  const int32_t world = script.group({0, 1, 2, 3});
  script.op(kOp, {"x"}, {"y"});
  const auto message = [&](CallKind kind, int32_t peer, const char* storage, int32_t of_batch) {
    script.call(kind, world, 8192, storage);
    workload::Call& call = script.workload.calls.back();
    call.peer = peer;
    call.batch = of_batch;
  };
  message(CallKind::send, 1, "y", batch);
  message(CallKind::recv, 2, "z", batch);
  message(CallKind::send, 1, "w", -1);
  return script;
}

std::vector<int32_t> calls_of(const Program& program) {
  std::vector<int32_t> calls;
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    if (program.tasks[i].kind == TaskKind::call) calls.push_back(int32_t(i));
  }
  return calls;
}

std::set<int32_t> waits(const Program& program, int32_t task) {
  std::set<int32_t> others;
  const Task& at = program.tasks[size_t(task)];
  for (int32_t i = 0; i < at.deps_count; ++i) {
    others.insert(program.deps[size_t(at.deps_begin + i)].task);
  }
  return others;
}

class Batches : public ::testing::TestWithParam<bool> {
 protected:
  machine::Machine machine() const { return GetParam() ? trainium(1) : hopper(); }
};

TEST_P(Batches, ArriveTogetherAndHoldTheirQueuesToTheEndOfTheLast) {
  const Program program = make(0).lower(machine(), 4, 1);
  const auto calls = calls_of(program);
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(waits(program, calls[0]), waits(program, calls[1]));  // both for the op
  const auto after = waits(program, calls[2]);
  EXPECT_TRUE(after.count(calls[0]) && after.count(calls[1]));
}

TEST_P(Batches, MessagesAloneWaitForThemselves) {
  const Program program = make(-1).lower(machine(), 4, 1);
  const auto calls = calls_of(program);
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_FALSE(waits(program, calls[2]).count(calls[1]));
  if (GetParam()) {  // an eager stream orders the launches of all
    EXPECT_NE(waits(program, calls[0]), waits(program, calls[1]));
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, Batches, ::testing::Bool());

}  // namespace
}  // namespace trnsim::lower::testing
