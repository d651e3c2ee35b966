// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "project/rates.h"
#include "project/variants.h"

namespace trnsim::project {
namespace {

TEST(Interval, CombinesWhatEachGroupAloneGainsAndLosesBySquares) {
  // gains 30 and 40 -> 50; losses 60 and 80 -> 100
  int64_t low = -1, high = -1;
  combine_interval(1000, {970, 960}, {1060, 1080}, low, high);
  EXPECT_EQ(low, 950);
  EXPECT_EQ(high, 1100);
}

TEST(Interval, AGroupThatMovesTheStepTheOtherWayCountsWhereItMovesIt) {
  // a faster input that makes the step slower widens the upper side
  int64_t low = -1, high = -1;
  combine_interval(1000, {1030}, {960}, low, high);
  EXPECT_EQ(low, 960);
  EXPECT_EQ(high, 1030);
  combine_interval(1000, {1000}, {1000}, low, high);
  EXPECT_EQ(low, 1000);
  EXPECT_EQ(high, 1000);
}

TEST(Interval, InputsAreKnownByTheirKeys) {
  EXPECT_EQ(input_group_of("chip.hbm.bandwidth"), "hbm");
  EXPECT_EQ(input_group_of("scale_up.bandwidth_x"), "links");
  EXPECT_EQ(input_group_of("collectives.rdh_step_latency"), "collective latency");
  EXPECT_EQ(input_group_of("chip.interference.dma"), "interference");
  EXPECT_EQ(input_group_of("chip.hbm.total"), "");
  EXPECT_EQ(input_group_of("price.per_chip_hour"), "");
}

workload::Workload with_groups(std::vector<std::pair<const char*, int64_t>> groups) {
  workload::Workload workload;
  for (const auto& [name, size] : groups) {
    workload.groups.push_back({name, workload::RankPattern{0, {{1, size}}, {}}});
  }
  return workload;
}

TEST(DataParallelDegree, ComesFromTheNamesOfGroups) {
  std::vector<lower::Guess> guesses;
  const workload::Step none{};
  const auto degree = [&](const workload::Workload& w, int64_t ranks) {
    return data_parallel_degree(w, none, ranks, guesses).value_or(-1);
  };
  EXPECT_EQ(degree(with_groups({}), 1), 1);
  EXPECT_EQ(degree(with_groups({{"", 16}, {"mesh_dp", 4}, {"mesh_tp", 4}}), 16), 4);
  EXPECT_EQ(degree(with_groups({{"", 8}, {"dp_replicate", 2}, {"dp_shard", 4}}), 8), 8);
  EXPECT_EQ(degree(with_groups({{"", 8}, {"dp", 8}, {"dp_replicate", 2}, {"dp_shard", 4}}), 8), 8);
  EXPECT_EQ(degree(with_groups({{"", 16}, {"mesh_tp", 4}}), 16), -1);
}

TEST(DataParallelDegree, IsTheWorldWhenGradientsAreReducedOverIt) {
  workload::Workload workload = with_groups({{"", 16}});
  workload.calls.push_back({});
  workload::Record record;
  record.kind = workload::RecordKind::call;
  record.payload = 0;
  record.phase = workload::Phase::backward;
  workload.records.push_back(record);
  std::vector<lower::Guess> guesses;
  const workload::Step step{0, 1, 0, true, false};
  EXPECT_EQ(data_parallel_degree(workload, step, 16, guesses).value_or(-1), 16);
  ASSERT_EQ(guesses.size(), 1u);
  EXPECT_EQ(guesses[0].value, "16");
  workload.records[0].phase = workload::Phase::forward;
  EXPECT_FALSE(data_parallel_degree(workload, step, 16, guesses).has_value());
}

}  // namespace
}  // namespace trnsim::project
