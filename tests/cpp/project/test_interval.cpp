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
  const auto degree = [&](const workload::Workload& w, int64_t ranks) {
    const CaseRole role{std::make_shared<const workload::Workload>(w), {}, {}};
    return data_parallel_degree(role, ranks, guesses).value_or(-1);
  };
  EXPECT_EQ(degree(with_groups({}), 1), 1);
  EXPECT_EQ(degree(with_groups({{"", 16}, {"mesh_dp", 4}, {"mesh_tp", 4}}), 16), 4);
  EXPECT_EQ(degree(with_groups({{"", 8}, {"dp_replicate", 2}, {"dp_shard", 4}}), 8), 8);
  EXPECT_EQ(degree(with_groups({{"", 8}, {"dp", 8}, {"dp_replicate", 2}, {"dp_shard", 4}}), 8), 8);
  EXPECT_EQ(degree(with_groups({{"", 16}, {"mesh_tp", 4}}), 16), -1);
}

// One all-reduce of one storage over the last of the groups.
workload::Workload with_reduction(workload::Workload workload, workload::Phase phase,
                                  workload::StorageKind kind) {
  workload::Call call;
  call.group = int32_t(workload.groups.size()) - 1;
  workload.calls.push_back(call);
  workload.storages.push_back({1024, 0, -1, kind});
  workload.uses.push_back({0, 0});
  workload::Record record;
  record.kind = workload::RecordKind::call;
  record.payload = 0;
  record.phase = phase;
  record.uses_count = 1;
  workload.records.push_back(record);
  return workload;
}

TEST(DataParallelDegree, IsTheWorldWhenGradientsAreReducedOverIt) {
  std::vector<lower::Guess> guesses;
  const auto degree = [&](workload::Phase phase) {
    const auto reduces =
        with_reduction(with_groups({{"", 16}}), phase, workload::StorageKind::gradient);
    const CaseRole role{
        std::make_shared<const workload::Workload>(reduces), {0, 1, 0, true, false}, {}};
    return data_parallel_degree(role, 16, guesses).value_or(-1);
  };
  EXPECT_EQ(degree(workload::Phase::backward), 16);
  ASSERT_EQ(guesses.size(), 1u);
  EXPECT_EQ(guesses[0].value, "16");
  EXPECT_EQ(degree(workload::Phase::forward), -1);
}

TEST(DataParallelDegree, IsThatOfAStageWhenGradientsAreReducedOverIt) {
  std::vector<lower::Guess> guesses;
  const auto degree = [&](workload::StorageKind kind, int64_t replicas) {
    const auto reduces =
        with_reduction(with_groups({{"", 16}, {"1", 4}}), workload::Phase::backward, kind);
    const CaseRole role{
        std::make_shared<const workload::Workload>(reduces), {0, 1, 0, true, false}, {}};
    return data_parallel_degree(role, replicas, guesses).value_or(-1);
  };
  EXPECT_EQ(degree(workload::StorageKind::communication, 4), 4);  // a bucket of DDP's
  EXPECT_EQ(degree(workload::StorageKind::parameter, 4), -1);     // whatever that is
  EXPECT_EQ(degree(workload::StorageKind::communication, 8), -1);
}

}  // namespace
}  // namespace trnsim::project
