// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Ops of a side stream that stand behind a collective hold nobody back, and nobody sees another
// version of a tensor for it.
#include "lower/order.h"

#include <gtest/gtest.h>

#include "make.h"

namespace trnsim::lower::testing {
namespace {

const std::string kAdd = "aten::add(self: float32[1048576], other: float32[1048576]) -> "
                         "(out0: float32[1048576])";
const std::string kRelu = "aten::relu(self: float32[1048576]) -> (out0: float32[1048576])";

std::vector<int64_t> order_of(const Script& script) {
  return issue_order(script.workload, script.step(), {});
}

// A bucket is reduced and a side stream waits for it and divides it, while the main stream goes on.
Script hook(int32_t side) {
  Script script;
  const int32_t world = script.group({0, 1, 2, 3});
  script.op(kRelu, {"x"}, {"bucket"});
  script.call(workload::CallKind::all_reduce, world, 4 << 20, "bucket");
  script.stream(side).wait();
  script.op(kRelu, {"bucket"}, {"gradient"});
  script.stream(0);
  script.op(kRelu, {"y"}, {"z"}).op(kRelu, {"z"}, {"y"}).op(kAdd, {"y", "z"}, {"z"});
  return script;
}

TEST(Order, is_the_scripts_on_one_stream) {
  const Script script = hook(0);
  EXPECT_EQ(order_of(script), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Order, puts_off_what_waits_on_a_side_stream) {
  EXPECT_EQ(order_of(hook(1)), (std::vector<int64_t>{0, 1, 4, 5, 6, 2, 3}));
}

TEST(Order, lets_a_side_stream_that_waits_for_no_collective_be) {
  Script script;
  script.op(kRelu, {"x"}, {"y"}).stream(1);
  script.op(kRelu, {"a"}, {"b"}).stream(0);
  script.op(kRelu, {"y"}, {"x"});
  EXPECT_EQ(order_of(script), (std::vector<int64_t>{0, 1, 2}));
}

TEST(Order, readers_and_writers_of_what_is_put_off_come_after_it) {
  for (const std::string name : {"gradient", "bucket"}) {
    Script reads = hook(1);
    reads.op(kRelu, {name}, {"w"}).op(kRelu, {"w"}, {"v"});
    EXPECT_EQ(order_of(reads), (std::vector<int64_t>{0, 1, 4, 5, 6, 2, 3, 7, 8}));
    Script writes = hook(1);
    writes.op(kRelu, {"y"}, {name}).op(kRelu, {"w"}, {"v"});
    EXPECT_EQ(order_of(writes), (std::vector<int64_t>{0, 1, 4, 5, 6, 2, 3, 7, 8}));
  }
}

TEST(Order, optimizers_and_waits_of_the_host_come_after_it) {
  Script script = hook(1);
  script.marker(workload::MarkerKind::optimizer_begin).op(kRelu, {"w"}, {"v"});
  EXPECT_EQ(order_of(script), (std::vector<int64_t>{0, 1, 4, 5, 6, 2, 3, 7, 8}));
  Script host = hook(1);
  host.host_read({}).op(kRelu, {"w"}, {"v"});
  EXPECT_EQ(order_of(host), (std::vector<int64_t>{0, 1, 4, 5, 6, 2, 3, 7, 8}));
}

TEST(Order, two_side_streams_keep_what_they_pass_on) {
  Script script = hook(1);
  script.stream(2).wait();
  script.op(kRelu, {"gradient"}, {"twice"});
  script.stream(0).op(kRelu, {"w"}, {"v"});
  const std::vector<int64_t> order = order_of(script);
  const auto at = [&](int64_t record) {
    return std::find(order.begin(), order.end(), record) - order.begin();
  };
  EXPECT_EQ(order.size(), 10u);
  EXPECT_LT(at(3), at(8));
}

TEST(Order, a_hook_on_a_side_stream_is_hidden_by_the_main_stream) {
  const auto ends = [](int32_t side) {
    return makespan(hook(side).lower(trainium(1), 4, 1), trainium(1));
  };
  EXPECT_LT(ends(1), ends(0));
}

}  // namespace
}  // namespace trnsim::lower::testing
