// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "build.h"

namespace trnsim::workload {
namespace {

using test::Builder;

// Rank `rank` of 8 in a group of 4 in a row: `before` ops and storages of a setup that is no part
// of the step, then an op, and a send to the next of the group.
struct Made {
  Workload workload;
  Step step;
};
Made make(int64_t rank, int before,
          const char* op = "aten::relu(self: float32[8]) -> (out0: float32[8])", int64_t places = 1,
          int32_t version = 0) {
  Builder b;
  b.workload.rank = rank;
  b.workload.world_size = 8;
  b.workload.groups = {{"", {0, {{1, 8}}, {}}}, {"g", {rank - rank % 4, {{1, 4}}, {}}}};
  for (int i = 0; i < before; ++i) {
    b.storage(64);
    b.op("aten::rand() -> ()", Phase::other);
  }
  const int32_t x = b.storage(32), y = b.storage(32);
  const int64_t begin = int64_t(b.workload.records.size());
  b.op(op, Phase::forward, {{x, version}, {y, version}});
  Call call;
  call.kind = CallKind::send;
  call.group = 1;
  call.bytes = 32;
  call.peer = int32_t(rank - rank % 4 + (rank % 4 + places) % 4);
  b.workload.calls.push_back(call);
  Record record;
  record.kind = RecordKind::call;
  record.payload = 0;
  record.uses_begin = int64_t(b.workload.uses.size());
  record.uses_count = 1;
  b.workload.uses.push_back({y, version});
  b.workload.records.push_back(record);
  return {b.workload, {begin, begin + 2, 0, true, false}};
}

std::vector<std::string> compare(const Made& a, const Made& b) {
  return compare_steps(a.workload, a.step, b.workload, b.step, 5);
}

TEST(CompareSteps, RanksMayBeElsewhereAndHaveDoneOtherThingsBefore) {
  EXPECT_TRUE(compare(make(0, 0), make(0, 0)).empty());
  EXPECT_TRUE(compare(make(0, 0), make(5, 3)).empty());
  EXPECT_TRUE(
      compare(make(3, 1), make(4, 0, "aten::relu(self: float32[8]) -> (out0: float32[8])", 1, 7))
          .empty());  // 3 sends to 0, around its group
}

TEST(CompareSteps, AnotherOpOrAMessageThatGoesElsewhereIsADifference) {
  const auto op =
      compare(make(0, 0), make(1, 0, "aten::gelu(self: float32[8]) -> (out0: float32[8])"));
  ASSERT_EQ(op.size(), 1u);
  EXPECT_NE(op[0].find("aten::gelu"), std::string::npos);
  const auto message =
      compare(make(0, 0), make(1, 0, "aten::relu(self: float32[8]) -> (out0: float32[8])", 2));
  ASSERT_EQ(message.size(), 1u);
  EXPECT_NE(message[0].find("differs in call"), std::string::npos);
}

// A batch that is copied at the end of a step is taken by a module after it, or in a run that ends
// with the step never.
TEST(CompareSteps, ABatchThatNoModuleHasTakenYetIsNoDifference) {
  Made input = make(0, 0), waiting = make(4, 0), parameter = make(4, 0);
  input.workload.storages[0].kind = StorageKind::input;
  waiting.workload.storages[0].kind = StorageKind::temporary;
  parameter.workload.storages[0].kind = StorageKind::parameter;
  EXPECT_TRUE(compare(input, waiting).empty());
  EXPECT_FALSE(compare(input, parameter).empty());
}

TEST(CompareSteps, AnotherShapeOfGroupIsADifference) {
  Made other = make(4, 0);
  other.workload.groups[1].ranks = {4, {{1, 2}}, {}};
  other.workload.calls[0].peer = 5;
  EXPECT_FALSE(compare(make(0, 0), other).empty());
}

// One rank ran to its end, the other to the end of the step.
TEST(CompareSteps, WhatIsMadeOutsideOfTheStepIsNoDifference) {
  Made later = make(4, 0), between = make(4, 0);
  later.workload.groups.push_back({"later", {4, {{1, 2}}, {}}});
  later.workload.parameter_count = 5;
  EXPECT_TRUE(compare(make(0, 0), later).empty());
  auto& groups = between.workload.groups;
  groups.insert(groups.begin() + 1, {"between", {4, {{2, 2}}, {}}});
  between.workload.calls[0].group = 2;
  EXPECT_TRUE(compare(make(0, 0), between).empty());
  between.workload.calls[0].group = 0;
  EXPECT_FALSE(compare(make(0, 0), between).empty());
}

// What rank `rank` of 3 does that gathers and puts its own tensor in place `own` of what it got.
Made gather(int64_t rank, int own, bool as_list = true) {
  const std::string x = "float32[8]", y = "float32[4]";
  const auto list = [](const std::string& name, const std::string& mark, const std::string& meta) {
    std::string text;
    for (int i = 0; i < 3; ++i) {
      text += (i ? ", " : "") + name + "#" + std::to_string(i) + mark + ": " + meta;
    }
    return text;
  };
  Builder b;
  b.workload.rank = rank;
  b.workload.world_size = 3;
  b.workload.groups = {{"", {0, {{1, 3}}, {}}}};
  const int32_t mine = b.storage(32), sum = b.storage(96);
  std::vector<TensorUse> uses, parts;
  for (int i = 0; i < 3; ++i) uses.push_back({b.storage(32), 1});
  parts = uses;
  parts[size_t(own)] = {mine, 0};
  uses.push_back({mine, 0});
  b.workload.calls.emplace_back();
  b.workload.calls.back().kind = CallKind::all_gather;
  Record& call = b.op("c10d::allgather_(" + list("outputs", "!", x) + ", input: " + x + ") -> ()",
                      Phase::forward, uses);
  call.kind = RecordKind::call;
  call.payload = 0;
  parts.push_back({sum, 0});
  const std::string tensors =
      as_list ? list("tensors", "", x) : "a: " + x + ", b: " + x + ", c: " + x;
  b.op("aten::cat(" + tensors + ") -> (out0: float32[24])", Phase::forward, parts);
  return {b.workload, {0, 2, 0, true, false}};
}

// outs[rank] = mine, after all_gather(outs, mine)
TEST(CompareSteps, EachRankMayPutItsOwnAmongWhatItGathered) {
  EXPECT_TRUE(compare(gather(0, 0), gather(1, 1)).empty());
  EXPECT_TRUE(compare(gather(0, 0), gather(2, 2)).empty());
  EXPECT_FALSE(compare(gather(0, 0, false), gather(1, 1, false)).empty());  // by name, no list
  Made twice = gather(1, 1);
  twice.workload.uses[4].storage = twice.workload.uses[5].storage;  // its own, two times
  EXPECT_FALSE(compare(gather(0, 0), twice).empty());
}

}  // namespace
}  // namespace trnsim::workload
