// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Matrix products. A matmul instruction multiplies a stationary tile (K <= 128 on the partitions,
// up to 128 columns) with up to 512 moving columns in max(min(64, stationary), moving) cycles, and
// its fp32 result is evacuated from PSUM by the vector engine.
#include <map>

#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Matrix products'; nki.isa nc_matmul: aws-neuron-sdk@1db4d74e "
    "nki/api/nki/isa/__init__.py";

// Sum over stationary tiles and moving tiles of one instruction each.
int64_t tile_cycles(int64_t stationary, int64_t moving, const machine::NeuronCore& core) {
  const int64_t width = core.tensor_columns, length = core.moving_max;
  const auto instruction = [&](int64_t s, int64_t m) {
    return s == 0 || m == 0 ? 0 : std::max(std::min(core.min_cycles, s), m);
  };
  const int64_t s_full = stationary / width, s_rest = stationary % width;
  const int64_t m_full = moving / length, m_rest = moving % length;
  return s_full * (m_full * instruction(width, length) + instruction(width, m_rest)) +
         m_full * instruction(s_rest, length) + instruction(s_rest, m_rest);
}

// One pass of the evacuation of the whole output.
int64_t evacuation_pass(int64_t stationary, int64_t moving, const machine::NeuronCore& core) {
  const int64_t rest = moving % core.moving_max;
  const int64_t columns = moving - rest + (rest ? std::max(core.min_cycles, rest) : 0);
  return ceil_div(stationary, core.tensor_columns) * columns;
}

bool is_fp8(DType dtype) { return dtype == DType::float8_e4m3fn || dtype == DType::float8_e5m2; }
bool is_half(DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float16; }

// Block sizes of the blocked GEMM: 2048 x 1024 x 1024 rows, columns, contraction; rows of an
// operand that stay in SBUF beside it: 8192.
constexpr int64_t kBlockColumns = 1024, kBlockContraction = 1024, kResidentRows = 8192;

}  // namespace

GemmPlan plan_gemm(GemmShape shape, DType dtype, const Target& target) {
  GemmPlan plan;
  const int64_t s = workload::dtype_bytes(dtype);
  if (!target.is_neuron() || std::min({shape.batch, shape.m, shape.n, shape.k}) == 0) {
    plan.a_bytes = shape.batch * shape.m * shape.k * s;
    plan.b_bytes = shape.batch * shape.k * shape.n * s;
    plan.out_bytes = shape.batch * shape.m * shape.n * s;
    return plan;
  }
  const machine::NeuronCore& core = target.core();
  const Split split = split_over_cores(shape.batch, shape.m, shape.n, target);
  const int64_t m = split.rows, n = split.columns, k = shape.k;
  const int64_t k_tile = core.tensor_rows * (is_fp8(dtype) ? core.tensor_fp8_speedup : 1);
  const int64_t k_tiles = shape.k_tiles > 0 ? shape.k_tiles : ceil_div(k, k_tile);
  const int64_t rows_stationary = tile_cycles(m, n, core);
  const int64_t columns_stationary = tile_cycles(n, m, core);
  const bool stationary_is_m = rows_stationary <= columns_stationary;
  const bool small = std::min({m, n, k}) < core.tensor_columns;
  const Rational efficiency = small ? core.tensor_small_tile_efficiency : core.tensor_efficiency;
  const int64_t factor = is_half(dtype) || is_fp8(dtype) ? 1 : core.tensor_fp32_factor;
  plan.tensor_cycles = scale_up(
      int128(split.batch) * k_tiles * factor * std::min(rows_stationary, columns_stationary),
      Rational{1, 1} / efficiency);

  const bool fits_psum = m * n <= core.partitions * (core.psum_partition_bytes / 4);
  const int64_t passes = fits_psum ? 1 : ceil_div(k, kBlockContraction);
  plan.last_evacuation_cycles =
      split.batch * (stationary_is_m ? evacuation_pass(m, n, core) : evacuation_pass(n, m, core));
  plan.evacuation_cycles = passes * plan.last_evacuation_cycles;

  const int64_t a_rows = ceil_div(n, kBlockColumns), b_rows = ceil_div(m, kResidentRows);
  const int64_t a_swapped = ceil_div(n, kResidentRows), b_swapped = ceil_div(m, kBlockColumns);
  const bool swapped = a_swapped * m + b_swapped * n < a_rows * m + b_rows * n;
  // Every core with a share of the split loads its own operands.
  const int64_t used = ceil_div(shape.batch, split.batch) * split.batch * ceil_div(shape.m, m) *
                       ceil_div(shape.n, n);
  plan.a_bytes = used * s * m * k * (swapped ? a_swapped : a_rows);
  plan.b_bytes = used * s * k * n * (swapped ? b_swapped : b_rows);
  plan.out_bytes = shape.batch * shape.m * shape.n * s;
  plan.run_limit = fits_psum ? 0 : kBlockColumns * s;
  plan.a_blocks = split.batch * ceil_div(m, core.partitions) * ceil_div(k, core.partitions);
  plan.b_blocks = split.batch * ceil_div(n, core.partitions) * ceil_div(k, core.partitions);
  return plan;
}

namespace {

// An operand's contraction axis is the contiguous one, so that rows lie on partitions and it has to
// be transposed before the tensor engine can contract it. A single row is its own transpose.
bool needs_transpose(const TensorMeta& meta, size_t contraction_axis) {
  return meta.strides.size() > contraction_axis && meta.strides[contraction_axis] == 1 &&
         meta.sizes[contraction_axis] > 1 && meta.element_count() > meta.sizes[contraction_axis];
}

void set_stream(Cost& cost, int32_t input, int64_t bytes, int64_t blocks) {
  for (Stream& stream : cost.streams) {
    if (stream.is_output || stream.is_write || stream.slot != input) continue;
    stream.bytes = std::max(stream.bytes, bytes);
    stream.transpose_blocks = blocks;
  }
}

int32_t input_index(const Signature& signature, const std::string& argument) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    if (signature.inputs[i].argument == argument) return int32_t(i);
  }
  throw Error(ErrorKind::lower, signature.op + " has no tensor argument '" + argument + "'",
              "the Workload was made by another version of PyTorch");
}

// Contiguous elements of one row of a matrix: its own, and those of the other matrices of a batch
// that stand beside them, as the heads of one position do in a cache of keys.
int64_t row_elements(const TensorMeta& meta) {
  const size_t axes = std::min(meta.sizes.size(), meta.strides.size());
  int64_t row = 1;
  for (size_t i = 0; i < axes; ++i) {
    if (meta.strides[i] == 1) row = std::max(row, meta.sizes[i]);
  }
  for (size_t i = axes; i-- > 2;) {
    const size_t axis = i - 2;  // of the batch
    if (row > 1 && meta.strides[axis] == row) row *= meta.sizes[axis];
  }
  return row;
}

// Rows of memory are moved whole, or in the pieces of a blocked GEMM: a descriptor is one of those.
void set_runs(Cost& cost, const Signature& signature, int64_t run_limit) {
  for (Stream& stream : cost.streams) {
    const auto& slots = stream.is_output ? signature.outputs : signature.inputs;
    const TensorMeta& meta = slots[size_t(stream.slot)].meta;
    int64_t row = row_elements(meta);
    bool is_expanded = false;  // a value repeated, as the gradient of sum() is
    for (size_t i = 0; i < std::min(meta.sizes.size(), meta.strides.size()); ++i) {
      is_expanded |= meta.strides[i] == 0 && meta.sizes[i] > 1;
    }
    // It is spread inside the chip, and costs no more than if its rows stood in memory.
    if (is_expanded) row = std::max(row, last_size(meta));
    const int64_t row_bytes = row * workload::dtype_bytes(meta.dtype);
    stream.run_bytes = is_expanded ? row_bytes : std::min(run_bytes(meta), row_bytes);
    if (run_limit > 0) stream.run_bytes = std::min(stream.run_bytes, run_limit);
    stream.run_bytes = std::max<int64_t>(1, stream.run_bytes);
  }
}

// What the engines multiply: a complex product is four of its real parts, whose sums are two.
struct Products {
  DType dtype = DType::other;
  int64_t count = 1, results = 1;
};

Products products_of(DType dtype) {
  if (dtype == DType::complex32) return {DType::float16, 4, 2};
  if (dtype == DType::complex64) return {DType::float32, 4, 2};
  if (dtype == DType::complex128) return {DType::float64, 4, 2};
  return {dtype, 1, 1};
}

// Of products that one kernel makes, of parts of the same operands; of the second one what no
// product takes is read, too, or is not.
Cost gemms_cost(const Signature& signature, const Target& target,
                const std::vector<GemmShape>& shapes, const std::string& a_name,
                const std::string& b_name, size_t a_axis, size_t b_axis, bool reads_whole_b) {
  Cost cost = make_cost(signature, target, "matmul", Fusion::anchor);
  const int32_t a = input_index(signature, a_name), b = input_index(signature, b_name);
  const TensorMeta &left = signature.inputs[size_t(a)].meta,
                   &right = signature.inputs[size_t(b)].meta;
  const Products products = products_of(left.dtype);
  const int64_t parts = products.results;  // real and imaginary, of operands and results
  int128 flops = 0;
  GemmPlan sum;
  for (const GemmShape& shape : shapes) {
    flops += int128(2) * products.count * shape.batch * shape.m * shape.n * shape.k;
    check_count(signature, "FLOPs", flops, kMostFlops);
    const GemmPlan plan = plan_gemm(shape, products.dtype, target);
    sum.tensor_cycles += plan.tensor_cycles;
    sum.evacuation_cycles += plan.evacuation_cycles;
    sum.last_evacuation_cycles += plan.last_evacuation_cycles;
    sum.a_bytes += plan.a_bytes;
    sum.b_bytes += plan.b_bytes;
    sum.a_blocks += plan.a_blocks;
    sum.b_blocks += plan.b_blocks;
    sum.run_limit = std::max(sum.run_limit, plan.run_limit);
    cost.gemms.insert(cost.gemms.end(), size_t(products.count), shape);
  }
  set_runs(cost, signature, sum.run_limit);
  set_stream(cost, a, parts * sum.a_bytes,
             needs_transpose(left, a_axis) ? parts * sum.a_blocks : 0);
  set_stream(cost, b, parts * sum.b_bytes,
             needs_transpose(right, b_axis) ? parts * sum.b_blocks : 0);
  if (Stream* stream = read_stream(cost, b); stream != nullptr && !reads_whole_b) {
    stream->bytes = parts * sum.b_bytes;
  }
  cost.tensor_cycles = products.count * sum.tensor_cycles;
  cost.vector_cycles = parts * sum.evacuation_cycles;
  cost.evacuation_cycles = parts * sum.last_evacuation_cycles;
  cost.dtype = workload::dtype_name(products.dtype);
  cost.model_flops = cost.model_flops_causal = cost.executed_flops = flops;
  return cost;
}

Cost gemm_cost(const Signature& signature, const Target& target, const GemmShape& shape,
               const std::string& a_name, const std::string& b_name, size_t a_axis, size_t b_axis) {
  return gemms_cost(signature, target, {shape}, a_name, b_name, a_axis, b_axis, true);
}

// Weights that are kept in 8 bits and multiplied in 16: half of the bytes, and a pass of the scalar
// engine that widens them on their way to the tensor engine.
Cost int8_weights(const Signature& signature, const Target& target) {
  const TensorMeta& left = signature.inputs[size_t(input_index(signature, "self"))].meta;
  const int32_t weight = input_index(signature, "mat2");
  const TensorMeta& right = signature.inputs[size_t(weight)].meta;
  const GemmShape shape{1, left.sizes[0], right.sizes[0], left.sizes[1], 0};
  Cost cost = gemm_cost(signature, target, shape, "self", "mat2", 1, 1);
  if (Stream* stream = read_stream(cost, weight)) {
    const int64_t of_left = workload::dtype_bytes(left.dtype);
    stream->bytes = std::max(touched_bytes(right), stream->bytes / of_left);
  }
  if (target.is_neuron() && shape.m * shape.k > 0) {
    const Instructions core(target, true);
    cost.scalar_cycles += core.activation(per_partition(shape.n * shape.k, target));
  }
  return cost;
}

// [.., m, k] x [k, n] with the leading axes as rows.
GemmShape rows_shape(const TensorMeta& left, int64_t n) {
  const int64_t k = left.sizes.empty() ? 1 : left.sizes.back();
  return {1, k == 0 ? 0 : left.element_count() / k, n, k, 0};
}

CostFunction plain(const std::string& a, const std::string& b) {
  return [=](const Signature& signature, const Target& target) {
    const TensorMeta& left = signature.inputs[size_t(input_index(signature, a))].meta;
    const TensorMeta& right = signature.inputs[size_t(input_index(signature, b))].meta;
    const GemmShape shape = rows_shape(left, right.sizes.size() < 2 ? 1 : right.sizes[1]);
    return gemm_cost(signature, target, shape, a, b, left.sizes.size() - 1, 0);
  };
}

// One product a group. Offsets say where in a shared axis each group ends; their values are no part
// of a signature, so the axis is taken to be shared evenly, and all of it. FLOPs are then exact.
Cost grouped(const Signature& signature, const Target& target) {
  const TensorMeta& left = signature.inputs[size_t(input_index(signature, "self"))].meta;
  const TensorMeta& right = signature.inputs[size_t(input_index(signature, "mat2"))].meta;
  const size_t l = left.sizes.size(), r = right.sizes.size();
  const int64_t m = left.sizes[l - 2], k = left.sizes[l - 1], n = right.sizes[r - 1];
  GemmShape shape{l == 3 ? left.sizes[0] : r == 3 ? right.sizes[0] : 0, m, n, k, 0};
  int128 products = int128(m) * n * k;
  const auto share = [&](int64_t& axis) {
    shape.batch = std::min(shape.batch, axis);  // the rest have nothing to do
    axis = shape.batch == 0 ? 0 : ceil_div(axis, shape.batch);
  };
  if (l == 3 && r == 3) {
    products *= shape.batch;
  } else if (r == 3) {
    share(shape.m);  // rows of an expert's tokens
  } else if (l == 3) {
    share(shape.n);
  } else {  // gradients of weights: each group contracts its own part
    shape.batch = signature.inputs[size_t(input_index(signature, "offs"))].meta.element_count();
    share(shape.k);
  }
  Cost cost = gemm_cost(signature, target, shape, "self", "mat2", l - 1, r - 2);
  cost.model_flops = cost.model_flops_causal = cost.executed_flops = 2 * products;
  return cost;
}

// Shapes of the products of so many rows each, those of equal ones together: of [rows, k] and
// [products, k, n], or, as gradients of weights are, of [m, rows] and [rows, n]. One of no rows is
// none.
std::vector<GemmShape> shapes_by_rows(const Signature& signature) {
  const TensorMeta& left = signature.inputs[size_t(input_index(signature, "self"))].meta;
  const TensorMeta& right = signature.inputs[size_t(input_index(signature, "mat2"))].meta;
  const std::vector<int64_t> rows = int_list(signature, "rows");
  const bool contracts = right.sizes.size() == 2;
  int64_t sum = 0, least = 0;
  for (const int64_t each : rows) {
    sum += each;
    least = std::min(least, each);
  }
  const bool fits = left.sizes.size() == 2 && least == 0 && left.sizes[contracts ? 1 : 0] == sum &&
                    (contracts || right.sizes[0] == int64_t(rows.size()));
  TRN_CHECK(fits, lower, signature.op + " has rows that do not fit its operands",
            "give one number for each product, that sum to the rows");
  std::map<int64_t, int64_t> count_of;
  for (const int64_t each : rows) count_of[each] += each > 0 ? 1 : 0;
  std::vector<GemmShape> shapes;
  for (const auto& [each, count] : count_of) {
    if (count == 0) continue;
    GemmShape shape = contracts ? GemmShape{count, left.sizes[0], right.sizes[1], each}
                                : GemmShape{count, each, right.sizes[2], left.sizes[1]};
    shape.is_of_group = true;
    shapes.push_back(shape);
  }
  if (shapes.size() == 1 && shapes[0].batch == 1) shapes[0].is_of_group = false;
  return shapes;
}

// One kernel of products of unequal rows. Each is divided over cores by itself; weights of one
// without rows are not read.
Cost grouped_by_rows(const Signature& signature, const Target& target) {
  const TensorMeta& right = signature.inputs[size_t(input_index(signature, "mat2"))].meta;
  return gemms_cost(signature, target, shapes_by_rows(signature), "self", "mat2", 1,
                    right.sizes.size() - 2, false);
}

CostFunction batched(const std::string& a, const std::string& b) {
  return [=](const Signature& signature, const Target& target) {
    const TensorMeta& left = signature.inputs[size_t(input_index(signature, a))].meta;
    const TensorMeta& right = signature.inputs[size_t(input_index(signature, b))].meta;
    const GemmShape shape{left.sizes[0], left.sizes[1], right.sizes[2], left.sizes[2], 0};
    return gemm_cost(signature, target, shape, a, b, 2, 1);
  };
}

Cost linear(const Signature& signature, const Target& target) {
  const TensorMeta& input = signature.inputs[size_t(input_index(signature, "input"))].meta;
  const TensorMeta& weight = signature.inputs[size_t(input_index(signature, "weight"))].meta;
  const GemmShape shape = rows_shape(input, weight.sizes.size() < 2 ? 1 : weight.sizes[0]);
  return gemm_cost(signature, target, shape, "input", "weight", input.sizes.size() - 1,
                   weight.sizes.size() - 1);
}

// Any ranks: the leading axes of the result are the batch, or rows when the right side has two
// axes.
Cost matmul(const Signature& signature, const Target& target) {
  const TensorMeta& left = signature.inputs[size_t(input_index(signature, "self"))].meta;
  const TensorMeta& right = signature.inputs[size_t(input_index(signature, "other"))].meta;
  const size_t l = left.sizes.size(), r = right.sizes.size();
  if (r <= 2) {
    const GemmShape shape = rows_shape(left, r < 2 ? 1 : right.sizes[1]);
    return gemm_cost(signature, target, shape, "self", "other", l - 1, 0);
  }
  const int64_t m = l < 2 ? 1 : left.sizes[l - 2], n = right.sizes[r - 1], k = right.sizes[r - 2];
  const int64_t out = signature.outputs.empty() ? m * n : signature.outputs[0].meta.element_count();
  return gemm_cost(signature, target, {m * n == 0 ? 0 : out / (m * n), m, n, k, 0}, "self", "other",
                   l - 1, r - 2);
}

}  // namespace

void register_matmul(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({op, "matmul", kSource, std::move(cost)});
  };
  add("aten::mm", plain("self", "mat2"));
  add("aten::addmm", plain("mat1", "mat2"));
  add("aten::_addmm_activation", plain("mat1", "mat2"));
  add("aten::mv", plain("self", "vec"));
  add("aten::addmv", plain("mat", "vec"));
  add("aten::dot", plain("self", "tensor"));
  add("aten::vdot", plain("self", "other"));
  add("aten::_scaled_mm", plain("self", "mat2"));
  add("aten::_scaled_mm_v2", plain("self", "mat2"));
  add("aten::_int_mm", plain("self", "mat2"));
  add("aten::_weight_int8pack_mm", int8_weights);
  add("aten::_grouped_mm", grouped);
  add("aten::_scaled_grouped_mm", grouped);
  add("aten::_scaled_grouped_mm_v2", grouped);
  add("trnsim::grouped_mm", grouped_by_rows);
  add("aten::bmm", batched("self", "mat2"));
  add("aten::baddbmm", batched("batch1", "batch2"));
  add("aten::linear", linear);
  add("aten::matmul", matmul);
}

}  // namespace trnsim::lower::rules
