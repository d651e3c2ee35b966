// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "build.h"

namespace trnsim::workload {
namespace {

using test::Builder;
constexpr int64_t kMiB = int64_t(1) << 20;
const char* kRelu = "aten::relu(self: float32[256]) -> (out0: float32[256])";
const char* kAdd = "aten::add_(self!: float32[256], other: float32[256]) -> (out0: float32[256])";

// A parameter p (2 MiB), an activation a, a gradient g, an optimizer state m, a temporary t.
struct Training {
  Builder b;
  int32_t p, a, t, g, m, scratch;

  Training() {
    p = b.storage(2 * kMiB, StorageKind::parameter);
    b.marker(MarkerKind::forward_begin, 1);
    a = b.storage(3 * kMiB);
    b.op(kRelu, Phase::forward, {{p, 0}, {a, 1}});
    t = b.storage(kMiB);
    b.op(kRelu, Phase::forward, {{a, 1}, {t, 1}});
    b.free(t);
    g = b.storage(2 * kMiB);
    b.op(kRelu, Phase::backward, {{a, 1}, {g, 1}});
    b.free(a);
    b.marker(MarkerKind::optimizer_begin, 7);
    m = b.storage(4 * kMiB);
    b.op(kRelu, Phase::optimizer, {{g, 1}, {m, 1}});
    scratch = b.storage(512);
    b.op(kAdd, Phase::optimizer, {{p, 0}, {m, 1}, {scratch, 1}});
    b.free(scratch);
    b.marker(MarkerKind::optimizer_end, 7);
  }
};

TEST(Workload, StoragesAreClassifiedByUse) {
  Training s;
  classify_storages(s.b.workload);
  const auto kind = [&](int32_t id) { return s.b.workload.storages[size_t(id)].kind; };
  EXPECT_EQ(kind(s.p), StorageKind::parameter);
  EXPECT_EQ(kind(s.a), StorageKind::activation);
  EXPECT_EQ(kind(s.t), StorageKind::temporary);
  EXPECT_EQ(kind(s.g), StorageKind::gradient);
  EXPECT_EQ(kind(s.m), StorageKind::optimizer_state);
  EXPECT_EQ(kind(s.scratch), StorageKind::temporary);
}

TEST(Workload, ACopyThatNoBackwardFreesIsABuffer) {
  Training s;
  const int32_t average = s.b.storage(2 * kMiB), loss = s.b.storage(512);
  s.b.op(kRelu, Phase::forward, {{s.p, 0}, {average, 1}});
  for (int step = 0; step < 2; ++step) {
    if (step == 1) s.b.op(kRelu, Phase::forward, {{s.p, 0}, {loss, 1}});
    s.b.op(kRelu, Phase::backward, {{average, 1}, {s.g, 1}});
    s.b.marker(MarkerKind::optimizer_end, 7);
  }
  s.b.workload.storages[size_t(loss)].born = int64_t(s.b.workload.records.size()) - 3;
  classify_storages(s.b.workload);
  EXPECT_EQ(s.b.workload.storages[size_t(average)].kind, StorageKind::buffer);
  EXPECT_EQ(s.b.workload.storages[size_t(loss)].kind, StorageKind::activation);
}

TEST(Workload, WhatBackwardLeavesBehindAnOptimizerIsAGradientThatAnotherRankReads) {
  Training s;
  const int32_t left = s.b.storage(kMiB), freed = s.b.storage(kMiB), in_backward = s.b.storage(512);
  s.b.op(kRelu, Phase::backward, {{s.p, 0}, {freed, 1}});
  s.b.op(kRelu, Phase::backward, {{s.p, 0}, {in_backward, 1}});
  s.b.marker(MarkerKind::optimizer_end, 7);  // of a parameter that steps in backward
  s.b.op(kRelu, Phase::backward, {{in_backward, 1}, {left, 1}});
  s.b.free(in_backward);
  s.b.free(freed);
  s.b.marker(MarkerKind::optimizer_end, 7);
  classify_storages(s.b.workload);
  EXPECT_EQ(s.b.workload.storages[size_t(left)].kind, StorageKind::gradient);
  EXPECT_EQ(s.b.workload.storages[size_t(freed)].kind, StorageKind::temporary);
  EXPECT_EQ(s.b.workload.storages[size_t(in_backward)].kind, StorageKind::temporary);
}

TEST(Workload, WhereMessagesArriveIsNoBufferOfTheModel) {
  Training s;
  const int32_t arrived = s.b.storage(kMiB);
  s.b.workload.calls.push_back({});
  s.b.workload.calls.back().kind = CallKind::recv;
  for (int step = 0; step < 2; ++step) {
    Record& call = s.b.op(kRelu, Phase::forward, {{arrived, step}, {arrived, step + 1}});
    call.kind = RecordKind::call;
    call.payload = 0;
    s.b.op(kRelu, Phase::backward, {{arrived, step + 1}, {s.g, step + 2}});
    s.b.marker(MarkerKind::optimizer_end, 7);
  }
  check_workload(s.b.workload);
  classify_storages(s.b.workload);
  EXPECT_EQ(s.b.workload.storages[size_t(arrived)].kind, StorageKind::activation);
}

TEST(Workload, ABucketThatIsNoGradientIsCommunication) {
  Training s;
  const int32_t bucket = s.b.storage(kMiB);
  s.b.op(kRelu, Phase::backward, {{s.g, 1}, {bucket, 1}});
  s.b.workload.calls.push_back({});
  Record& call = s.b.op(kRelu, Phase::backward, {{bucket, 1}, {bucket, 2}});
  call.kind = RecordKind::call;
  call.payload = 0;
  check_workload(s.b.workload);
  classify_storages(s.b.workload);
  EXPECT_EQ(s.b.workload.storages[size_t(bucket)].kind, StorageKind::communication);
  EXPECT_EQ(s.b.workload.storages[size_t(s.g)].kind, StorageKind::gradient);
}

TEST(Workload, PeakOfMemoryIsTheSumByHand) {
  Training s;
  classify_storages(s.b.workload);
  const MemoryPeak peak = replay_allocations(s.b.workload);
  // Live at the top, in the optimizer: p 2, g 2, m 4 MiB and 512 bytes of scratch. In the forward
  // p 2 + a 3 + t 1 = 6 MiB, with g instead of t 7 MiB. All are multiples of 512.
  EXPECT_EQ(peak.allocated_bytes, 8 * kMiB + 512);
  EXPECT_EQ(peak.requested_bytes, 8 * kMiB + 512);
  EXPECT_EQ(peak.at_record, 6);
  EXPECT_EQ(peak.by_kind[size_t(StorageKind::parameter)], 2 * kMiB);
  EXPECT_EQ(peak.by_kind[size_t(StorageKind::gradient)], 2 * kMiB);
  EXPECT_EQ(peak.by_kind[size_t(StorageKind::optimizer_state)], 4 * kMiB);
  EXPECT_EQ(peak.by_kind[size_t(StorageKind::temporary)], 512);
  EXPECT_EQ(peak.by_kind[size_t(StorageKind::activation)], 0);
  // One segment of 20 MiB for what is above 1 MiB, one of 2 MiB for t and the scratch.
  EXPECT_EQ(peak.reserved_bytes, 22 * kMiB);
}

TEST(Workload, UsesWithoutAStorageAreNeitherClassifiedNorNumbered) {
  const auto made = [](bool with_number) {
    Training s;
    const auto other = with_number ? TensorUse{-1, 0} : TensorUse{s.m, 1};
    s.b.op(kAdd, Phase::optimizer, {{s.p, 0}, other, {s.p, 1}});
    return s.b.workload;
  };
  Workload a = made(true), b = made(true);
  check_workload(a);
  classify_storages(a);
  classify_storages(b);
  EXPECT_TRUE(compare_workloads(a, b, 5).empty());
  EXPECT_EQ(hash_workload(a), hash_workload(b));
  EXPECT_FALSE(compare_workloads(made(true), made(false), 5).empty());
}

TEST(Workload, EqualCapturesHaveNoDifferenceAndOneHash) {
  const Training a, b;
  EXPECT_TRUE(compare_workloads(a.b.workload, b.b.workload, 5).empty());
  EXPECT_EQ(hash_workload(a.b.workload), hash_workload(b.b.workload));
}

TEST(Workload, ArbitraryNamesAreNoDifference) {
  const Training a;
  Training b;
  Workload& w = b.b.workload;
  w.mode = "compute";
  w.seed = 9;
  w.notes = {"a guess"};
  w.unknown_reads = 3;
  for (Record& record : w.records) {
    record.fallback_read = 1;
    if (record.kind == RecordKind::marker && record.value == 7) record.value = 1234;
  }
  // The same storages under other ids: reversed.
  const int32_t last = int32_t(w.storages.size()) - 1;
  std::reverse(w.storages.begin(), w.storages.end());
  for (TensorUse& use : w.uses) use.storage = last - use.storage;
  for (AllocationEvent& event : w.allocations) event.storage = last - event.storage;
  EXPECT_TRUE(compare_workloads(a.b.workload, w, 5).empty());
  EXPECT_EQ(hash_workload(a.b.workload), hash_workload(w));
}

TEST(Workload, EveryChangeIsNamedAndMovesTheHash) {
  const Training a;
  const std::vector<std::pair<const char*, std::function<void(Workload&)>>> changes = {
      {"phase", [](Workload& w) { w.records[1].phase = Phase::backward; }},
      {"signature", [](Workload& w) { w.records[1].signature = 1; }},
      {"module", [](Workload& w) { w.modules.push_back("head"), w.records[1].module = 1; }},
      {"tensors", [](Workload& w) { ++w.uses[2].version; }},
      {"stream", [](Workload& w) { w.records[1].stream = 2; }},
      {"grad mode", [](Workload& w) { w.records[1].no_grad = 1; }},
      {"value", [](Workload& w) { w.records[0].value = 5; }},
      {"bytes", [](Workload& w) { w.storages[0].bytes *= 2; }},
      {"world_size", [](Workload& w) { w.world_size = 2; }},
      {"allocation event", [](Workload& w) { w.allocations[1].stream = 1; }},
      {"only in a", [](Workload& w) { w.records.pop_back(); }},
      {"ranks of group 0", [](Workload& w) { w.groups[0].ranks = RankPattern::of({0, 1}); }},
  };
  for (const auto& [word, change] : changes) {
    Training b;
    change(b.b.workload);
    const auto lines = compare_workloads(a.b.workload, b.b.workload, 5);
    ASSERT_FALSE(lines.empty()) << word;
    EXPECT_NE(lines[0].find(word), std::string::npos) << lines[0];
    EXPECT_NE(hash_workload(a.b.workload), hash_workload(b.b.workload)) << word;
  }
}

TEST(Workload, ADifferenceShowsTheRecordAndBothSides) {
  const Training a;
  Training b;
  b.b.workload.records[2].phase = Phase::other;
  const auto lines = compare_workloads(a.b.workload, b.b.workload, 5);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "record 2 differs in phase: a: #2 forward aten::relu(self: float32[256]) -> (out0: "
            "float32[256]) reads s1v1 writes s2v1 | b: #2 other aten::relu(self: float32[256]) -> "
            "(out0: float32[256]) reads s1v1 writes s2v1");
}

TEST(Workload, ChecksFindIndicesOutside) {
  Training ok;
  check_workload(ok.b.workload);
  const std::vector<std::function<void(Workload&)>> breaks = {
      [](Workload& w) { w.records[1].signature = 99; },
      [](Workload& w) { w.records[1].module = 1; },
      [](Workload& w) { w.records[1].uses_count = 999; },
      [](Workload& w) { w.records[1].uses_count = 0; },
      [](Workload& w) { w.uses[0].storage = -2; },
      [](Workload& w) { w.records[0].payload = 17; },
      [](Workload& w) { w.storages[0].died = 999; },
      [](Workload& w) { w.allocations[0].is_free = true; },
      [](Workload& w) { w.allocations[1].storage = 0; },
      [](Workload& w) { w.world_size = 0; },
      [](Workload& w) { w.modules.clear(); },
      [](Workload& w) { w.calls.push_back({}), w.calls[0].group = 4; },
  };
  for (size_t i = 0; i < breaks.size(); ++i) {
    Training broken;
    breaks[i](broken.b.workload);
    EXPECT_THROW(check_workload(broken.b.workload), Error) << i;
  }
}

}  // namespace
// Autograd frees a graph in the order of addresses: two captures of one script must not differ.
TEST(OrderFrees, sorts_frees_that_nothing_stands_between) {
  Workload workload;
  const auto event = [](int64_t record, int32_t storage, bool is_free) {
    return AllocationEvent{record, storage, 0, is_free};
  };
  workload.allocations = {event(0, 0, false), event(0, 1, false), event(2, 1, true),
                          event(2, 0, true),  event(2, 2, false), event(2, 2, true),
                          event(3, 9, true),  event(3, 4, true)};
  order_frees(workload);
  std::vector<int32_t> order;
  for (const AllocationEvent& e : workload.allocations) order.push_back(e.storage);
  EXPECT_EQ(order, (std::vector<int32_t>{0, 1, 0, 1, 2, 2, 4, 9}));
}

}  // namespace trnsim::workload
