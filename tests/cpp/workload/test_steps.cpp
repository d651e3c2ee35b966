// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "base/error.h"
#include "build.h"

namespace trnsim::workload {
namespace {

using test::Builder;
const char* kOp = "aten::rand() -> ()";

// forward_begin, forward op, backward op, optimizer_begin, optimizer op, optimizer_end: 6 records.
void train(Builder& b, int64_t optimizer = 1, int64_t samples = 4) {
  b.marker(MarkerKind::forward_begin, samples);
  b.op(kOp, Phase::forward);
  b.op(kOp, Phase::backward).no_grad = 1;
  b.marker(MarkerKind::optimizer_begin, optimizer);
  b.op(kOp, Phase::optimizer).no_grad = 1;
  b.marker(MarkerKind::optimizer_end, optimizer);
}

TEST(Steps, AStepEndsWhenTheNextForwardBegins) {
  Builder b;
  train(b);
  b.op(kOp, Phase::other);  // reading the loss belongs to the step that made it
  train(b);
  const auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].begin, 0);
  EXPECT_EQ(steps[0].end, 7);
  EXPECT_EQ(steps[1].end, 13);
  EXPECT_TRUE(steps[0].whole && steps[1].whole);
  EXPECT_TRUE(steps[0].creates_state);
  EXPECT_FALSE(steps[1].creates_state);
}

// A loop that calls no module has no forward_begin: the first op that autograd notes begins a step.
TEST(Steps, ALoopWithoutModulesHasSteps) {
  Builder b;
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    b.op(kOp, Phase::forward);  // a host copy, say: it has no gradient
    b.op(kOp, Phase::forward).sequence_nr = 2 * iteration;
    b.op(kOp, Phase::forward).sequence_nr = 2 * iteration + 1;
    b.op(kOp, Phase::backward).no_grad = 1;
    b.marker(MarkerKind::optimizer_begin, 7);
    b.marker(MarkerKind::optimizer_end, 7);
  }
  const std::vector<Step> steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].begin, 0);
  EXPECT_EQ(steps[1].begin, 7);
  EXPECT_EQ(steps[2].begin, 13);
  EXPECT_TRUE(steps[2].whole);
}

TEST(Steps, MicroBatchesAndSeveralOptimizersAreOneStep) {
  Builder b;
  for (int micro = 0; micro < 3; ++micro) {
    b.marker(MarkerKind::forward_begin, 4);
    b.op(kOp, Phase::forward);
    b.op(kOp, Phase::backward);
  }
  for (const int64_t optimizer : {1, 2}) {
    b.marker(MarkerKind::optimizer_begin, optimizer);
    b.marker(MarkerKind::optimizer_end, optimizer);
  }
  const auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].optimizer_count, 2);
  EXPECT_EQ(counted_in(b.workload, steps[0]).samples, 12);
}

void message(Builder& b, CallKind kind, int32_t peer) {
  Call call;
  call.kind = kind;
  call.peer = peer;
  b.workload.calls.push_back(call);
  Record record;
  record.kind = RecordKind::call;
  record.payload = int32_t(b.workload.calls.size()) - 1;
  b.workload.records.push_back(record);
}

// A stage receives before its forward begins: what comes after the optimizer is of the next step.
TEST(Steps, AMessageAfterTheOptimizerBeginsTheNextStep) {
  Builder b;
  for (int step = 0; step < 2; ++step) {
    message(b, CallKind::recv, 0);
    train(b);
  }
  const auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].end, 7);
  EXPECT_EQ(steps[1].end, 14);
}

// Two chunks of a pipeline on one rank, two micro-batches, all forward before all backward: the
// samples are those of every call of the first chunk.
TEST(Steps, EveryMicroBatchOfAPipelineCounts) {
  Builder b;
  b.workload.modules = {"", "first", "second"};
  message(b, CallKind::send, 1);
  for (int micro = 0; micro < 2; ++micro) {
    for (const int32_t chunk : {1, 2}) {
      b.marker(MarkerKind::forward_begin, 5).module = chunk;
      b.op(kOp, Phase::forward);
    }
  }
  for (int i = 0; i < 4; ++i) b.op(kOp, Phase::backward);
  train(b, 1, -1);
  EXPECT_EQ(counted_in(b.workload, find_steps(b.workload)[0]).samples, 10);
}

// An agent calls its network for each action, then learns from a batch: backward reads what the
// second call made with a gradient, and what was made without one (the target) of neither.
TEST(Steps, SamplesAreThoseOfTheForwardThatBackwardWalksBack) {
  Builder b;
  const auto forward = [&](int64_t samples, bool no_grad) {
    if (!no_grad) b.marker(MarkerKind::forward_begin, samples);
    const int32_t made = b.storage(64);
    Record& record = b.op("aten::relu(input#0: float32[4]) -> (output#0: float32[4])",
                          Phase::forward, {{-1, 0}, {made, 1}});
    record.sequence_nr = no_grad ? -1 : 1;
    record.no_grad = no_grad;
    return made;
  };
  const auto backward = [&](int32_t read) {
    b.op("aten::relu(input#0: float32[4]) -> (output#0: float32[4])", Phase::backward,
         {{read, 1}, {b.storage(64), 1}});
  };
  const auto optimize = [&] {
    b.marker(MarkerKind::optimizer_begin, 1);
    b.marker(MarkerKind::optimizer_end, 1);
  };
  forward(1, false);
  const int32_t target = forward(128, true);
  const int32_t output = forward(128, false);
  backward(target);
  backward(output);
  optimize();
  EXPECT_EQ(counted_in(b.workload, find_steps(b.workload)[0]).samples, 128);
  // Of two parts of one model, both walked back, the first has the samples.
  const int32_t first = forward(8, false);
  const int32_t second = forward(64, false);
  backward(second);
  backward(first);
  optimize();
  EXPECT_EQ(counted_in(b.workload, find_steps(b.workload)[1]).samples, 8);
}

// The head of a model is called on chunks of what the model made, each with a backward of its own.
TEST(Steps, ChunksOfALossAreNoSamplesOfTheirOwn) {
  Builder b;
  b.workload.modules = {"", "head"};
  for (int micro = 0; micro < 2; ++micro) {
    b.marker(MarkerKind::forward_begin, 256).module = 0;
    b.op(kOp, Phase::forward);
    for (int chunk = 0; chunk < 4; ++chunk) {
      b.marker(MarkerKind::forward_begin, 64).module = 1;
      b.op(kOp, Phase::forward);
      b.op(kOp, Phase::backward);
    }
    b.op(kOp, Phase::backward);
  }
  b.marker(MarkerKind::optimizer_begin, 1);
  b.marker(MarkerKind::optimizer_end, 1);
  EXPECT_EQ(counted_in(b.workload, find_steps(b.workload)[0]).samples, 512);
}

TEST(Steps, SamplesThatASubmoduleTellsAreThoseOfItsForward) {
  Builder b;
  b.marker(MarkerKind::forward_begin, -1);
  b.marker(MarkerKind::forward_begin, 5);
  train(b, 1, 7);  // called before the first backward: another part of the same pass
  EXPECT_EQ(counted_in(b.workload, find_steps(b.workload)[0]).samples, 5);
}

TEST(Steps, ASkippedOptimizerStepCounts) {
  Builder b;
  b.marker(MarkerKind::forward_begin, 4);
  b.marker(MarkerKind::optimizer_skipped, 1);
  train(b);
  const auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_FALSE(steps[0].creates_state);  // nothing was created: it was skipped
  EXPECT_TRUE(steps[1].creates_state);
}

TEST(Steps, WithoutAnOptimizerEverythingIsOneInference) {
  Builder b;
  b.op(kOp, Phase::forward).no_grad = 1;
  b.op(kOp, Phase::forward).no_grad = 1;
  const Step step = choose_step(find_steps(b.workload), -1);
  EXPECT_FALSE(step.whole);
  EXPECT_EQ(step.end, 2);
  EXPECT_EQ(outside_step(b.workload, step), (std::vector<uint8_t>{0, 0}));
}

// Forward, backward, and one update in place for each of two weights, by way of a product.
void train_by_hand(Builder& b, int32_t weight, const std::string& update, bool no_grad = true) {
  b.marker(MarkerKind::forward_begin, 4);
  b.op("aten::relu(self: float32[8]) -> (out0: float32[8])", Phase::forward, {{weight, 0}})
      .sequence_nr = 1;
  b.op(kOp, Phase::backward).no_grad = 1;
  for (int i = 0; i < 2; ++i) {
    b.op(kOp, Phase::other).no_grad = no_grad;
    b.op(update, Phase::other, {{weight, 0}, {weight, 1}}).no_grad = no_grad;
  }
}
const char* kSubtract = "aten::sub_.Tensor(self!: float32[8]) -> (out0!: float32[8])";

TEST(Steps, ParametersChangedByHandEndAStep) {
  Builder b;
  const int32_t weight = b.storage(32);
  train_by_hand(b, weight, kSubtract);
  train_by_hand(b, weight, kSubtract, false);
  b.op(kOp, Phase::forward).no_grad = 1;  // evaluation
  const std::vector<Step> steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].end, 7);
  EXPECT_EQ(steps[1].end, 15);
  for (const Step& step : steps) EXPECT_TRUE(step.whole && step.updates_by_hand);
  EXPECT_EQ(outside_step(b.workload, steps[0]), std::vector<uint8_t>(7, 0));
  EXPECT_EQ(outside_step(b.workload, steps[1]), (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 0, 1}));
}

// A static input that is filled anew is no parameter, unless a module says that it is one; nor is
// anything where an optimizer steps.
TEST(Steps, OnlyParametersChangedByHandEndAStep) {
  const std::string copy = "aten::copy_(self!: float32[8]) -> (out0!: float32[8])";
  for (const StorageKind kind : {StorageKind::temporary, StorageKind::parameter}) {
    Builder b;
    const int32_t weight = b.storage(32, kind);
    train_by_hand(b, weight, copy);
    train_by_hand(b, weight, copy);
    const std::vector<Step> steps = find_steps(b.workload);
    const bool is_parameter = kind == StorageKind::parameter;
    EXPECT_EQ(steps.size(), is_parameter ? 2u : 1u);
    EXPECT_EQ(steps[0].whole, is_parameter);
  }
  Builder b;
  const int32_t weight = b.storage(32, StorageKind::parameter);
  train_by_hand(b, weight, kSubtract);
  train(b);
  EXPECT_EQ(find_steps(b.workload).size(), 1u);
  EXPECT_FALSE(find_steps(b.workload)[0].updates_by_hand);
}

TEST(Steps, MovingTheModelAndSavingItAreOutside) {
  const std::string save = "trnsim::copy_d2h(src: uint8[32]) -> ()";
  const std::string load = "trnsim::copy_h2d() -> (out0: uint8[32])";
  Builder b;
  const int32_t weight = b.storage(32, StorageKind::parameter), loss = b.storage(4);
  const auto train_and_save = [&] {
    b.op(load, Phase::forward, {{weight, 0}});
    b.op(load, Phase::forward, {{loss, 0}});
    train(b);
    b.op(save, Phase::forward, {{weight, 1}});
    b.op(save, Phase::forward, {{loss, 0}});
  };
  train_and_save();
  train_and_save();  // an optimizer on the host gives the weights back each time: that stays inside
  const auto outside = [&](size_t step) {
    return outside_step(b.workload, find_steps(b.workload)[step]);
  };
  EXPECT_EQ(outside(0), (std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(outside(1), (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 1, 0}));
}

TEST(Steps, TheSecondWholeStepIsMeasuredUnlessOneIsAskedFor) {
  Builder b;
  for (int i = 0; i < 3; ++i) train(b);
  const auto steps = find_steps(b.workload);
  EXPECT_EQ(choose_step(steps, -1).begin, 6);
  EXPECT_EQ(choose_step(steps, 2).begin, 12);
  EXPECT_THROW(choose_step(steps, 3), Error);
  EXPECT_THROW(choose_step({}, -1), Error);
  EXPECT_EQ(choose_step({steps[0]}, -1).begin, 0);
}

TEST(Steps, AStepThatSetsUpWhatLaterStepsHaveIsNotMeasured) {
  Builder b;
  train(b);
  b.marker(MarkerKind::forward_begin, 4);
  b.marker(MarkerKind::setup, 0);
  train(b);
  auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_TRUE(steps[1].sets_up);
  EXPECT_EQ(choose_step(steps, -1).begin, steps[1].begin);  // there is no other
  train(b);
  steps = find_steps(b.workload);
  EXPECT_EQ(choose_step(steps, -1).begin, steps[2].begin);
  EXPECT_EQ(choose_step(steps, 1).begin, steps[1].begin);
}

TEST(Steps, MarksOfTheScriptWin) {
  Builder b;
  train(b);
  train(b);
  b.marker(MarkerKind::step, 1000);
  train(b);
  b.marker(MarkerKind::step, 500);
  const auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].end, 13);
  EXPECT_EQ(counted_in(b.workload, steps[0]).tokens, 1000);
  EXPECT_EQ(counted_in(b.workload, steps[0]).token_module, -1);
}

TEST(Steps, EvaluationIsOutsideAndClippingInside) {
  Builder b;
  b.op(kOp, Phase::other).no_grad = 1;  // 0: initialisation, outside
  b.marker(MarkerKind::forward_begin, 4);
  b.op(kOp, Phase::forward).no_grad = 1;  // 2: running statistics, inside
  b.op(kOp, Phase::other).no_grad = 1;    // 3: accuracy, outside
  b.op(kOp, Phase::backward).no_grad = 1;
  b.op(kOp, Phase::other).no_grad = 1;  // 5: clipping, inside
  b.marker(MarkerKind::optimizer_begin, 1);
  b.op(kOp, Phase::optimizer).no_grad = 1;
  b.marker(MarkerKind::optimizer_end, 1);
  b.op(kOp, Phase::forward).no_grad = 1;  // 9: evaluation, outside
  b.op(kOp, Phase::other);                // 10: with grad, inside
  const auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(outside_step(b.workload, steps[0]),
            (std::vector<uint8_t>{1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0}));
}

TEST(Steps, WhatChangesTensorsAfterTheOptimizerIsInside) {
  const char* lerp = "aten::lerp_.Scalar(self!: float32[8], end: float32[8], weight=0.1f) -> ()";
  const char* add = "aten::add_.Tensor(self!: float32[8], other: float32[8]) -> ()";
  const char* mul = "aten::mul.Tensor(self: float32[8], other: float32[8]) -> (out0: float32[8])";
  Builder b;
  const int32_t weight = b.storage(32), average = b.storage(32), loss = b.storage(32);
  const auto quietly = [&](const char* text, Phase phase, std::vector<TensorUse> uses) {
    b.op(text, phase, std::move(uses)).no_grad = 1;
  };
  quietly(lerp, Phase::other, {{average, 0}, {weight, 0}});  // 0: before any step
  b.marker(MarkerKind::forward_begin, 4);
  b.op(kOp, Phase::backward);
  b.marker(MarkerKind::optimizer_begin, 1);
  b.marker(MarkerKind::optimizer_end, 1);
  quietly(lerp, Phase::other, {{average, 1}, {weight, 0}});  // 5: a moving average
  const int32_t scaled = b.storage(32);
  quietly(mul, Phase::other, {{weight, 0}, {weight, 0}, {scaled, 1}});  // 6: made for 7
  quietly(add, Phase::other, {{average, 2}, {scaled, 1}});              // 7
  const int32_t out = b.storage(32), kept = b.storage(32);
  quietly(mul, Phase::forward, {{average, 3}, {weight, 0}, {out, 1}});  // 8: evaluation
  quietly(add, Phase::other, {{loss, 0}, {out, 1}});                    // 9: sums up its loss
  quietly(mul, Phase::other, {{weight, 0}, {weight, 0}, {kept, 1}});    // 10: for a log
  const auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(outside_step(b.workload, steps[0]),
            (std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}));
}

// After the optimizer, under no_grad: an encoder that is not trained makes what the next step,
// after adding noise, trains on; beside it an evaluation, whose loss is summed up with gradients
// enabled.
TEST(Steps, WhatTheNextStepTrainsOnIsInTheStep) {
  const char* mul = "aten::mul.Tensor(self: float32[8], other: float32[8]) -> (out0: float32[8])";
  Builder b;
  const auto made = [&](Phase phase, int32_t from, int32_t no_grad, int64_t sequence) {
    const int32_t out = b.storage(32);
    Record& record = b.op(mul, phase, {{from, 1}, {from, 1}, {out, 1}});
    record.no_grad = no_grad != 0;
    record.sequence_nr = sequence;
    return out;
  };
  const int32_t weight = b.storage(32), image = b.storage(32);
  for (int step = 0; step < 2; ++step) {
    b.marker(MarkerKind::forward_begin, 4);
    const int32_t out = made(Phase::forward, weight, 0, 1);
    made(Phase::backward, out, 0, 1);
    b.marker(MarkerKind::optimizer_begin, 1);
    b.marker(MarkerKind::optimizer_end, 1);
    if (step == 1) break;
    const int32_t latent = made(Phase::forward, image, 1, -1);  // 5: the encoder
    const int32_t loss = made(Phase::forward, weight, 1, -1);   // 6: evaluation
    made(Phase::other, loss, 0, -1);                            // 7: its mean
    const int32_t noisy = made(Phase::other, latent, 0, -1);    // 8
    b.marker(MarkerKind::forward_begin, 4);
    made(Phase::forward, noisy, 0, 2);
  }
  const auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 2u);
  ASSERT_EQ(steps[0].end, 9);
  EXPECT_EQ(outside_step(b.workload, steps[0]), (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 1, 0, 0}));
}

TEST(Steps, AnUpdateAfterAMarkIsInTheStepThatFollows) {
  const char* lerp = "aten::lerp_.Scalar(self!: float32[8], end: float32[8], weight=0.1f) -> ()";
  Builder b;
  const int32_t weight = b.storage(32), average = b.storage(32);
  for (int step = 0; step < 2; ++step) {
    b.op(lerp, Phase::other, {{average, step}, {weight, 0}}).no_grad = 1;
    b.op(kOp, Phase::backward);
    b.marker(MarkerKind::step, -1);
  }
  const auto steps = find_steps(b.workload);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(outside_step(b.workload, steps[0]), (std::vector<uint8_t>{1, 0, 0}));
  EXPECT_EQ(outside_step(b.workload, steps[1]), (std::vector<uint8_t>{0, 0, 0}));
}

TEST(Steps, TokensAreTheFirstEmbeddingOfEachPass) {
  Builder b;
  const char* embed =
      "aten::embedding(weight: float32[9,2], indices: int64[2,8]) -> (out0: "
      "float32[2,8,2])";
  const char* places =
      "aten::embedding(weight: float32[8,2], indices: int64[8]) -> (out0: "
      "float32[8,2])";
  const int32_t w = b.storage(72), i = b.storage(128), o = b.storage(128);
  for (int pass = 0; pass < 2; ++pass) {
    b.marker(MarkerKind::forward_begin, 2);
    b.op(embed, Phase::forward, {{w, 0}, {i, 0}, {o, 1}});
    b.op(places, Phase::forward, {{w, 0}, {i, 0}, {o, 2}});
    b.marker(MarkerKind::forward_begin, 16);  // the loss is a module too
    b.op(kOp, Phase::backward);
  }
  const Step step = choose_step(find_steps(b.workload), -1);
  const Counted counted = counted_in(b.workload, step);
  EXPECT_EQ(counted.tokens, 32);
  EXPECT_EQ(counted.token_module, 0);
  EXPECT_EQ(counted.samples, 4);
}

}  // namespace
}  // namespace trnsim::workload
