// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Copies between host and device: bytes over the link's bandwidth, each way beside the other and
// beside the engines where streams allow it, and in turn where they do not.
#include <gtest/gtest.h>

#include "make.h"

namespace trnsim::lower::testing {
namespace {

using workload::Record;
using workload::RecordKind;

const std::string kRelu = "aten::relu(self: float32[1048576]) -> (out0: float32[1048576])";
const std::string kOut = "trnsim::copy_d2h(src: float32[1048576]) -> ()";
const std::string kIn = "trnsim::copy_h2d() -> (out0: float32[1048576])";
// 4 MiB: 4,194,304 / 55e9 and / 31e9, rounded up.
constexpr int64_t kHopperCopy_ps = 76'260'073, kTrainiumCopy_ps = 135'300'130;

void event(Script& script, RecordKind kind, int32_t id, int32_t stream) {
  Record record;
  record.kind = kind;
  record.payload = id;
  record.stream = stream;
  record.uses_begin = int64_t(script.workload.uses.size());
  script.workload.records.push_back(record);
}

// `to` waits for what `from` holds.
void wait_stream(Script& script, int32_t to, int32_t from) {
  const auto id = int32_t(script.workload.records.size());
  event(script, RecordKind::event_record, id, from);
  event(script, RecordKind::event_wait, id, to);
}

struct Times {
  Times(const Script& script, const machine::Machine& machine)
      : program(script.lower(machine, 1, 1)), tasks(run_alone(program, machine)) {}

  // Start and end of the engines' and copies' tasks of a record.
  std::array<int64_t, 2> of(int64_t record) const {
    std::array<int64_t, 2> span{-1, -1};
    for (size_t t = 0; t < program.tasks.size(); ++t) {
      const Task& task = program.tasks[t];
      if (task.op < 0 || task.kind == TaskKind::load_weights) continue;
      const auto& records = program.ops[size_t(task.op)].records;
      if (std::find(records.begin(), records.end(), record) == records.end()) continue;
      span[0] = span[0] < 0 ? tasks[t][0] : std::min(span[0], tasks[t][0]);
      span[1] = std::max(span[1], tasks[t][1]);
    }
    return span;
  }
  Queue queue_of(int64_t record) const {
    for (const Task& task : program.tasks) {
      if (task.op < 0) continue;
      const auto& records = program.ops[size_t(task.op)].records;
      if (std::find(records.begin(), records.end(), record) == records.end()) continue;
      return program.queues[size_t(task.queue)];
    }
    return {};
  }

  Program program;
  std::vector<std::array<int64_t, 2>> tasks;
};

class HostCopies : public ::testing::TestWithParam<bool> {
 protected:
  machine::Machine machine() const { return GetParam() ? hopper() : trainium(1); }
  int64_t copy_ps() const { return GetParam() ? kHopperCopy_ps : kTrainiumCopy_ps; }
};

TEST_P(HostCopies, take_bytes_over_the_link_on_a_queue_each_way) {
  Script script;
  script.op(kRelu, {"x"}, {"y"}).op(kOut, {"y"}, {}).op(kIn, {}, {"z"});
  const Times times(script, machine());
  EXPECT_EQ(times.of(1)[1] - times.of(1)[0], copy_ps());
  EXPECT_EQ(times.of(2)[1] - times.of(2)[0], copy_ps());
  EXPECT_EQ(times.queue_of(1).kind, QueueKind::host_link);
  EXPECT_EQ(times.queue_of(1).index, 0);
  EXPECT_EQ(times.queue_of(2).kind, QueueKind::host_link);
  EXPECT_EQ(times.queue_of(2).index, 1);
}

TEST_P(HostCopies, on_the_stream_of_the_ops_are_in_turn_with_them) {
  Script script;
  script.op(kRelu, {"x"}, {"y"}).op(kOut, {"y"}, {}).op(kRelu, {"a"}, {"b"}).op(kIn, {}, {"z"});
  const Times times(script, machine());
  EXPECT_GE(times.of(1)[0], times.of(0)[1]);
  EXPECT_GE(times.of(2)[0], times.of(1)[1]);
  EXPECT_GE(times.of(3)[0], times.of(2)[1]);
}

TEST_P(HostCopies, on_a_stream_of_their_own_run_beside_the_ops) {
  Script with, without;
  for (Script* script : {&with, &without}) script->op(kRelu, {"x"}, {"y"});
  wait_stream(with, 1, 0);
  with.stream(1).op(kOut, {"y"}, {}).stream(0);
  for (Script* script : {&with, &without}) {
    for (int i = 0; i < 100; ++i) script->op(kRelu, {"b" + std::to_string(i)}, {"c"});
  }
  const Times times(with, machine());
  EXPECT_GE(times.of(3)[0], times.of(0)[1]);  // behind what its stream waits for
  EXPECT_LT(times.of(4)[0], times.of(3)[1]);
  // max(compute, copy): all of the copy hides.
  EXPECT_EQ(
      makespan(times.program, machine()) - makespan(without.lower(machine(), 1, 1), machine()),
      GetParam() ? 5'000'000 : 0);  // on a GPU, its launch
}

TEST_P(HostCopies, hold_up_a_stream_that_waits_for_them) {
  Script script;
  script.op(kRelu, {"x"}, {"y"});
  wait_stream(script, 1, 0);
  script.stream(1).op(kOut, {"y"}, {});
  wait_stream(script, 2, 0);
  script.stream(2).op(kRelu, {"p"}, {"q"});
  wait_stream(script, 0, 1);  // a later wait for another stream leaves this one
  wait_stream(script, 0, 2);
  script.stream(0).op(kRelu, {"a"}, {"b"});
  const Times times(script, machine());
  const auto last = int64_t(script.workload.records.size()) - 1;
  EXPECT_GE(times.of(last)[0], times.of(3)[1]);
}

TEST_P(HostCopies, go_both_ways_at_once) {
  Script script;
  script.op(kRelu, {"x"}, {"y"});
  wait_stream(script, 1, 0);
  wait_stream(script, 2, 0);
  script.stream(1).op(kOut, {"y"}, {}).op(kOut, {"x"}, {});
  script.stream(2).op(kIn, {}, {"z"});
  const Times times(script, machine());
  const auto first = times.of(5), second = times.of(6), back = times.of(7);
  EXPECT_EQ(second[0], first[1]);  // one way, in turn
  EXPECT_LT(back[0], first[1]);
}

TEST_P(HostCopies, end_before_the_host_reads_what_they_brought) {
  Script script;
  script.op(kRelu, {"x"}, {"y"}).op(kOut, {"y"}, {}).host_read({"y"});
  script.op(kRelu, {"a"}, {"b"});
  const Times times(script, machine());
  EXPECT_GE(times.of(3)[0], times.of(1)[1]);
}

INSTANTIATE_TEST_SUITE_P(Machines, HostCopies, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "hopper" : "trainium"; });

// Ops behind the event that a copy waits for make no part of what it waits for.
TEST(HostCopiesOfGraphs, wait_for_no_op_behind_their_event) {
  Script script;
  script.op(kRelu, {"x"}, {"y"});
  wait_stream(script, 1, 0);
  script.stream(1).op(kOut, {"y"}, {}).stream(0);
  std::string last = "y";
  for (int i = 0; i < 100; ++i) {
    const std::string next = "z" + std::to_string(i);
    script.op("aten::exp(self: float32[1048576]) -> (out0: float32[1048576])", {last}, {next});
    last = next;
  }
  const Times times(script, trainium(1));
  EXPECT_LT(times.of(3)[0], times.of(103)[0] + 3'000'000);
  EXPECT_EQ(times.of(4)[0], times.of(103)[0]);  // one group
  EXPECT_LT(times.of(3)[0], times.of(103)[1] - kTrainiumCopy_ps / 2);
}

// The copy stands between a product and its reader in the records, and not on the chip.
TEST(HostCopiesOfGraphs, leave_on_chip_what_stays_on_chip) {
  const std::string product =
      "aten::mm(self: bfloat16[512,512], mat2: bfloat16[512,512]) -> (out0: bfloat16[512,512])";
  const auto read_bytes = [&](bool copies) {
    Script script;
    script.op(product, {"x", "w"}, {"y"});
    wait_stream(script, 1, 0);
    if (copies) script.stream(1).op(kOut, {"other"}, {}).stream(0);
    script.op(product, {"y", "v"}, {"z"});
    const Program program = script.lower(trainium(1), 1, 1);
    const auto last = int64_t(script.workload.records.size()) - 1;
    for (const Op& op : program.ops) {
      if (op.records == std::vector<int64_t>{last}) return op.read_bytes;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(read_bytes(true), read_bytes(false));
  EXPECT_GT(read_bytes(true), 0);
}

}  // namespace
}  // namespace trnsim::lower::testing
