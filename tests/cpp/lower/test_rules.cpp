// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What must hold of the rules whatever their constants.
#include <gtest/gtest.h>

#include <numeric>

#include "lower/group.h"
#include "lower/rules/families.h"
#include "make.h"

namespace trnsim::lower::testing {
namespace {

std::string mm(int64_t m, int64_t k, int64_t n, const std::string& dtype = "bfloat16") {
  const auto size = [](int64_t a, int64_t b) {
    return "[" + std::to_string(a) + "," + std::to_string(b) + "]";
  };
  return "aten::mm(self: " + dtype + size(m, k) + "{1," + std::to_string(m) + "}, mat2: " + dtype +
         size(k, n) + ") -> (out0: " + dtype + size(m, n) + ")";
}

int64_t bytes_of(const Cost& cost) {
  int64_t bytes = 0;
  for (const Stream& stream : cost.streams) bytes += stream.bytes;
  return bytes;
}

TEST(Registry, refuses_a_second_rule_of_an_op) {
  Registry registry;
  registry.add({"aten::mm", "matmul", "here", nullptr});
  EXPECT_THROW(registry.add({"aten::mm", "matmul", "there", nullptr}), Error);
}

TEST(Registry, finds_overloads_and_in_place_forms) {
  EXPECT_EQ(registry().find("aten::add_.Tensor"), registry().find("aten::add.Scalar"));
  EXPECT_EQ(registry().find("aten::_foreach_mul_.List")->family, "pointwise");
  EXPECT_NE(registry().find("aten::pow.Tensor_Scalar"), registry().find("aten::pow.Scalar"));
  EXPECT_EQ(registry().find("aten::no_such_op"), nullptr);
}

TEST(Fallback, costs_its_bytes_and_a_pass_and_is_named) {
  const Cost made =
      cost("mylib::fancy(x: float32[1000,1000]) -> (out0: float32[1000,1000])", one_core());
  EXPECT_EQ(made.rule_class, RuleClass::fallback);
  EXPECT_EQ(bytes_of(made), 8'000'000);
  EXPECT_GT(made.vector_cycles, 0);
  Script script;
  script.op("mylib::fancy(x: float32[8]) -> (out0: float32[8])", {"x"}, {"y"});
  const Program program = script.lower(trainium(1), 1, 1);
  EXPECT_EQ(program.ops.at(0).rule_class, RuleClass::fallback);
  const auto named = [](const Guess& guess) { return guess.value == "mylib::fancy"; };
  EXPECT_TRUE(std::any_of(program.guesses.begin(), program.guesses.end(), named));
}

TEST(Movement, copies_with_the_host_are_bound_by_its_link) {
  Script script;
  script.op("trnsim::copy_h2d(src: float32[31,1000000]) -> (out0: float32[31,1000000])", {"x"},
            {"y"});
  for (const machine::Machine& machine : {trainium(1), hopper()}) {
    const Program program = script.lower(machine, 1, 1);
    EXPECT_EQ(program.ops.at(0).bound, QueueKind::host);
    EXPECT_EQ(program.ops.at(0).floor_ps, program.ops.at(0).bound_ps);
  }
}

TEST(Movement, copies_with_the_host_take_the_rank_s_share_of_its_link) {
  const std::string batch = "(src: float32[31,1000000]) -> (out0: float32[31,1000000])";
  const auto step_ps = [&](const std::string& op, const machine::Machine& machine,
                           int64_t ranks_per_chip) {
    Script script;
    script.op(op + batch, {"x"}, {"y"});
    const Program program = script.lower(machine, 1, ranks_per_chip);
    return program.ops.at(0).bound_ps;
  };
  for (const std::string op : {"trnsim::copy_h2d", "trnsim::copy_d2h"}) {
    EXPECT_EQ(step_ps(op, trainium(1), 1), 4'000'000'000);  // 124 MB at 31 GB/s
    EXPECT_EQ(step_ps(op, trainium(1), 4), 16'000'000'000);
  }
  EXPECT_EQ(step_ps("trnsim::copy_h2d", hopper(), 1), 2'254'545'455);  // at 55 GB/s
}

// The gradient of sum() is one value with strides 0: spread inside the chip, never read one by one.
TEST(Matmul, reads_an_expanded_operand_no_slower_than_a_stored_one) {
  const auto make = [](const std::string& strides) {
    return cost("aten::mm(self: float32[1024,2048]" + strides +
                    ", mat2: float32[2048,8192]) -> (out0: float32[1024,8192])",
                one_core());
  };
  for (const std::string strides : {"{0,0}", "{0,1}"}) {
    const Cost spread = make(strides), stored = make("");
    EXPECT_LE(bytes_of(spread), bytes_of(stored));
    for (size_t i = 0; i < stored.streams.size(); ++i) {
      EXPECT_GE(spread.streams[i].run_bytes, stored.streams[i].run_bytes) << strides;
    }
  }
}

TEST(Matmul, in_float32_takes_four_times_the_tensor_cycles_and_twice_the_bytes) {
  const Cost half = cost(mm(4096, 4096, 4096), one_core());
  const Cost full = cost(mm(4096, 4096, 4096, "float32"), one_core());
  EXPECT_EQ(full.tensor_cycles, 4 * half.tensor_cycles);
  EXPECT_EQ(bytes_of(full), 2 * bytes_of(half));
}

TEST(Matmul, of_up_to_64_rows_takes_the_tensor_time_of_one) {
  const int64_t one = cost(mm(1, 8192, 8192), one_core()).tensor_cycles;
  for (const int64_t rows : {2, 16, 64}) {
    EXPECT_EQ(cost(mm(rows, 8192, 8192), one_core()).tensor_cycles, one) << rows;
  }
  EXPECT_EQ(cost(mm(128, 8192, 8192), one_core()).tensor_cycles, 2 * one);
}

TEST(Matmul, pays_a_small_tile_for_one_more_column) {
  const int64_t even = cost(mm(128, 128, 512), one_core()).tensor_cycles;
  const int64_t odd = cost(mm(128, 128, 513), one_core()).tensor_cycles;
  EXPECT_EQ(odd - even, 64);
}

// A transposed operand costs 128 / N of the GEMM on the tensor engine.
TEST(Matmul, pays_for_the_transposition_of_an_activation) {
  for (const int64_t n : {4096, 832, 416}) {
    const std::string shape = "[4096," + std::to_string(n) + "]";
    const auto tensor_ps = [&](const std::string& strides) {
      Script script;
      // The activation comes from an op that is no GEMM, and is too large to stay on the chip.
      script.op("aten::cumsum(self: bfloat16[4096,4096]" + strides +
                    ", dim=0) -> (out0: "
                    "bfloat16[4096,4096]" +
                    strides + ")",
                {"a"}, {"x"});
      script.op("aten::mm(self: bfloat16[4096,4096]" + strides + ", mat2: bfloat16" + shape +
                    ") -> (out0: bfloat16" + shape + ")",
                {"x", "w"}, {"y"});
      const Program program = script.lower(trainium(1), 1, 8);
      int64_t sum = 0;
      for (const Task& task : program.tasks) {
        if (program.queues[size_t(task.queue)].kind == QueueKind::tensor) sum += task.duration_ps;
      }
      return sum;
    };
    const double tax = double(tensor_ps("")) / double(tensor_ps("{1,4096}")) - 1;
    EXPECT_NEAR(tax, 128.0 / double(n), 0.01) << n;
  }
}

TEST(Attention, that_is_causal_takes_little_more_than_half_of_the_tensor_time) {
  const auto tensor = [](const std::string& causal) {
    const std::string t = "bfloat16[1,1,8192,128]";
    return cost("aten::_scaled_dot_product_fused_attention_overrideable(query: " + t + ", key: " +
                    t + ", value: " + t + ", is_causal=" + causal + ") -> (out0: " + t + ")",
                one_core());
  };
  const Cost causal = tensor("true"), full = tensor("false");
  EXPECT_NEAR(double(causal.tensor_cycles) / double(full.tensor_cycles), 0.53, 0.02);
  EXPECT_EQ(causal.model_flops, full.model_flops);
  EXPECT_EQ(2 * causal.model_flops_causal, full.model_flops_causal);
}

// 128 x 1024 values on one core: a count of N and a running sum of 2N; 128 rows are 600 cycles of
// descriptors, and the values are read for each of the two.
TEST(Indexing, nonzero_counts_and_then_places_each_index) {
  const Cost made =
      cost("aten::nonzero(self: float32[128,1024]) -> (out0: int64[128,2])", one_core());
  EXPECT_EQ(made.rule_class, RuleClass::formula);
  EXPECT_EQ(made.vector_cycles, 1024 + 2 * 1024);
  EXPECT_EQ(made.gpsimd_cycles, 600);
  EXPECT_EQ(bytes_of(made), 2 * 128 * 1024 * 4 + 128 * 2 * 8);
  const Cost check = cost("aten::_assert_async.msg(self: bool[]) -> ()", one_core());
  EXPECT_EQ(check.rule_class, RuleClass::formula);
  EXPECT_GT(check.vector_cycles, 0);
}

TEST(Gpu, a_few_more_tiles_than_a_wave_are_slower_for_each_flop) {
  const Target target = make_target(hopper(), 1);
  const auto flops = [&](int64_t n) {
    const Cost made = cost(mm(n, n, n), target);
    return 2.0 * double(n) * double(n) * double(n) /
           double(gpu_kernel(made, bytes_of(made), target).time_ps);
  };
  EXPECT_NEAR(flops(4096), 786.0, 2.0);  // TFLOP/s: FLOPs per ps
  EXPECT_NEAR(flops(4352), 710.0, 20.0);
  EXPECT_LT(flops(4352), flops(4096));
}

TEST(Gpu, products_in_8_bits_take_smaller_tiles_where_these_fill_the_waves) {
  Target target = make_target(hopper(), 1);
  const auto time_ps = [&](const std::string& dtype) {
    Cost made;
    made.dtype = dtype;
    made.gemms = {{1, 1024, 9216, 14336}};
    return gpu_kernel(made, 0, target).time_ps;
  };
  // 8 x 36 tiles of 128 x 256 are 3 waves of 132, 8 x 144 of 128 x 64 are 9 of a quarter of that.
  target.chip.peaks.physical_flops["float8_e4m3fn"] = target.chip.peaks.physical_flops["bfloat16"];
  target.chip.gpu.gemm_efficiency["float8_e4m3fn"] = target.chip.gpu.gemm_efficiency["bfloat16"];
  EXPECT_NEAR(double(time_ps("float8_e4m3fn")) / double(time_ps("bfloat16")), 0.75, 1e-6);
}

// 16 groups of a U-Net's first layer, 256 x 256 positions each: not 16 of 1,024 partitions at work.
TEST(Rules, group_norm_of_few_rows_takes_what_a_batch_norm_takes) {
  const Target target = make_target(trainium(1), 1);
  const std::string input = "(input: float32[2,64,256,256], weight: float32[64], bias: float32[64]";
  const std::string output =
      "-> (out0: float32[2,64,256,256], out1: float32[2,8], out2: float32[2,8])";
  const std::string of_groups = ", N=2, C=64, HxW=65536, group=8, eps=1e-05f) ";
  const Cost groups = cost("aten::native_group_norm" + input + of_groups + output, target);
  const Cost batch = cost(
      "aten::native_batch_norm" + input +
          ", running_mean: float32[64], running_var: float32[64], "
          "training=true) -> (out0: float32[2,64,256,256], out1: float32[64], out2: float32[64])",
      target);
  // Elements fill the partitions here; there, 64 channels leave half of them idle.
  EXPECT_EQ(2 * groups.vector_cycles, batch.vector_cycles);
  const Cost backward = cost(
      "aten::native_group_norm_backward(grad_out: float32[2,64,256,256], input: "
      "float32[2,64,256,256]" +
          of_groups + "-> (out0: float32[2,64,256,256])",
      target);
  EXPECT_EQ(backward.vector_cycles, 7 * 2 * 64 * 65536 / (128 * target.cores));
}

// What Muon asks for: norms of matrices that are stacked.
TEST(Rules, norm_of_few_matrices_fills_the_partitions) {
  const Target target = make_target(trainium(1), 1);
  const auto norm = [&](const std::string& stacked) {
    return cost("aten::linalg_vector_norm(self: float32[" + stacked +
                    "], ord=2, dim=[-2,-1], "
                    "keepdim=true) -> (out0: float32[4,1,1])",
                target)
        .scalar_cycles;
  };
  EXPECT_NEAR(double(norm("4,1024,1024")), 4 * 1024 * 1024 / (128.0 * target.cores), 512);
  EXPECT_NEAR(double(norm("4096,32,32")), 4.0 * 1024 * 8 / target.cores, 4096);
}

// Every rule of pointwise ops and rows: time and bytes never fall as the batch grows, and doubling
// it at most doubles them, but for fixed costs.
TEST(Rules, grow_with_the_batch_and_no_faster) {
  const std::vector<std::string> texts = {
      "aten::add.Tensor(self: bfloat16[B,1024], other: bfloat16[B,1024]) -> (out0: "
      "bfloat16[B,1024])",
      "aten::gelu(self: float32[B,1024]) -> (out0: float32[B,1024])",
      "aten::native_layer_norm(input: float32[B,1024], weight: float32[1024], bias: float32[1024], "
      "normalized_shape=[1024]) -> (out0: float32[B,1024], out1: float32[B,1], out2: float32[B,1])",
      "aten::native_group_norm(input: float32[B,64,32,32], weight: float32[64], bias: float32[64], "
      "N=B, C=64, HxW=1024, group=32, eps=1e-05f) -> (out0: float32[B,64,32,32], out1: "
      "float32[B,32], out2: float32[B,32])",
      "aten::_softmax(self: float32[B,1024], dim=1) -> (out0: float32[B,1024])",
      "aten::_softmax_backward_data(grad_output: float32[B,1024], output: float32[B,1024], dim=1) "
      "-> (out0: float32[B,1024])",
      "aten::sum.dim_IntList(self: float32[B,1024], dim=[1]) -> (out0: float32[B])",
      "aten::sum.dim_IntList(self: float32[B,1024], dim=[0]) -> (out0: float32[1024])",
      "aten::mm(self: bfloat16[B,1024], mat2: bfloat16[1024,1024]) -> (out0: bfloat16[B,1024])",
      "aten::embedding(weight: float32[50000,1024], indices: int64[B]) -> (out0: float32[B,1024])",
      "aten::convolution(input: float32[B,64,28,28], weight: float32[64,64,3,3], stride=[1,1], "
      "transposed=false, groups=1) -> (out0: float32[B,64,28,28])",
      "aten::native_dropout(input: float32[B,1024], p=0.1f, train=true) -> (out0: float32[B,1024], "
      "out1: bool[B,1024])",
      "aten::max_pool2d_with_indices(self: float32[B,64,28,28], kernel_size=[2,2]) -> (out0: "
      "float32[B,64,14,14], out1: int64[B,64,14,14])",
      "aten::topk(self: float32[B,1024], k=16) -> (out0: float32[B,16], out1: int64[B,16])"};
  for (const std::string& text : texts) {
    for (const int64_t ranks_per_chip : {1, 8}) {
      const Target target = make_target(trainium(1), ranks_per_chip);
      Cost before;
      for (int64_t batch = 16; batch <= 4096; batch *= 2) {
        std::string made = text;
        for (const char* place : {"[B", "=B"}) {
          for (size_t at; (at = made.find(place)) != std::string::npos;) {
            made.replace(at + 1, 1, std::to_string(batch));
          }
        }
        const Cost now = cost(made, target);
        EXPECT_GT(now.tensor_cycles + now.vector_cycles + now.scalar_cycles + now.gpsimd_cycles, 0)
            << made;
        const int64_t slack = 2048;  // fixed cycles of a tile
        if (batch > 16) {
          EXPECT_GE(bytes_of(now), bytes_of(before)) << made;
          EXPECT_LE(bytes_of(now), 2 * bytes_of(before) + 4096) << made;
          EXPECT_LE(now.vector_cycles, 2 * before.vector_cycles + slack) << made;
          EXPECT_LE(now.tensor_cycles, 2 * before.tensor_cycles + slack) << made;
          EXPECT_GE(now.vector_cycles, before.vector_cycles) << made;
        }
        before = now;
      }
    }
  }
}

std::string refusal(const std::string& text, const Target& target) {
  try {
    cost(text, target);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::lower);
    return error.what();
  }
  return "";
}

TEST(Overflow, is_refused_with_the_op_and_its_shapes) {
  const std::string wide =
      "aten::relu(self: float32[1048576,268435457]) -> (out0: "
      "float32[1048576,268435457])";
  const std::string attention =
      "aten::_scaled_dot_product_fused_attention_overrideable(query: bfloat16[1,1,4194304000,128], "
      "key: bfloat16[1,1,4194304000,128], value: bfloat16[1,1,4194304000,128]) -> (out0: "
      "bfloat16[1,1,4194304000,128])";
  const std::string convolution =
      "aten::convolution(input: bfloat16[65536,65536,256,256], weight: bfloat16[65536,65536,3,3]) "
      "-> (out0: bfloat16[65536,65536,254,254])";
  const std::string beyond_64_bits = "mylib::fancy(x: float32[4194304,4194304,4194304]) -> ()";
  for (const Target& target : {one_core(), whole_chip(), make_target(hopper(), 1)}) {
    EXPECT_EQ(refusal(mm(4194304, 4194304, 4194304), target),
              "aten::mm of bfloat16[4194304,4194304], bfloat16[4194304,4194304] needs 1.48e+20 "
              "FLOPs: one op may need 2^62 at most, so make its tensors smaller");
    EXPECT_NE(refusal(wide, target).find("needs 2.81e+14 elements in one tensor"),
              std::string::npos);
    EXPECT_NE(refusal(attention, target).find("9.01e+21 FLOPs"), std::string::npos);
    EXPECT_NE(refusal(convolution, target).find("3.27e+20 FLOPs"), std::string::npos);
    EXPECT_NE(refusal(beyond_64_bits, target).find("float32[4194304,4194304,4194304] needs"),
              std::string::npos);
    EXPECT_EQ(refusal(mm(1 << 20, 1 << 20, 1 << 20), target), "");
  }
  const std::string sort =
      "aten::sort(self: float32[1,4294967296]) -> (out0: "
      "float32[1,4294967296], out1: int64[1,4294967296])";
  EXPECT_NE(refusal(sort, one_core()).find("4.61e+18 cycles of one engine"), std::string::npos);
}

TEST(Matmul, of_complex_numbers_is_four_of_their_parts) {
  for (const Target& target : {one_core(), make_target(hopper(), 1)}) {
    const Cost real = cost(mm(2048, 2048, 2048, "float32"), target);
    const Cost complex = cost(mm(2048, 2048, 2048, "complex64"), target);
    EXPECT_EQ(complex.dtype, "float32");
    EXPECT_EQ(complex.model_flops, 4 * real.model_flops);
    EXPECT_EQ(complex.executed_flops, 4 * real.executed_flops);
    EXPECT_EQ(complex.tensor_cycles, 4 * real.tensor_cycles);
    EXPECT_EQ(complex.gemms.size(), 4 * real.gemms.size());
    EXPECT_EQ(bytes_of(complex), 2 * bytes_of(real));
  }
}

TEST(Matmul, of_a_dtype_without_a_rate_is_a_guess) {
  const auto guesses = [](const std::string& dtype, const machine::Machine& machine) {
    Script script;
    script.op(mm(512, 512, 512, dtype), {"a", "b"}, {"c"});
    std::vector<std::string> found;
    for (const Guess& guess : script.lower(machine, 1, 1).guesses) {
      if (guess.name.find(" products") != std::string::npos) found.push_back(guess.name);
    }
    return found;
  };
  for (const machine::Machine& machine : {trainium(1), hopper()}) {
    for (const std::string dtype : {"float64", "int32", "int64"}) {
      EXPECT_EQ(guesses(dtype, machine), std::vector{dtype + " products"});
    }
    for (const std::string dtype : {"bfloat16", "float32", "complex64"}) {
      EXPECT_TRUE(guesses(dtype, machine).empty()) << dtype;
    }
  }
}

// One form each of aten::_grouped_mm: what it multiplies, and the same as products one by one.
struct Grouped {
  std::string self, mat2, offs, out;
  int64_t groups, m, n, k;
};
const Grouped kGrouped[] = {
    {"[4096,1024]", "[8,1024,256]", "[8]", "[4096,256]", 8, 512, 256, 1024},
    {"[8,512,1024]", "[1024,2048]", "[8]", "[512,2048]", 8, 512, 256, 1024},
    {"[512,8192]", "[8192,256]", "[8]", "[8,512,256]", 8, 512, 256, 1024},
    {"[8,512,1024]", "[8,1024,256]", "", "[8,512,256]", 8, 512, 256, 1024},
};

std::string text_of(const Grouped& form, const std::string& op, const std::string& dtype,
                    const std::string& scales) {
  const std::string offs = form.offs.empty() ? "" : ", offs: int32" + form.offs;
  return op + "(self: " + dtype + form.self + ", mat2: " + dtype + form.mat2 + scales + offs +
         ") -> (out0: bfloat16" + form.out + ")";
}

// Products of 256 columns and a contraction of 1024, or, where rows are contracted, of 512 x 256.
std::string by_rows(const std::vector<int64_t>& rows, bool contracts) {
  const std::string all = std::to_string(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  const std::string count = std::to_string(rows.size());
  std::string listed;
  for (const int64_t each : rows) listed += (listed.empty() ? "" : ",") + std::to_string(each);
  const std::string shapes =
      contracts ? "[512," + all + "]{1,512}, mat2: bfloat16[" + all + ",256], rows=[" + listed +
                      "]) -> (out0: bfloat16[" + count + ",512,256])"
                : "[" + all + ",1024], mat2: bfloat16[" + count + ",1024,256], rows=[" + listed +
                      "]) -> (out0: bfloat16[" + all + ",256])";
  return "trnsim::grouped_mm(self: bfloat16" + shapes;
}

TEST(GroupedByRows, of_equal_rows_is_as_many_products_at_once) {
  for (const Target& target : {one_core(), whole_chip(), make_target(hopper(), 1)}) {
    const Cost batched = cost(
        "aten::bmm(self: bfloat16[8,512,1024], mat2: bfloat16[8,1024,256]) "
        "-> (out0: bfloat16[8,512,256])",
        target);
    const Cost made = cost(by_rows(std::vector<int64_t>(8, 512), false), target);
    EXPECT_EQ(made.tensor_cycles, batched.tensor_cycles);
    EXPECT_EQ(made.vector_cycles, batched.vector_cycles);
    EXPECT_EQ(made.executed_flops, batched.executed_flops);
    EXPECT_EQ(bytes_of(made), bytes_of(batched));
    ASSERT_EQ(made.gemms.size(), 1u);
    EXPECT_EQ(made.gemms[0].batch, 8);
    if (!target.is_neuron() && !target.is_tpu()) {
      EXPECT_EQ(gpu_kernel(made, 0, target).time_ps, gpu_kernel(batched, 0, target).time_ps);
    }
  }
}

TEST(GroupedByRows, is_the_sum_of_its_products) {
  const std::vector<int64_t> rows{3000, 0, 600, 96, 400};
  const Target core = one_core(), gpu = make_target(hopper(), 1);
  for (const bool contracts : {false, true}) {
    const Cost made = cost(by_rows(rows, contracts), core);
    int64_t tensor_cycles = 0, vector_cycles = 0;
    int128 flops = 0;
    for (const int64_t each : rows) {
      if (each == 0) continue;
      const rules::GemmPlan one =
          rules::plan_gemm(contracts ? GemmShape{1, 512, 256, each} : GemmShape{1, each, 256, 1024},
                           workload::DType::bfloat16, core);
      tensor_cycles += one.tensor_cycles;
      vector_cycles += one.evacuation_cycles;
      flops += int128(2) * each * 256 * (contracts ? 512 : 1024);
    }
    EXPECT_EQ(made.tensor_cycles, tensor_cycles);
    EXPECT_EQ(made.vector_cycles, vector_cycles);
    EXPECT_EQ(made.executed_flops, flops);
    EXPECT_EQ(made.gemms.size(), 4u);
  }
  // Weights of the product without rows are not read.
  const int64_t all = 3000 + 600 + 96 + 400;
  EXPECT_EQ(bytes_of(cost(by_rows(rows, false), gpu)),
            2 * (all * 1024 + 4 * 1024 * 256 + all * 256));
}

// Tiles of 128 x 256 or 256 x 128 over 132 multiprocessors: what fills them together, though no
// product does by itself, is as fast for each tile; a wave more costs a whole one.
TEST(GroupedByRows, shares_the_waves_of_a_gpu) {
  const Target gpu = make_target(hopper(), 1);
  const auto time_ps = [&](const std::vector<int64_t>& rows) {
    return double(gpu_kernel(cost(by_rows(rows, false), gpu), 0, gpu).time_ps);
  };
  const double wave = time_ps({128 * 100, 128 * 32});
  EXPECT_DOUBLE_EQ(time_ps({128 * 66, 128 * 33, 128 * 33}), wave);
  EXPECT_DOUBLE_EQ(time_ps({128 * 100, 128 * 31, 1}), wave);
  EXPECT_NEAR(time_ps({128 * 100, 128 * 32, 1}), 2 * wave, 2);
}

TEST(GroupedByRows, refuses_rows_that_do_not_sum_up) {
  std::string wrong = by_rows({100, 28}, false);
  wrong.replace(wrong.find("[100,28]"), 8, "[100,29]");
  EXPECT_THROW(cost(wrong, one_core()), Error);
}

TEST(GroupedMatmul, is_a_product_a_group) {
  for (const Target& target : {one_core(), whole_chip(), make_target(hopper(), 1)}) {
    const Cost batched = cost(
        "aten::bmm(self: bfloat16[8,512,1024], mat2: bfloat16[8,1024,256]) "
        "-> (out0: bfloat16[8,512,256])",
        target);
    for (const Grouped& form : kGrouped) {
      const Cost made = cost(text_of(form, "aten::_grouped_mm", "bfloat16", ""), target);
      EXPECT_EQ(made.rule_class, RuleClass::formula);
      EXPECT_EQ(made.model_flops, int128(2) * 8 * 512 * 256 * 1024);  // by hand
      EXPECT_EQ(made.executed_flops, made.model_flops);
      EXPECT_EQ(made.tensor_cycles, batched.tensor_cycles) << form.self << form.mat2;
      EXPECT_EQ(made.dtype, "bfloat16");
      ASSERT_EQ(made.gemms.size(), 1u);
      EXPECT_EQ(made.gemms[0].batch, 8);
      EXPECT_EQ(made.gemms[0].m, 512);
      EXPECT_EQ(made.gemms[0].n, 256);
      EXPECT_EQ(made.gemms[0].k, 1024);
    }
  }
}

TEST(GroupedMatmul, counts_all_rows_where_they_do_not_divide) {
  const auto flops = [](int64_t rows) {
    const std::string n = std::to_string(rows);
    return cost("aten::_grouped_mm(self: bfloat16[" + n +
                    ",64], mat2: bfloat16[8,64,32], offs: "
                    "int32[8]) -> (out0: bfloat16[" +
                    n + ",32])",
                one_core())
        .executed_flops;
  };
  for (const int64_t rows : {0, 1, 5, 8, 4099}) EXPECT_EQ(flops(rows), 2 * rows * 64 * 32) << rows;
}

TEST(GroupedMatmul, of_float8_runs_at_its_rate) {
  for (const std::string op : {"aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"}) {
    const auto made = [&](const Target& target) {
      return cost(text_of(kGrouped[0], op, "float8_e4m3fn",
                          ", scale_a: float32[4096], scale_b: "
                          "float32[8,256]"),
                  target);
    };
    EXPECT_EQ(made(one_core()).rule_class, RuleClass::formula);
    EXPECT_EQ(made(one_core()).dtype, "float8_e4m3fn");
    EXPECT_EQ(made(one_core()).executed_flops, int128(2) * 4096 * 1024 * 256);
    const Cost half = cost(text_of(kGrouped[0], "aten::_grouped_mm", "bfloat16", ""), one_core());
    EXPECT_EQ(2 * made(one_core()).tensor_cycles, half.tensor_cycles);
  }
}

TEST(ScaledMatmul, has_the_same_cost_by_its_older_and_its_newer_op) {
  for (const Target& target : {one_core(), make_target(hopper(), 1)}) {
    const auto made = [&](const std::string& op) {
      return cost(op + "(self: float8_e4m3fn[512,1024], mat2: float8_e4m3fn[1024,256]{1,1024}, "
                       "scale_a: float32[], scale_b: float32[]) -> (out0: bfloat16[512,256])",
                  target);
    };
    const Cost older = made("aten::_scaled_mm"), newer = made("aten::_scaled_mm_v2");
    EXPECT_EQ(newer.rule_class, RuleClass::formula);
    EXPECT_EQ(newer.executed_flops, int128(2) * 512 * 1024 * 256);
    EXPECT_EQ(newer.tensor_cycles, older.tensor_cycles);
    EXPECT_EQ(bytes_of(newer), bytes_of(older));
  }
}

TEST(Matmul, of_int8_counts_its_products) {
  const Cost made = cost(
      "aten::_int_mm(self: int8[512,1024], mat2: int8[1024,256]) -> (out0: "
      "int32[512,256])",
      one_core());
  EXPECT_EQ(made.rule_class, RuleClass::formula);
  EXPECT_EQ(made.executed_flops, int128(2) * 512 * 1024 * 256);
}

TEST(Sort, on_a_gpu_passes_over_keys_and_indices_for_every_byte_of_a_key) {
  const Target target = make_target(hopper(), 1);
  const auto bytes = [&](const std::string& dtype) {
    return bytes_of(cost("aten::sort(self: " + dtype + "[64,50000]) -> (out0: " + dtype +
                             "[64,50000], out1: int64[64,50000])",
                         target));
  };
  const int64_t keys = 64 * 50000;
  EXPECT_EQ(bytes("float32"), keys * 4 + 4 * 2 * keys * (4 + 8));
  EXPECT_EQ(bytes("bfloat16"), keys * 2 + 2 * 2 * keys * (2 + 8));
}

TEST(Sort, names_how_it_was_timed) {
  const auto guess = [](const std::string& text, const Target& target) {
    const auto found = guess_of_sort(workload::Signature::parse(text), target);
    return found ? found->name + ": " + found->value : "";
  };
  const std::string sort = "aten::sort.stable(self: float32[64,500], dim=0) -> ()";
  const Target gpu = make_target(hopper(), 1);
  EXPECT_EQ(guess(sort, one_core()),
            "aten::sort.stable over 64: sorts in rounds of 8 over the row");
  EXPECT_EQ(guess(sort, gpu),
            "aten::sort.stable over 64: radix sort, 4 passes over keys and indices");
  EXPECT_NE(guess("aten::topk(self: float32[64,500], k=9) -> ()", one_core()), "");
  EXPECT_EQ(guess("aten::topk(self: float32[64,500], k=8) -> ()", one_core()), "");
  EXPECT_EQ(guess("aten::topk(self: float32[64,500], k=9) -> ()", gpu),
            "aten::topk over 500: one pass over its bytes");
  EXPECT_EQ(guess("aten::relu(self: float32[64,500]) -> ()", one_core()), "");
}

}  // namespace
}  // namespace trnsim::lower::testing
