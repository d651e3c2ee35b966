// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Whole steps: what is fused, what is ordered, what waits for what.
#include <gtest/gtest.h>

#include "lower/collectives.h"
#include "make.h"

namespace trnsim::lower::testing {
namespace {

using workload::CallKind;
using workload::MarkerKind;
using workload::Phase;

// A block of a transformer's MLP with its backward, [rows, 1024].
Script mlp(int64_t rows) {
  const std::string x = "bfloat16[" + std::to_string(rows) + ",1024]";
  const std::string h = "bfloat16[" + std::to_string(rows) + ",4096]";
  const std::string stats = "float32[" + std::to_string(rows) + ",1]";
  Script script;
  script.phase(Phase::forward);
  script.op("aten::native_layer_norm(input: " + x +
                ", weight: bfloat16[1024], bias: "
                "bfloat16[1024], normalized_shape=[1024], eps=1e-05f) -> (out0: " +
                x + ", out1: " + stats + ", out2: " + stats + ")",
            {"x", "gamma", "beta"}, {"n", "mean", "rstd"});
  script.op("aten::addmm(self: bfloat16[4096], mat1: " + x +
                ", mat2: bfloat16[1024,4096]{1,1024})"
                " -> (out0: " +
                h + ")",
            {"b1", "n", "w1"}, {"h"});
  script.op("aten::gelu(self: " + h + ") -> (out0: " + h + ")", {"h"}, {"g"});
  script.op("aten::addmm(self: bfloat16[1024], mat1: " + h +
                ", mat2: bfloat16[4096,1024]{1,4096})"
                " -> (out0: " +
                x + ")",
            {"b2", "g", "w2"}, {"o"});
  script
      .op("aten::add.Tensor(self: " + x + ", other: " + x + ") -> (out0: " + x + ")", {"o", "x"},
          {"y"})
      .free("o");
  script.phase(Phase::backward);
  script.op("aten::mm(self: bfloat16[1024," + std::to_string(rows) + "]{1,1024}, mat2: " + h +
                ") -> (out0: bfloat16[1024,4096])",
            {"y", "g"}, {"dw2"});
  script
      .op("aten::mm(self: " + x + ", mat2: bfloat16[1024,4096]) -> (out0: " + h + ")", {"y", "w2"},
          {"dg"})
      .free("g");
  script
      .op("aten::gelu_backward(grad_output: " + h + ", self: " + h + ") -> (out0: " + h + ")",
          {"dg", "h"}, {"dh"})
      .free("dg")
      .free("h");
  script
      .op("aten::mm(self: bfloat16[4096," + std::to_string(rows) + "]{1,4096}, mat2: " + x +
              ") -> (out0: bfloat16[4096,1024])",
          {"dh", "n"}, {"dw1"})
      .free("dh");
  return script;
}

int64_t bytes_of(const Program& program) {
  int64_t bytes = 0;
  for (const Op& op : program.ops) bytes += op.read_bytes + op.write_bytes;
  return bytes;
}

int64_t busy_ps(const Program& program, QueueKind kind) {
  int64_t sum = 0;
  for (const Task& task : program.tasks) {
    if (program.queues[size_t(task.queue)].kind == kind) sum += task.duration_ps;
  }
  return sum;
}

TEST(Step, fuses_an_epilogue_into_its_gemm_and_keeps_other_gemms_apart) {
  const Program program = mlp(8192).lower(trainium(1), 1, 1);
  std::vector<std::string> names;
  for (const Op& op : program.ops) names.push_back(op.name);
  EXPECT_EQ(names, (std::vector<std::string>{"aten::native_layer_norm", "aten::addmm + aten::gelu",
                                             "aten::addmm + aten::add.Tensor", "aten::mm",
                                             "aten::mm + aten::gelu_backward", "aten::mm"}));
  EXPECT_EQ(program.peak_dtype, "bfloat16");
}

TEST(Step, moves_no_more_bytes_fused_than_eager_and_takes_no_longer) {
  for (const int64_t rows : {128, 1024, 8192}) {
    const Script script = mlp(rows);
    const machine::Machine machine = trainium(1);
    const Program fused = script.lower(machine, 1, 1), eager = script.lower(machine, 1, 1, "eager");
    EXPECT_LT(bytes_of(fused), bytes_of(eager)) << rows;
    EXPECT_LE(makespan(fused, machine), makespan(eager, machine)) << rows;
    EXPECT_EQ(eager.ops.size(), 9u);
    int64_t busiest = 0;
    for (int kind = 0; kind < kQueueKindCount; ++kind) {
      busiest = std::max(busiest, busy_ps(fused, QueueKind(kind)));
    }
    EXPECT_GE(makespan(fused, machine), busiest) << rows;
  }
}

TEST(Step, takes_longer_for_more_rows_and_at_most_twice_for_twice) {
  const machine::Machine machine = trainium(1);
  int64_t before = 0;
  for (int64_t rows = 128; rows <= 16384; rows *= 2) {
    const int64_t now = makespan(mlp(rows).lower(machine, 1, 1), machine);
    EXPECT_GE(now, before) << rows;
    if (before) {
      EXPECT_LE(now, 2 * before + 30'000'000) << rows;
    }
    before = now;
  }
}

// Layers that repeat cost the same each: two extrapolate to all.
TEST(Step, grows_by_the_same_bytes_and_flops_with_every_layer) {
  const std::string x = "bfloat16[4096,1024]";
  const auto totals = [&](int layers) {
    Script script;
    for (int i = 0; i < layers; ++i) {
      const std::string at = std::to_string(i), next = "x" + std::to_string(i + 1);
      script.op("aten::mm(self: " + x + ", mat2: bfloat16[1024,1024]) -> (out0: " + x + ")",
                {"x" + at, "w" + at}, {"h" + at});
      script.op("aten::gelu(self: " + x + ") -> (out0: " + x + ")", {"h" + at}, {"g" + at});
      script
          .op("aten::add.Tensor(self: " + x + ", other: " + x + ") -> (out0: " + x + ")",
              {"g" + at, "x" + at}, {next})
          .free("g" + at);
    }
    const Program program = script.lower(trainium(1), 1, 1);
    int128 flops = 0;
    for (const Op& op : program.ops) flops += op.model_flops;
    return std::pair{bytes_of(program), int64_t(flops)};
  };
  const auto two = totals(2), three = totals(3), eight = totals(8);
  EXPECT_EQ(eight.first - two.first, 6 * (three.first - two.first));
  EXPECT_EQ(eight.second - two.second, 6 * (three.second - two.second));
}

TEST(Step, is_never_below_the_floor_of_its_ops) {
  const machine::Machine machine = trainium(1);
  const Program program = mlp(8192).lower(machine, 1, 1);
  for (const Op& op : program.ops) {
    EXPECT_GE(op.bound_ps, op.floor_ps) << op.name;
    EXPECT_GT(op.floor_ps, 0) << op.name;
  }
}

TEST(Step, orders_the_dma_queue_by_load_next_weights_store) {
  const Program program = mlp(8192).lower(trainium(1), 1, 1);
  std::vector<std::pair<TaskKind, int32_t>> order;
  for (const Task& task : program.tasks) {
    if (program.queues[size_t(task.queue)].kind == QueueKind::dma) {
      order.push_back({task.kind, task.op});
    }
  }
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    if (order[i].first != TaskKind::store) continue;
    // The weights of the next op stand before this op's store.
    EXPECT_FALSE(order[i + 1].first == TaskKind::load_weights &&
                 order[i + 1].second == order[i].second + 1);
  }
  EXPECT_EQ(order.front().first, TaskKind::load_weights);
  EXPECT_EQ(order.back().first, TaskKind::store);
}

TEST(Step, starts_an_op_after_the_ops_that_it_reads) {
  const machine::Machine machine = trainium(1);
  const Script script = mlp(1024);
  const Program program = script.lower(machine, 1, 1);
  const auto times = run_alone(program, machine);
  std::vector<int64_t> end(program.ops.size(), 0), start(program.ops.size(), INT64_MAX);
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    if (task.op < 0 || task.kind == TaskKind::load_weights) continue;
    if (task.kind == TaskKind::compute) {
      end[size_t(task.op)] = std::max(end[size_t(task.op)], times[i][1]);
    }
    start[size_t(task.op)] = std::min(start[size_t(task.op)], times[i][0]);
  }
  for (size_t op = 1; op < 3; ++op) EXPECT_GE(start[op], end[op - 1]) << program.ops[op].name;
}

// A small intermediate between two GEMMs stays in SBUF and is not read again; for another phase it
// is written all the same.
TEST(Step, keeps_a_small_intermediate_on_the_chip) {
  const std::string mm =
      "aten::mm(self: bfloat16[256,512], mat2: bfloat16[512,512]) -> (out0: bfloat16[256,512])";
  Script once, saved;
  once.op(mm, {"x", "w"}, {"y"}).op(mm, {"y", "v"}, {"z"}).free("y");
  saved.op(mm, {"x", "w"}, {"y"}).op(mm, {"y", "v"}, {"z"});
  const int64_t one = 256 * 512 * 2;
  const Program short_lived = once.lower(trainium(1), 1, 8);
  EXPECT_EQ(short_lived.ops[0].write_bytes, 0);
  EXPECT_EQ(saved.lower(trainium(1), 1, 8).ops[0].write_bytes, one);
  EXPECT_EQ(short_lived.ops[1].read_bytes, 512 * 512 * 2);
}

// The statistics of a batch norm need the whole convolution: it starts another op, which the
// activation joins.
TEST(Step, does_not_stream_a_convolution_into_a_batch_norm) {
  const std::string x = "bfloat16[128,256,56,56]";
  Script script;
  script.op("aten::convolution(input: " + x +
                ", weight: bfloat16[256,256,1,1], stride=[1,1], "
                "transposed=false, groups=1) -> (out0: " +
                x + ")",
            {"x", "w"}, {"y"});
  script.op("aten::native_batch_norm(input: " + x +
                ", weight: float32[256], bias: float32[256], "
                "training=true) -> (out0: " +
                x + ", out1: float32[256], out2: float32[256])",
            {"y", "g", "b"}, {"z", "mean", "rstd"});
  script.op("aten::relu(self: " + x + ") -> (out0: " + x + ")", {"z"}, {"r"});
  const Program program = script.lower(trainium(1), 1, 1);
  ASSERT_EQ(program.ops.size(), 2u);
  EXPECT_EQ(program.ops[1].name, "aten::native_batch_norm + aten::relu");
  const int64_t bytes = 128LL * 256 * 56 * 56 * 2;
  EXPECT_GE(program.ops[1].read_bytes, 2 * bytes);  // for the statistics, and to apply them
}

TEST(Step, launches_a_graph_again_after_a_host_read_and_around_an_optimizer) {
  const std::string add =
      "aten::add.Tensor(self: float32[64], other: float32[64]) -> (out0: "
      "float32[64])";
  Script script;
  script.op(add, {"a", "b"}, {"c"}).host_read({"c"}).op(add, {"c", "b"}, {"d"});
  script.marker(MarkerKind::optimizer_begin).op(add, {"d", "b"}, {"e"});
  script.marker(MarkerKind::optimizer_end);
  const machine::Machine machine = trainium(1);
  const Program program = script.lower(machine, 1, 1);
  int launches = 0, waits = 0;
  for (const Task& task : program.tasks) {
    launches += task.kind == TaskKind::launch;
    waits += task.kind == TaskKind::host_wait;
  }
  EXPECT_EQ(launches, 3);
  EXPECT_EQ(waits, 1);
  // Cold op, read, cold op: launch + P0 + op + Q0, twice at least.
  EXPECT_GE(makespan(program, machine), 2 * (13'000'000 + 3'800'000));
}

TEST(Step, overlaps_an_asynchronous_call_with_compute_until_its_wait) {
  const std::string mm =
      "aten::mm(self: bfloat16[8192,4096]{1,8192}, mat2: bfloat16[4096,4096]) ->"
      " (out0: bfloat16[8192,4096])";
  const machine::Machine machine = trainium(1);
  std::vector<int64_t> ranks(16);
  for (size_t i = 0; i < 16; ++i) ranks[i] = int64_t(i);
  const auto time_of = [&](bool wait_first) {
    Script script;
    script.workload.groups[0].ranks = workload::RankPattern::of(ranks);
    script.phase(Phase::backward).op(mm, {"x", "w"}, {"g"});
    script.call(CallKind::all_reduce, 0, 8192LL * 4096 * 2, "g");
    if (wait_first) script.wait();
    script.op(mm, {"x", "v"}, {"h"});
    if (!wait_first) script.wait();
    return makespan(script.lower(machine, 16, 1), machine);
  };
  EXPECT_LT(time_of(false), time_of(true));
}

TEST(Step, starts_a_call_after_the_op_that_writes_its_buffer_and_readers_after_the_call) {
  const std::string add =
      "aten::add.Tensor(self: float32[1048576], other: float32[1048576]) -> "
      "(out0: float32[1048576])";
  Script script;
  script.workload.groups[0].ranks = workload::RankPattern::of({0, 1, 2, 3});
  script.op(add, {"a", "b"}, {"g"}).call(CallKind::all_reduce, 0, 4 << 20, "g");
  script.op(add, {"g", "b"}, {"h"});
  const machine::Machine machine = trainium(1);
  const Program program = script.lower(machine, 4, 1);
  const auto times = run_alone(program, machine);
  int64_t call_start = -1, call_end = -1, store_end = -1, reader_start = -1;
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    if (task.kind == TaskKind::call) {
      call_start = times[i][0];
      call_end = times[i][1];
    }
    if (task.kind == TaskKind::store && task.op == 0) store_end = times[i][1];
    if (task.kind == TaskKind::load && task.op == 1) reader_start = times[i][0];
  }
  EXPECT_GE(call_start, store_end + machine.chip.neuron.drain_ps);
  EXPECT_EQ(reader_start, call_end + machine.chip.neuron.fill_ps);
}

TEST(Step, makes_no_call_for_a_group_of_one) {
  Script script;
  script.op("aten::relu(self: float32[64]) -> (out0: float32[64])", {"a"}, {"g"});
  script.call(CallKind::all_reduce, 0, 256, "g").wait();
  const Program program = script.lower(trainium(1), 1, 1);
  EXPECT_TRUE(program.calls.empty());
  EXPECT_EQ(busy_ps(program, QueueKind::collective), 0);
}

TEST(Step, puts_groups_on_streams_by_their_order) {
  Script script;
  script.workload.groups[0].ranks = workload::RankPattern::of({0, 1, 2, 3});
  const int32_t second = script.group({0, 1}), third = script.group({0, 2});
  for (const int32_t group : {0, second, third}) {
    script.call(CallKind::all_reduce, group, 4096, "g" + std::to_string(group));
  }
  std::vector<int32_t> streams;
  const Program program = script.lower(trainium(1), 4, 1);
  for (const Task& task : program.tasks) {
    if (task.kind == TaskKind::call) streams.push_back(program.queues[size_t(task.queue)].index);
  }
  EXPECT_EQ(streams, (std::vector<int32_t>{0, 1, 0}));  // 2 streams
}

TEST(Eager, launches_every_kernel_and_orders_its_stream) {
  const machine::Machine machine = hopper();
  const Program program = mlp(1024).lower(machine, 1, 1);
  EXPECT_EQ(program.ops.size(), 9u);
  EXPECT_EQ(program.hidden_host_ops, 9);
  EXPECT_EQ(busy_ps(program, QueueKind::host), 9 * machine.chip.gpu.host_launch_ps);
  const auto times = run_alone(program, machine);
  int64_t before = 0;
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    if (program.tasks[i].kind != TaskKind::compute) continue;
    EXPECT_GE(times[i][0], before);
    before = times[i][1];
  }
  EXPECT_THROW(mlp(1024).lower(machine, 1, 1, "fused"), Error);
}

TEST(Eager, launches_each_product_of_an_op_of_many_where_a_stack_says_so) {
  const std::string x = "bfloat16[16,64,64]";
  Script script;
  script.op("aten::bmm(self: " + x + ", mat2: " + x + ") -> (out0: " + x + ")", {"x", "w"}, {"y"});
  machine::Machine machine = hopper();
  const int64_t once_ps = machine.chip.gpu.host_launch_ps;
  EXPECT_EQ(busy_ps(script.lower(machine, 1, 1), QueueKind::host), once_ps);
  machine.stack.grouped_launches = {5, 2};
  EXPECT_EQ(busy_ps(script.lower(machine, 1, 1), QueueKind::host), 40 * once_ps);
}

// mm -> gelu -> add, all [1024, 1024] in bfloat16, and a norm of the rows of the sum.
Script pointwise_after_mm(const std::string& region) {
  const std::string x = "bfloat16[1024,1024]", stats = "float32[1024,1]";
  Script script;
  script.region(region);
  script.op("aten::mm(self: " + x + ", mat2: " + x + ") -> (out0: " + x + ")", {"x", "w"}, {"h"});
  script.op("aten::gelu(self: " + x + ") -> (out0: " + x + ")", {"h"}, {"g"}).free("h");
  script.op("aten::add.Tensor(self: " + x + ", other: " + x + ") -> (out0: " + x + ")", {"g", "x"},
            {"y"});
  script.free("g");
  script.op("aten::native_layer_norm(input: " + x +
                ", weight: bfloat16[1024], bias: "
                "bfloat16[1024], normalized_shape=[1024], eps=1e-05f) -> (out0: " +
                x + ", out1: " + stats + ", out2: " + stats + ")",
            {"y", "gamma", "beta"}, {"n", "mean", "rstd"});
  return script;
}

TEST(Eager, fuses_in_a_compiled_region_but_nothing_with_a_product) {
  const machine::Machine machine = hopper();
  const Program eager = pointwise_after_mm("").lower(machine, 1, 1);
  const Program compiled = pointwise_after_mm("compiled").lower(machine, 1, 1);
  EXPECT_EQ(eager.ops.size(), 4u);
  ASSERT_EQ(compiled.ops.size(), 2u);
  EXPECT_EQ(compiled.ops[0].name, "aten::mm");
  EXPECT_EQ(compiled.ops[1].name, "aten::gelu + aten::add.Tensor + aten::native_layer_norm");
  // gelu writes nothing: the product and x are read, y (it outlives the step) and the norm's three
  // results are written, and gamma and beta are read.
  const int64_t tensor = 1024 * 1024 * 2, row = 1024 * 2, stats = 1024 * 4;
  EXPECT_EQ(compiled.ops[1].read_bytes, 2 * tensor + 2 * row);
  EXPECT_EQ(compiled.ops[1].write_bytes, 2 * tensor + 2 * stats);
  EXPECT_EQ(compiled.hidden_host_ops, 2);
  // Asked to be eager, it is.
  EXPECT_EQ(pointwise_after_mm("compiled").lower(machine, 1, 1, "eager").ops.size(), 4u);
}

TEST(Eager, fuses_nothing_across_the_end_of_a_region) {
  const std::string x = "bfloat16[1024,1024]";
  Script script;
  for (const char* name : {"a", "b"}) {
    const bool first = name[0] == 'a';
    script.region(name).op("aten::gelu(self: " + x + ") -> (out0: " + x + ")", {first ? "x" : "y"},
                           {first ? "y" : "z"});
  }
  EXPECT_EQ(script.lower(hopper(), 1, 1).ops.size(), 2u);
}

TEST(Flops, of_recomputation_do_not_count) {
  const std::string mm =
      "aten::mm(self: bfloat16[256,512], mat2: bfloat16[512,512]) -> (out0: bfloat16[256,512])";
  Script script;
  script.phase(Phase::forward).op(mm, {"x", "w"}, {"y"});
  script.phase(Phase::recomputation).op(mm, {"x", "w"}, {"z"});
  const Program program = script.lower(trainium(1), 1, 1);
  EXPECT_EQ(program.ops[0].model_flops, int128(2) * 256 * 512 * 512);
  EXPECT_EQ(program.ops[1].model_flops, 0);
}

TEST(Check, refuses_a_dependence_that_points_forward) {
  Program program = mlp(128).lower(trainium(1), 1, 1);
  EXPECT_NO_THROW(check_program(program));
  program.deps.back().task = int32_t(program.tasks.size());
  EXPECT_THROW(check_program(program), Error);
}

}  // namespace
}  // namespace trnsim::lower::testing
