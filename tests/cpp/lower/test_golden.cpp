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

TEST(Golden, G5_gelu_alone_is_bound_by_the_hbm_and_as_an_epilogue_moves_nothing) {
  const std::string gelu = "aten::gelu(self: bfloat16[8192,4096]) -> (out0: bfloat16[8192,4096])";
  const Times times = times_of(gelu);
  EXPECT_EQ(times.scalar, 218'453'334);
  EXPECT_EQ(times.dma, 370'255'802);
  EXPECT_EQ(times.bound_ps, 370'255'802);
}

}  // namespace
}  // namespace trnsim::lower::testing
