// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The golden examples of one physical core (or one collective), to the picosecond.
#include <gtest/gtest.h>

#include "lower/collectives.h"
#include "make.h"

namespace trnsim::lower::testing {
namespace {

// ps of the engines and of the DMA of an op alone on one core.
struct Times {
  int64_t tensor = 0, vector = 0, scalar = 0, gpsimd = 0, dma = 0, total = 0;
  int64_t bytes = 0;
  QueueKind bound = QueueKind::dma;
  int64_t bound_ps = 0;
};

Times times_of(const std::string& text) {
  const workload::Signature signature = workload::Signature::parse(text);
  std::vector<std::string> inputs, outputs;
  for (size_t i = 0; i < signature.inputs.size(); ++i) inputs.push_back("in" + std::to_string(i));
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    outputs.push_back("out" + std::to_string(i));
  }
  const machine::Machine machine = trainium(1);
  const Program program = Script().op(text, inputs, outputs).lower(machine, 1, 8);
  Times times;
  for (const Task& task : program.tasks) {
    switch (program.queues[size_t(task.queue)].kind) {
      case QueueKind::tensor:
        times.tensor += task.duration_ps;
        break;
      case QueueKind::vector:
        times.vector += task.duration_ps;
        break;
      case QueueKind::scalar:
        times.scalar += task.duration_ps;
        break;
      case QueueKind::gpsimd:
        times.gpsimd += task.duration_ps;
        break;
      case QueueKind::dma:
        times.dma += task.duration_ps;
        break;
      default:
        break;
    }
  }
  times.dma -= machine.chip.neuron.drain_ps;  // of the last store
  times.total = makespan(program, machine) - machine.chip.neuron.launch_ps;
  times.bytes = program.ops.at(0).read_bytes + program.ops[0].write_bytes;
  times.bound = program.ops[0].bound;
  times.bound_ps = program.ops[0].bound_ps;
  return times;
}

TEST(Golden, G1_a_matmul_is_bound_by_the_tensor_engine) {
  // Operands with the contraction axis on the partitions, so that nothing is transposed.
  const Times times = times_of(
      "aten::mm(self: bfloat16[4096,4096]{1,4096}, mat2: bfloat16[4096,4096]) -> "
      "(out0: bfloat16[4096,4096])");
  EXPECT_EQ(times.tensor, 1'747'626'667);
  EXPECT_EQ(times.vector, 546'133'334);
  EXPECT_EQ(times.bytes, 201'326'592);
  EXPECT_EQ(times.dma, 677'647'059);
  EXPECT_EQ(times.bound, QueueKind::tensor);
  EXPECT_EQ(times.total, 1'747'626'667 + 3'800'000);  // measured 1,801 us
}

TEST(Golden, G2_a_matrix_times_a_vector_is_bound_by_the_hbm) {
  const Times times = times_of(
      "aten::mm(self: bfloat16[1,8192], mat2: bfloat16[8192,8192]) -> (out0: bfloat16[1,8192])");
  EXPECT_EQ(times.bytes, 134'250'496);
  EXPECT_EQ(times.dma, 370'346'196);
  EXPECT_EQ(times.bound, QueueKind::dma);
  EXPECT_EQ(times.total, 370'346'196 + 3'800'000);
  const Cost alone = cost(
      "aten::mm(self: bfloat16[1,8192], mat2: bfloat16[8192,8192]) -> (out0: bfloat16[1,8192])",
      one_core());
  EXPECT_EQ(alone.tensor_cycles, 262'144);
  EXPECT_EQ(alone.vector_cycles, 4'096);
}

TEST(Golden, G3_rms_norm_is_bound_by_the_vector_engine) {
  const Times times = times_of(
      "aten::_fused_rms_norm(input: bfloat16[4096,4096], weight: bfloat16[4096], "
      "normalized_shape=[4096]) -> (out0: bfloat16[4096,4096])");
  EXPECT_EQ(times.scalar, 112'640'000);
  EXPECT_EQ(times.vector, 273'066'667);
  EXPECT_EQ(times.tensor, 54'613'334);
  EXPECT_EQ(times.bytes, 67'117'056);
  EXPECT_EQ(times.dma, 185'150'500);
  EXPECT_EQ(times.bound, QueueKind::vector);
}

TEST(Golden, G4_softmax_is_bound_by_the_hbm) {
  const Times times = times_of(
      "aten::_softmax(self: bfloat16[8192,4096], dim=-1, half_to_float=false) -> "
      "(out0: bfloat16[8192,4096])");
  EXPECT_EQ(times.vector, 209'066'667);
  EXPECT_EQ(times.scalar, 221'866'667);
  EXPECT_EQ(times.dma, 370'255'802);
  EXPECT_EQ(times.bound, QueueKind::dma);
}

TEST(Golden, G5_gelu_alone_is_bound_by_the_hbm_and_as_an_epilogue_moves_nothing) {
  const std::string gelu = "aten::gelu(self: bfloat16[8192,4096]) -> (out0: bfloat16[8192,4096])";
  const Times times = times_of(gelu);
  EXPECT_EQ(times.scalar, 218'453'334);
  EXPECT_EQ(times.dma, 370'255'802);
  EXPECT_EQ(times.bound_ps, 370'255'802);

  const std::string mm =
      "aten::mm(self: bfloat16[8192,1024]{1,8192}, mat2: bfloat16[1024,4096]) -> "
      "(out0: bfloat16[8192,4096])";
  Script alone, fused;
  alone.op(mm, {"x", "w"}, {"y"});
  fused.op(mm, {"x", "w"}, {"y"}).op(gelu, {"y"}, {"z"}).free("y");
  const Program without = alone.lower(trainium(1), 1, 8), with = fused.lower(trainium(1), 1, 8);
  ASSERT_EQ(with.ops.size(), 1u);
  EXPECT_EQ(with.ops[0].write_bytes, without.ops[0].write_bytes);
  EXPECT_EQ(with.ops[0].read_bytes, without.ops[0].read_bytes);
  // 64 row tiles x 4096 cycles of the scalar engine in place of as many of the vector engine.
  int64_t vector_ps = 0, scalar_ps = 0;
  for (const Task& task : with.tasks) {
    const QueueKind kind = with.queues[size_t(task.queue)].kind;
    if (kind == QueueKind::vector) vector_ps += task.duration_ps;
    if (kind == QueueKind::scalar) scalar_ps += task.duration_ps;
  }
  EXPECT_EQ(scalar_ps, 218'453'334);
  EXPECT_EQ(vector_ps, 0);
}

TEST(Golden, G6_adamw_is_bound_by_the_hbm) {
  const std::string n = "float32[125000000]";
  const Times times = times_of("aten::_fused_adamw_(self#0!: " + n + ", grads#0!: " + n +
                               ", exp_avgs#0!: " + n + ", exp_avg_sqs#0!: " + n + ") -> ()");
  EXPECT_EQ(times.vector, 9'155'278'125);
  EXPECT_EQ(times.scalar, 3'255'210'000);
  EXPECT_EQ(times.bytes, 3'500'000'000);
  EXPECT_EQ(times.dma, 9'655'172'414);
  EXPECT_EQ(times.bound, QueueKind::dma);  // with reciprocal and multiply it would be the vector
}

TEST(Golden, G7_an_embedding_is_bound_by_the_hbm) {
  const Times times = times_of(
      "aten::embedding(weight: bfloat16[128256,4096], indices: int32[8192]) -> "
      "(out0: bfloat16[8192,4096])");
  EXPECT_EQ(times.bytes, 134'250'496);
  EXPECT_EQ(times.dma, 370'346'196);
  EXPECT_EQ(times.gpsimd, 32'000'000);
  const Times backward = times_of(
      "aten::embedding_dense_backward(grad_output: bfloat16[8192,4096], indices: int32[8192], "
      "num_weights=128256) -> (out0: bfloat16[128256,4096])");
  EXPECT_EQ(backward.bytes, 201'326'592 + 1'050'673'152 + 32'768);
}

TEST(Golden, G8_causal_attention_is_bound_by_the_vector_engine) {
  const std::string t = "bfloat16[1,1,8192,128]";
  const std::string forward = "aten::_scaled_dot_product_fused_attention_overrideable(query: " + t +
                              ", key: " + t + ", value: " + t +
                              ", dropout_p=0.0f, is_causal=true) -> (out0: " + t + ")";
  const Times times = times_of(forward);
  EXPECT_EQ(times.tensor, 226'986'667);
  EXPECT_EQ(times.vector, 394'666'667);
  EXPECT_EQ(times.scalar, 267'946'667);
  EXPECT_EQ(times.gpsimd, 35'306'667);
  EXPECT_EQ(times.bytes, 8'388'608);
  EXPECT_EQ(times.dma, 350'820'988);
  EXPECT_EQ(times.bound, QueueKind::vector);
  // 32 heads over the 8 cores of a chip: 4 a core.
  const workload::Signature heads = workload::Signature::parse(
      "aten::_scaled_dot_product_fused_attention_overrideable(query: bfloat16[1,32,8192,128], key: "
      "bfloat16[1,32,8192,128], value: bfloat16[1,32,8192,128], is_causal=true) -> (out0: "
      "bfloat16[1,32,8192,128])");
  EXPECT_EQ(duration_ps(cost_of(heads, whole_chip()).vector_cycles, Rational::parse("0.96e9")),
            1'578'666'667);
  const Times backward =
      times_of("aten::_scaled_dot_product_fused_attention_overrideable_backward(grad_out: " + t +
               ", query: " + t + ", key: " + t + ", value: " + t + ", out: " + t +
               ", is_causal=true) -> (out0: " + t + ", out1: " + t + ", out2: " + t + ")");
  EXPECT_EQ(backward.vector, 1'305'600'000);
  EXPECT_EQ(backward.tensor, 725'333'334);
}

TEST(Golden, G10_cross_entropy_is_bound_by_the_vector_engine) {
  const Times times = times_of(
      "aten::cross_entropy_loss(self: bfloat16[1024,128256], target: int32[1024]) -> "
      "(out0: float32[])");
  const Cost alone = cost(
      "aten::cross_entropy_loss(self: bfloat16[1024,128256], target: int32[1024]) -> "
      "(out0: bfloat16[])",
      one_core());
  EXPECT_EQ(alone.vector_cycles, 1'324'544);
  EXPECT_EQ(alone.scalar_cycles, 1'051'136);
  EXPECT_EQ(alone.least_dma_ps, 307'200'000);
  EXPECT_EQ(times.vector, 1'379'733'334);
  EXPECT_EQ(times.scalar, 875'946'667);
  EXPECT_EQ(times.bytes, 262'668'288 + 4 * 1024 + 4);
  EXPECT_EQ(times.bound, QueueKind::vector);
}

}  // namespace
}  // namespace trnsim::lower::testing
