// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <cmath>

#include "project/gradient_flow.h"
#include "project/rates.h"
#include "project/variants.h"

namespace trnsim::project {
namespace {

TEST(Interval, CombinesWhatEachGroupAloneGainsAndLosesBySquares) {
  // gains 30 and 40 -> 50; losses 60 and 80 -> 100
  int64_t low = -1, high = -1;
  combine_interval(1000, {970, 960}, {1060, 1080}, 0, low, high);
  EXPECT_EQ(low, 950);
  EXPECT_EQ(high, 1100);
}

TEST(Interval, AGroupThatMovesTheStepTheOtherWayCountsWhereItMovesIt) {
  // a faster input that makes the step slower widens the upper side
  int64_t low = -1, high = -1;
  combine_interval(1000, {1030}, {960}, 0, low, high);
  EXPECT_EQ(low, 960);
  EXPECT_EQ(high, 1030);
  combine_interval(1000, {1000}, {1000}, 0, low, high);
  EXPECT_EQ(low, 1000);
  EXPECT_EQ(high, 1000);
}

TEST(Interval, OurOwnErrorIsOneMoreBesideTheInputs) {
  // alone: step / 1.25 and step * 1.25; beside a gain of 150 and a loss of 600: 250 and 650
  int64_t low = -1, high = -1;
  combine_interval(1000, {}, {}, std::log(1.25), low, high);
  EXPECT_EQ(low, 800);
  EXPECT_NEAR(high, 1250, 1);
  combine_interval(1000, {850}, {1600}, std::log(1.25), low, high);
  EXPECT_NEAR(low, 750, 1);
  EXPECT_NEAR(high, 1650, 1);
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
    const GradientFlow flow = follow_gradients(w, {});
    return data_parallel_degree(role, flow, ranks, guesses).value_or(-1);
  };
  EXPECT_EQ(degree(with_groups({}), 1), 1);
  auto product = with_groups({{"", 16}, {"mesh_dp", 4}, {"mesh_tp", 4}});
  product.groups[1].ranks.axes = {{4, 4}};
  EXPECT_EQ(degree(product, 16), 4);
  // Two ranks of tensor parallelism have the same data, however a group of both is called.
  EXPECT_EQ(degree(with_groups({{"", 16}, {"mesh_dp", 16}, {"mesh_tp", 4}}), 16), -1);
  EXPECT_EQ(degree(with_groups({{"", 8}, {"dp_replicate", 2}, {"dp_shard", 4}}), 8), 8);
  EXPECT_EQ(degree(with_groups({{"", 8}, {"dp", 8}, {"dp_replicate", 2}, {"dp_shard", 4}}), 8), 8);
  EXPECT_EQ(degree(with_groups({{"", 16}, {"mesh_tp", 4}}), 16), -1);
}

// A step of one gradient: a matrix multiplication of backward makes storage 0, what `reductions`
// name reduces it, and an op takes it to storage 1, which the optimizer reads.
workload::Workload with_gradient(const std::vector<int32_t>& reductions, const char* op,
                                 int64_t sequence_nr = 1) {
  workload::Workload made = with_groups({{"", 16}, {"", 4}, {"", 2}});
  made.storages.resize(2);
  for (workload::Storage& storage : made.storages) storage.bytes = 4096;
  const auto add = [&](const char* name, workload::RecordKind kind, workload::Phase phase,
                       const std::vector<int32_t>& reads, const std::vector<int32_t>& writes) {
    workload::Signature signature;
    signature.op = name;
    signature.inputs.resize(reads.size());
    signature.outputs.resize(writes.size());
    for (workload::TensorSlot& slot : signature.inputs) slot.meta.sizes = {1024};
    workload::Record record;
    record.kind = kind;
    record.phase = phase;
    record.sequence_nr = sequence_nr;
    record.signature = int32_t(made.signatures.size());
    record.payload = int32_t(made.calls.size()) - 1;
    record.uses_begin = int64_t(made.uses.size());
    record.uses_count = int32_t(reads.size() + writes.size());
    for (const int32_t storage : reads) made.uses.push_back({storage, 0});
    for (const int32_t storage : writes) made.uses.push_back({storage, 1});
    made.signatures.push_back(signature);
    made.records.push_back(record);
  };
  using workload::Phase;
  add("aten::mm", workload::RecordKind::op, Phase::backward, {}, {0});
  for (const int32_t group : reductions) {
    workload::Call call;
    call.group = group;
    made.calls.push_back(call);
    add("c10d::all_reduce", workload::RecordKind::call, Phase::backward, {0}, {0});
  }
  add(op, workload::RecordKind::op, Phase::backward, {0}, {1});
  add("aten::add_.Tensor", workload::RecordKind::op, Phase::optimizer, {1}, {});
  return made;
}

// The same, whose ranks also send each other activations over a group.
workload::Workload exchanging(workload::Workload made, int32_t group) {
  workload::Record record = made.records[0];
  record.kind = workload::RecordKind::call;
  record.phase = workload::Phase::forward;
  record.signature = int32_t(made.signatures.size());
  record.payload = int32_t(made.calls.size());
  record.uses_begin = int64_t(made.uses.size());
  record.uses_count = 2;
  workload::Signature signature;
  signature.op = "c10d::all_gather";
  signature.inputs.resize(1);
  signature.outputs.resize(1);
  signature.inputs[0].meta.sizes = {1024};
  const auto storage = int32_t(made.storages.size());
  made.storages.resize(made.storages.size() + 2);
  made.uses.insert(made.uses.end(), {{storage, 0}, {storage + 1, 1}});
  made.calls.emplace_back();
  made.calls.back().kind = workload::CallKind::all_gather;
  made.calls.back().group = group;
  made.signatures.push_back(signature);
  made.records.insert(made.records.begin(), record);
  return made;
}

// ... and an attention that reads them.
workload::Workload attending(workload::Workload made, int32_t group) {
  made = exchanging(std::move(made), group);
  workload::Record record = made.records[0];
  record.kind = workload::RecordKind::op;
  record.signature = int32_t(made.signatures.size());
  record.uses_begin += 1;  // what was gathered
  record.uses_count = 1;
  made.signatures.push_back(made.signatures[size_t(made.records[0].signature)]);
  made.signatures.back().op = "aten::_scaled_dot_product_fused_attention_overrideable";
  made.signatures.back().outputs.clear();
  made.records.insert(made.records.begin() + 1, record);
  return made;
}

int64_t degree_of(const workload::Workload& workload, int64_t replicas = 16) {
  std::vector<lower::Guess> guesses;
  const workload::Step step{0, int64_t(workload.records.size()), 1, true, false};
  const CaseRole role{std::make_shared<const workload::Workload>(workload), step, {}};
  const GradientFlow flow = follow_gradients(workload, step);
  return data_parallel_degree(role, flow, replicas, guesses).value_or(-1);
}

TEST(DataParallelDegree, IsTheSizeOfTheGroupsOverWhichGradientsAreReduced) {
  EXPECT_EQ(degree_of(with_gradient({0}, "aten::copy_")), 16);
  const auto with_model = [](const std::vector<int32_t>& reductions, const char* op) {
    return exchanging(with_gradient(reductions, op), 0);
  };
  EXPECT_EQ(degree_of(with_model({1}, "aten::_foreach_copy_")), 4);
  EXPECT_EQ(degree_of(with_model({1, 2}, "aten::div.Tensor")), 8);
  // Of a stage of a pipeline, of which so many run alike.
  EXPECT_EQ(degree_of(with_gradient({1}, "aten::copy_"), 4), 4);
  EXPECT_EQ(degree_of(with_gradient({1}, "aten::copy_"), 2), -1);
  // Reduced again, as in each micro-batch, a gradient stands for no more ranks.
  EXPECT_EQ(degree_of(with_model({1, 1}, "aten::copy_")), 4);
  // What a matrix multiplication makes of a reduced activation is not reduced.
  EXPECT_EQ(degree_of(with_gradient({0}, "aten::mm")), 1);
  EXPECT_EQ(degree_of(with_gradient({}, "aten::copy_")), -1);
  // What a hook makes of factors that it has reduced is, but in a graph of compiled autograd.
  auto hooked = with_gradient({0}, "aten::mm", -1);
  EXPECT_EQ(degree_of(hooked), 16);
  for (workload::Record& record : hooked.records) record.region = 0;
  EXPECT_EQ(degree_of(hooked), 1);
}

// The optimizer itself stacks its gradients and scatters their sums (ZeRO written by hand), as it
// does in a script whose gradients nobody else reduces.
TEST(DataParallelDegree, CountsWhatTheOptimizerItselfReduces) {
  workload::Workload made = with_gradient({1}, "aten::stack");
  for (workload::Record& record : made.records) {
    if (record.kind == workload::RecordKind::call) record.phase = workload::Phase::optimizer;
  }
  EXPECT_EQ(degree_of(exchanging(made, 0)), 4);
  made = with_gradient({0}, "aten::stack");
  std::swap(made.records[1], made.records[2]);  // stacked into storage 1, which is then reduced
  made.records[1].phase = made.records[2].phase = workload::Phase::optimizer;
  made.uses[size_t(made.records[2].uses_begin)].storage = 1;
  made.uses[size_t(made.records[2].uses_begin) + 1].storage = 2;
  made.uses[size_t(made.records[3].uses_begin)].storage = 2;
  made.storages.push_back(made.storages[1]);
  EXPECT_EQ(degree_of(made), 16);
  // Its last rows are set to zero before: the others are still there.
  workload::Workload padded = made;
  padded.storages[1].bytes = 8192;
  padded.records.insert(padded.records.begin() + 2, padded.records[1]);
  workload::Record& zero = padded.records[2];
  zero.signature = int32_t(padded.signatures.size());
  padded.signatures.push_back(padded.signatures[size_t(padded.records[0].signature)]);
  padded.signatures.back().op = "aten::zero_";
  padded.signatures.back().outputs[0].meta.sizes = {1024};
  zero.uses_count = 1;
  zero.uses_begin = int64_t(padded.uses.size());
  padded.uses.push_back({1, 2});
  EXPECT_EQ(degree_of(padded), 16);
  // What a matrix multiplication made of a gradient (an update) and is then reduced says nothing.
  made.signatures[size_t(made.records[1].signature)].op = "aten::mm";
  EXPECT_EQ(degree_of(exchanging(made, 0)), 1);
}

// Local SGD: gradients are reduced over 4 ranks, and nothing else is exchanged in this step.
TEST(DataParallelDegree, IsAllOfRanksThatSendNobodyActivations) {
  EXPECT_EQ(degree_of(with_gradient({1}, "aten::copy_")), 16);
  EXPECT_EQ(degree_of(exchanging(with_gradient({1}, "aten::copy_"), 1)), 16);
  EXPECT_EQ(degree_of(exchanging(with_gradient({1}, "aten::copy_"), 0)), 4);
}

TEST(DataParallelDegree, LeavesOutRanksThatExchangeWhatAttentionReads) {
  const auto made = attending(with_gradient({0}, "aten::copy_"), 1);
  EXPECT_EQ(degree_of(made), 4);
  EXPECT_EQ(follow_gradients(made, {0, int64_t(made.records.size()), 1, true, false}).context, 4);
  EXPECT_EQ(degree_of(exchanging(with_gradient({0}, "aten::copy_"), 1)), 16);
}

// A bucket of which a small part (of norms, under tensor parallelism) has been reduced already.
TEST(DataParallelDegree, GoesByWhatMostOfABucketIsReducedOver) {
  workload::Workload made = with_gradient({2, 1}, "aten::copy_");
  made.records.reserve(8);
  workload::Record& gathers = made.records[2];  // the second reduction: a bucket is filled instead
  gathers.kind = workload::RecordKind::op;
  gathers.signature = int32_t(made.signatures.size());
  workload::Signature signature;
  signature.op = "aten::_chunk_cat.out";
  signature.inputs.resize(2);
  signature.outputs.resize(1);
  signature.inputs[0].meta.sizes = {8};
  signature.inputs[1].meta.sizes = {1024};
  made.signatures.push_back(signature);
  gathers.uses_begin = int64_t(made.uses.size());
  gathers.uses_count = 3;
  made.storages.resize(4);
  for (workload::Storage& storage : made.storages) storage.bytes = 4096;
  made.uses.insert(made.uses.end(), {{0, 1}, {3, 0}, {2, 1}});
  workload::Record reduction = made.records[1];
  reduction.payload = 1;  // over group 1
  reduction.uses_begin = int64_t(made.uses.size());
  made.uses.insert(made.uses.end(), {{2, 1}, {2, 2}});
  made.records.insert(made.records.begin() + 3, reduction);
  made.uses[size_t(made.records[4].uses_begin)].storage = 2;
  EXPECT_EQ(degree_of(exchanging(made, 0)), 4);
  made.signatures[size_t(gathers.signature)].inputs[0].meta.sizes = {4096};
  EXPECT_EQ(degree_of(exchanging(made, 0)), 8);
}

TEST(ContextDegree, IsTheSizeOfTheGroupThatIsCalledSo) {
  EXPECT_EQ(context_degree(with_groups({{"", 16}, {"mesh_cp", 4}})), 4);
  EXPECT_EQ(context_degree(with_groups({{"", 16}, {"mesh_dp_shard_cp", 8}})), 1);
}

}  // namespace
}  // namespace trnsim::project
