// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// TPUs: padding by hand, one launch a graph, and collectives on a torus.
#include <gtest/gtest.h>

#include <numeric>

#include "lower/collectives.h"
#include "lower/group.h"
#include "make.h"

namespace trnsim::lower::testing {
namespace {

using workload::CallKind;
using workload::MarkerKind;

// 4 x 4 chips of 100 TFLOP/s and 1 TB/s, links of 100 GB/s; X closes, Y does not.
machine::Machine tpu(int64_t mxu = 128) {
  machine::Machine machine;
  machine.name = machine.chip.name = "tpu-golden";
  machine.chip.architecture = machine::Architecture::tpu;
  machine.chip.peaks.published_flops["bfloat16"] = Rational::parse("100e12");
  machine.chip.peaks.published_flops["float32"] = Rational::parse("50e12");
  machine.chip.peaks.physical_flops = machine.chip.peaks.published_flops;
  machine.chip.hbm = {16LL << 30, 0, Rational::parse("1e12"), {1, 1}};
  machine.chip.ranks_per_chip_allowed = {1, 2};
  machine::Tpu& chip = machine.chip.tpu;
  chip.cores = 2;
  chip.mxu = mxu;
  chip.sublanes = 8;
  chip.vmem_bytes = 1 << 20;
  chip.vmem_resident_fraction = {1, 2};
  chip.gemm_efficiency["bfloat16"] = chip.gemm_efficiency["float32"] = {1, 1};
  chip.attention.used = "splash";
  chip.attention.rates["splash"] = {{128, true, false, Rational::parse("60e12"), 1024}};
  chip.fusion_ps = 1'000'000;
  chip.launch_ps = 20'000'000;
  machine.chip.collectives.library = "tpu";
  machine.chip.collectives.ring_step_ps = 1'000'000;
  machine.chip.collectives.link_efficiency = {1, 1};
  machine.chip.collectives.in_chip_copy_Bps = Rational::parse("600e9");
  machine.server.chips = 4;
  machine.server.host_link_Bps = Rational::parse("10e9");
  machine.torus = {4, 4, 1};
  machine.torus_axis_Bps = {Rational::parse("100e9"), Rational::parse("100e9"), {}};
  machine.slices = {{{1, 1, 1}, {}}, {{2, 2, 1}, {}}, {{4, 4, 1}, {true, false, false}}};
  machine.job_chips = 16;
  return machine;
}

std::string product(int64_t m, int64_t n, int64_t k, const std::string& dtype = "bfloat16") {
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return dtype + "[" + std::to_string(rows) + "," + std::to_string(columns) + "]";
  };
  return "aten::mm(self: " + matrix(m, k) + ", mat2: " + matrix(k, n) +
         ") -> (out0: " + matrix(m, n) + ")";
}

int64_t matrix_ps(const std::string& text, int64_t mxu = 128, int64_t ranks_per_chip = 1) {
  const Target target = make_target(tpu(mxu), ranks_per_chip);
  return tpu_matrix_ps(cost(text, target), target);
}

TEST(Tpu, takes_whole_tiles_as_they_are) {
  // 2 x 256 x 512 x 1024 = 268,435,456 FLOPs at 100 TFLOP/s
  EXPECT_EQ(matrix_ps(product(256, 512, 1024)), 2'684'355);
}

TEST(Tpu, pads_rows_to_8_and_columns_and_contraction_to_128) {
  // 9 x 200 x 100 -> 16 x 256 x 128: 1,048,576 FLOPs
  EXPECT_EQ(matrix_ps(product(9, 200, 100)), 10'486);
  // 1 x 4096 x 4096: 8 rows
  EXPECT_EQ(matrix_ps(product(1, 4096, 4096)), matrix_ps(product(8, 4096, 4096)));
  // either side may be the rows: 4096 x 1 -> 8 x 4096
  EXPECT_EQ(matrix_ps(product(4096, 1, 4096)), matrix_ps(product(8, 4096, 4096)));
  // one column more than a tile costs a whole one
  EXPECT_EQ(matrix_ps(product(1024, 129, 1024)), matrix_ps(product(1024, 136, 1024)));
  EXPECT_EQ(matrix_ps(product(129, 129, 1024)), matrix_ps(product(136, 256, 1024)));
}

TEST(Tpu, pads_to_256_where_the_matrix_unit_is_larger) {
  EXPECT_EQ(matrix_ps(product(1024, 1024, 128), 256), matrix_ps(product(1024, 1024, 256), 256));
  EXPECT_EQ(matrix_ps(product(1024, 1024, 256), 256), matrix_ps(product(1024, 1024, 256), 128));
}

TEST(Tpu, a_rank_has_its_share_of_the_chip_and_an_unknown_dtype_float32_s_rate) {
  EXPECT_EQ(matrix_ps(product(256, 512, 1024), 128, 2), 5'368'710);
  EXPECT_EQ(matrix_ps(product(256, 512, 1024, "float64")), 5'368'710);
}

Script step() {
  Script script;
  script.op(product(1024, 1024, 1024), {"x", "w"}, {"y"});
  script.op("aten::gelu(self: bfloat16[1024,1024]) -> (out0: bfloat16[1024,1024])", {"y"}, {"z"});
  script.marker(MarkerKind::optimizer_begin);
  script.phase(workload::Phase::optimizer);
  script.op("aten::add_.Tensor(self!: bfloat16[1024,1024], other: bfloat16[1024,1024]) -> ()",
            {"w", "z"}, {});
  script.marker(MarkerKind::optimizer_end);
  return script;
}

TEST(Tpu, fuses_pointwise_ops_with_a_product_and_launches_a_step_once) {
  const Program program = step().lower(tpu(), 1, 1);
  ASSERT_EQ(program.ops.size(), 2u);
  EXPECT_EQ(program.ops[0].name, "aten::mm + aten::gelu");
  EXPECT_EQ(program.ops[0].read_bytes, 4 << 20);
  int64_t launches = 0;
  for (const Task& task : program.tasks) launches += task.kind == TaskKind::launch;
  EXPECT_EQ(launches, 1);
  // 2 x 1024^3 FLOPs at 100 TFLOP/s; 6 MiB at 1 TB/s would take 6.3 us, and half of VMEM's MiB of
  // them comes first; 1 us is the fusion's own
  EXPECT_EQ(program.ops[0].bound, QueueKind::tensor);
  EXPECT_EQ(program.ops[0].bound_ps, 21'474'837 + 524'288 + 1'000'000);
  EXPECT_EQ(program.ops[1].bound, QueueKind::dma);
}

TEST(Tpu, a_small_fusion_takes_the_shortest) {
  Script script;
  script.op("aten::gelu(self: bfloat16[8]) -> (out0: bfloat16[8])", {"x"}, {"y"});
  const Program program = script.lower(tpu(), 1, 1);
  ASSERT_EQ(program.ops.size(), 1u);
  EXPECT_EQ(program.ops[0].bound_ps, 1'000'000);
  EXPECT_EQ(program.ops[0].bound, QueueKind::vector);
}

TEST(Tpu, attention_runs_at_its_table_s_rate) {
  const Target target = make_target(tpu(), 1);
  const std::string shape = "bfloat16[1,16,1024,128]";
  const Cost attention =
      cost("aten::_scaled_dot_product_flash_attention(query: " + shape + ", key: " + shape +
               ", value: " + shape + ", is_causal=true) -> (out0: " + shape + ")",
           target);
  // 4 x 16 x 1024 x 1024 x 128 / 2 FLOPs at 60 x 1024 / 2048 TFLOP/s
  EXPECT_EQ(tpu_matrix_ps(attention, target), 143'165'577);
}

CallTemplate call_of(CallKind kind, int64_t bytes, const std::vector<int64_t>& ranks,
                     int64_t chips) {
  machine::Placement placement;
  placement.chips = placement.ranks = chips;
  workload::Call call;
  call.kind = kind;
  call.bytes = bytes;
  const machine::Machine machine = tpu();
  return make_call(call, 0, shapes_of(workload::RankPattern::of(ranks), machine, placement),
                   machine, "");
}

std::vector<int64_t> first(int64_t count) {
  std::vector<int64_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(TpuCollectives, of_all_chips_use_every_link_at_once) {
  // A closed X has two links a chip, an open Y counts as one: 15/16 of 48 MB over three.
  const CallTemplate call = call_of(CallKind::all_gather, 48'000'000, first(16), 16);
  EXPECT_EQ(call.algorithm, "axes");
  ASSERT_EQ(call.phases.size(), 1u);
  EXPECT_EQ(call.phases[0].pattern, Pattern::axes_spread);
  EXPECT_EQ(call.phases[0].bytes, 15'000'000);
  EXPECT_EQ(call.phases[0].steps, 2 + 3);
  EXPECT_EQ(alone_ps(call, tpu()), 150'000'000 + 5'000'000);
  const CallTemplate reduce = call_of(CallKind::all_reduce, 48'000'000, first(16), 16);
  EXPECT_EQ(alone_ps(reduce, tpu()), 2 * 155'000'000);
}

TEST(TpuCollectives, of_a_row_or_part_of_one_go_along_it) {
  EXPECT_EQ(call_of(CallKind::all_gather, 1 << 20, {0, 1, 2, 3}, 16).algorithm, "axes");
  EXPECT_EQ(call_of(CallKind::all_gather, 1 << 20, {0, 1}, 16).algorithm, "axis_rings");
  EXPECT_EQ(call_of(CallKind::all_gather, 1 << 20, {0, 5, 7}, 16).algorithm, "ring");
}

}  // namespace
}  // namespace trnsim::lower::testing
