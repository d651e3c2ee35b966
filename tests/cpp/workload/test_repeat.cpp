// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "build.h"
#include "workload/captured_graph.h"
#include "workload/repeat.h"

namespace trnsim::workload {
namespace {

using test::Builder;
const char* kOp = "aten::relu(self: float32[4]) -> (out0: float32[4])";
const char* kInPlace = "aten::relu_(self!: float32[4]) -> (out0!: float32[4])";

int64_t next_event() {
  static int64_t id = 100;
  return ++id;
}

// Reads a living input, makes a temporary that is freed in the range, and an output that lives on.
struct Graph {
  Builder b;
  int32_t input = b.storage(16), temporary = -1, output = -1;
  Range records, allocations;
  StorageVersions alive;

  Graph() {
    allocations.begin = int64_t(b.workload.allocations.size());
    temporary = b.storage(16);
    b.op(kOp, Phase::forward, {{input, 0}, {temporary, 0}});
    output = b.storage(16);
    b.op(kOp, Phase::forward, {{temporary, 0}, {output, 0}});
    b.free(temporary);
    b.op(kInPlace, Phase::forward, {{output, 0}, {output, 1}});
    records = {0, int64_t(b.workload.records.size())};
    allocations.end = int64_t(b.workload.allocations.size());
    alive = {{input, 0}, {output, 1}};
  }
  const TensorUse& use(int64_t record, int32_t index) const {
    return b.workload.uses[size_t(b.workload.records[size_t(record)].uses_begin + index)];
  }
  void repeat() {
    repeat_records(b.workload, records, allocations, alive, &next_event);
    check_workload(b.workload);
  }
};

TEST(Repeat, WhatLivesIsWrittenAgainAndWhatWasFreedIsMadeAgain) {
  Graph g;
  g.repeat();
  ASSERT_EQ(g.b.workload.records.size(), 6u);
  EXPECT_EQ(g.use(3, 0).storage, g.input);
  EXPECT_EQ(g.use(3, 0).version, 0);  // nobody wrote it in between
  const int32_t again = g.use(3, 1).storage;
  EXPECT_NE(again, g.temporary);
  EXPECT_EQ(g.use(4, 0).storage, again);
  EXPECT_EQ(g.use(4, 1).storage, g.output);
  EXPECT_EQ(g.use(4, 1).version, 2);  // the capture left version 1
  EXPECT_EQ(g.use(5, 0).version, 2);
  EXPECT_EQ(g.use(5, 1).version, 3);
  EXPECT_EQ(g.alive.at(g.output), 3);
  EXPECT_EQ(g.b.workload.storages[size_t(again)].born, 3);
  EXPECT_EQ(g.b.workload.storages[size_t(again)].died, 5);
  EXPECT_EQ(replay_allocations(g.b.workload).allocated_bytes, 3 * 512);
}

TEST(Repeat, AnInputThatWasWrittenSinceIsReadAsItIsNow) {
  Graph g;
  g.alive[g.input] = 4;
  g.repeat();
  EXPECT_EQ(g.use(3, 0).version, 4);
}

TEST(Repeat, AnOutputThatWasFreedIsFreedAtTheEnd) {
  Graph g;
  g.b.free(g.output);
  g.alive.erase(g.output);
  g.repeat();
  const int32_t again = g.use(4, 1).storage;
  EXPECT_NE(again, g.output);
  EXPECT_EQ(g.use(5, 1).storage, again);
  EXPECT_EQ(g.b.workload.storages[size_t(again)].died, 6);
}

TEST(Repeat, EventsAreMarksOfTheirOwn) {
  Graph g;
  Record record;
  record.kind = RecordKind::event_record;
  record.payload = 7;
  g.b.workload.records.push_back(record);
  record.kind = RecordKind::event_wait;
  g.b.workload.records.push_back(record);
  g.records.end += 2;
  g.repeat();
  const auto& records = g.b.workload.records;
  EXPECT_NE(records[8].payload, 7);
  EXPECT_EQ(records[9].payload, records[8].payload);
}

TEST(Repeat, ARegionIsAnotherOfTheSameName) {
  Graph g;
  g.b.workload.regions.push_back(kCapturedGraph);
  for (auto& record : g.b.workload.records) record.region = 0;
  g.repeat();
  EXPECT_EQ(g.b.workload.records[3].region, 1);
  EXPECT_TRUE(is_captured_graph(g.b.workload, g.b.workload.records[5]));
}

}  // namespace
}  // namespace trnsim::workload
