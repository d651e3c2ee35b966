// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A Program whose collectives are made of steps: which messages there are, and what waits for what.
#include "lower/ring_steps.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lower/collectives.h"
#include "make.h"

namespace trnsim::lower::testing {
namespace {

using workload::CallKind;

const char* kOp = "aten::gelu(self: bfloat16[4096,1024]) -> (out0: bfloat16[4096,1024])";

Program in_steps_of(const Script& script, const machine::Machine& machine, int64_t chips,
                    const std::string& algorithm, bool step_mode = true) {
  machine::Placement placement;
  placement.chips = placement.ranks = chips;
  placement.ranks_per_server = machine.server.chips;
  return lower_step(script.workload, script.step(), machine, placement, {"", algorithm, step_mode});
}

// A call between two ops, the second of which needs it.
Script one_call(const std::vector<int64_t>& ranks, int64_t bytes, CallKind kind) {
  Script script;
  const int32_t group = script.group(ranks);
  script.op(kOp, {"x"}, {"y"}).call(kind, group, bytes, "y").wait().op(kOp, {"y"}, {"z"});
  return script;
}

std::vector<int64_t> up_to(int64_t count) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < count; ++i) ranks.push_back(i);
  return ranks;
}

struct Sent {
  int64_t count = 0, bytes = 0, fixed_ps = 0, steps_ps = 0;
};
// By kind, peer and tag.
using Messages = std::map<std::tuple<CallKind, int32_t, int32_t>, Sent>;
Messages messages_of(const Program& program) {
  Messages messages;
  for (const Task& task : program.tasks) {
    if (task.call < 0) continue;
    const CallTemplate& call = program.calls[size_t(task.call)];
    if (!call.step_of) continue;
    Sent& sent = messages[{call.kind, call.peer, call.tag}];
    EXPECT_EQ(call.bytes, call.phases[0].bytes);
    ++sent.count;
    sent.bytes += call.bytes;
    sent.fixed_ps += call.phases[0].fixed_ps;
    sent.steps_ps += call.phases[0].steps * call.phases[0].step_ps;
  }
  return messages;
}

std::vector<std::string> guessed(const Program& program, const std::string& name) {
  std::vector<std::string> values;
  for (const Guess& guess : program.guesses) {
    if (guess.name == name) values.push_back(guess.value);
  }
  return values;
}

TEST(RingSteps, SendsInPartsThatSumToThePhase) {
  for (const int64_t bytes : {0, 1, 7, 1000, 1 << 20}) {
    const Script script = one_call(up_to(8), bytes, CallKind::all_reduce);
    const Program fluid = in_steps_of(script, hopper(), 8, "ring", false);
    const Messages messages = messages_of(in_steps_of(script, hopper(), 8, "ring"));
    ASSERT_EQ(messages.size(), 2u);
    const auto& phases = fluid.calls[0].phases;
    for (const auto& key :
         {std::tuple(CallKind::send, 1, kStepTag), std::tuple(CallKind::recv, 7, kStepTag)}) {
      const Sent& sent = messages.at(key);
      EXPECT_EQ(sent.count, 14);
      EXPECT_EQ(sent.bytes, phases[0].bytes + phases[1].bytes);
      EXPECT_EQ(sent.fixed_ps, hopper().chip.collectives.base_ps);
      EXPECT_EQ(sent.steps_ps, 14 * hopper().chip.collectives.ring_step_ps);
    }
  }
}

TEST(RingSteps, GoesBothWaysOnATorusEvenBetweenTwo) {
  const auto two = messages_of(
      in_steps_of(one_call({0, 1}, 1 << 20, CallKind::all_gather), trainium(1), 2, "ring"));
  EXPECT_EQ(two.size(), 4u);  // the same peer, by tag
  for (const auto& [key, sent] : two) {
    EXPECT_EQ(std::get<1>(key), 1);
    EXPECT_EQ(sent.count, 1);
    EXPECT_EQ(sent.bytes, 1 << 18);
  }
  const auto ring = messages_of(
      in_steps_of(one_call(up_to(16), 1 << 20, CallKind::all_gather), trainium(1), 16, "ring"));
  const std::set<std::tuple<CallKind, int32_t, int32_t>> expected{
      {CallKind::send, 1, kStepTag},
      {CallKind::recv, 15, kStepTag},
      {CallKind::send, 15, kStepTag + 1},
      {CallKind::recv, 1, kStepTag + 1}};
  std::set<std::tuple<CallKind, int32_t, int32_t>> found;
  for (const auto& [key, sent] : ring) found.insert(key);
  EXPECT_EQ(found, expected);
}

TEST(RingSteps, GoesRoundTheLinesOfABox) {
  const Program program = in_steps_of(one_call(up_to(64), 1 << 20, CallKind::all_gather),
                                      trainium(4), 64, "axis_rings");
  ASSERT_EQ(program.groups.size(), 5u);  // its own one, the one asked for, and three lines
  EXPECT_EQ(program.groups[2].name, "world along z");
  EXPECT_EQ(program.groups[2].ranks.text(), "start 0 axes 16x4");
  EXPECT_EQ(program.groups[3].ranks.text(), "start 0 axes 4x4");
  EXPECT_EQ(program.groups[4].ranks.text(), "0..3");
  int64_t sends = 0;
  for (const auto& [key, sent] : messages_of(program)) {
    if (std::get<CallKind>(key) == CallKind::send) sends += sent.count;
  }
  EXPECT_EQ(sends, 3 * 3 * 2);
}

TEST(RingSteps, WaitsForThePartThatCameBefore) {
  const Script script = one_call(up_to(4), 1 << 20, CallKind::all_reduce);
  const Program program = in_steps_of(script, hopper(), 4, "ring");
  std::vector<int32_t> sends, recvs;
  int32_t op = -1, waiter = -1;
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    if (task.kind == TaskKind::compute) (op < 0 ? op : waiter) = int32_t(i);
    if (task.call < 0) continue;
    const bool is_send = program.calls[size_t(task.call)].kind == CallKind::send;
    (is_send ? sends : recvs).push_back(int32_t(i));
  }
  ASSERT_EQ(sends.size(), 6u);
  const auto waits_of = [&](int32_t index) {
    std::set<int32_t> waits;
    const Task& task = program.tasks[size_t(index)];
    for (int32_t i = 0; i < task.deps_count; ++i) {
      const Dep& dep = program.deps[size_t(task.deps_begin + i)];
      if (program.tasks[size_t(dep.task)].kind != TaskKind::launch) waits.insert(dep.task);
    }
    return waits;
  };
  using Tasks = std::set<int32_t>;
  EXPECT_EQ(waits_of(sends[0]), Tasks{op});
  EXPECT_EQ(waits_of(recvs[0]), Tasks{op});
  for (const size_t step : {1, 2, 4, 5}) {
    EXPECT_EQ(waits_of(sends[step]), Tasks{recvs[step - 1]});
    EXPECT_EQ(waits_of(recvs[step]), Tasks{});  // its queue alone
  }
  EXPECT_EQ(waits_of(sends[3]), (Tasks{sends[2], recvs[2]}));  // the next phase
  EXPECT_EQ(waits_of(recvs[3]), (Tasks{sends[2], recvs[2]}));
  Tasks needed = waits_of(waiter);
  needed.erase(op);  // the kernel before it on its stream
  EXPECT_EQ(needed, (Tasks{sends[5], recvs[5]}));
}

TEST(RingSteps, LeavesWhatHasNoFixedNeighboursAndSaysSo) {
  const Script script = one_call(up_to(16), 1 << 20, CallKind::all_reduce);
  for (const char* name : {"mesh", "rdh", "kanga"}) {
    const Program fluid = in_steps_of(script, trainium(1), 16, name, false);
    const Program program = in_steps_of(script, trainium(1), 16, name);
    EXPECT_EQ(program.tasks.size(), fluid.tasks.size());
    EXPECT_TRUE(messages_of(program).empty());
    EXPECT_TRUE(guessed(program, "collectives in steps").empty());
    EXPECT_EQ(guessed(program, "step mode"),
              std::vector<std::string>{std::string("1 call stays fluid (") + name + ")"});
  }
  const Program stepped = in_steps_of(script, trainium(1), 16, "ring");
  EXPECT_EQ(guessed(stepped, "collectives in steps"), std::vector<std::string>{"1 call"});
  EXPECT_TRUE(guessed(stepped, "step mode").empty());
}

TEST(RingSteps, ChangesNothingWhereThereIsNothingToStep) {
  Script script;
  const int32_t alone = script.group({0});
  script.op(kOp, {"x"}, {"y"}).call(CallKind::all_reduce, alone, 1 << 20, "y").wait();
  script.op(kOp, {"y"}, {"z"});
  for (const auto& machine : {trainium(1), hopper()}) {
    const Program fluid = in_steps_of(script, machine, 1, "", false);
    const Program program = in_steps_of(script, machine, 1, "");
    ASSERT_EQ(program.tasks.size(), fluid.tasks.size());
    EXPECT_EQ(run_alone(program, machine), run_alone(fluid, machine));
    EXPECT_EQ(program.queues.size(), fluid.queues.size());
    EXPECT_EQ(program.deps.size(), fluid.deps.size());
    EXPECT_EQ(program.guesses.size(), fluid.guesses.size());
  }
}

// Members 0, 1, 2 and 5: the pairs that halve and double are not one pair moved along.
TEST(RingSteps, KeepsAGroupWhosePartsAreNotAlike) {
  const Script script = one_call({0, 1, 2, 5}, 1 << 20, CallKind::all_reduce);
  const Program program = in_steps_of(script, hopper(), 8, "rdh");
  EXPECT_TRUE(messages_of(program).empty());
  EXPECT_EQ(guessed(program, "step mode"), std::vector<std::string>{"1 call stays fluid (rdh)"});
}

}  // namespace
}  // namespace trnsim::lower::testing
