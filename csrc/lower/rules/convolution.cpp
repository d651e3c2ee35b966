// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Convolution as an implicit GEMM: rows = batch x output positions, contraction = input channels x
// taps, columns = output channels. Few input channels share a tile of the contraction between
// several taps. No im2col goes through the HBM.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Convolution'; channel packing: nki-library@d2ad3a57 "
    "experimental/conv/conv1d.py; nki.isa nc_matmul: aws-neuron-sdk@1db4d74e "
    "nki/api/nki/isa/__init__.py";

struct Convolution {
  int64_t batch = 0, groups = 1, taps = 1;
  int64_t in_channels = 0, out_channels = 0;  // of one group
  int64_t in_positions = 0, out_positions = 0;
  int128 flops() const {
    return int128(2) * batch * groups * in_channels * out_channels * taps * positions();
  }
  bool transposed = false;
  int64_t positions() const { return transposed ? in_positions : out_positions; }
};

int64_t product(const std::vector<int64_t>& sizes, size_t begin) {
  int64_t result = 1;
  for (size_t i = begin; i < sizes.size(); ++i) result *= sizes[i];
  return result;
}

Convolution read(const Signature& signature, const TensorMeta& input, const TensorMeta& weight,
                 const TensorMeta& output) {
  Convolution conv;
  conv.transposed = signature.int_or("transposed", 0) != 0;
  conv.groups = std::max<int64_t>(1, signature.int_or("groups", 1));
  conv.batch = input.sizes[0];
  conv.taps = product(weight.sizes, 2);
  conv.in_channels = input.sizes[1] / conv.groups;
  conv.out_channels = output.sizes[1] / conv.groups;
  conv.in_positions = product(input.sizes, 2);
  conv.out_positions = product(output.sizes, 2);
  check_count(signature, "FLOPs", conv.flops(), kMostFlops);
  return conv;
}

// Tiles of a contraction of `channels` x `taps`: 4 taps share one up to 32 channels, 2 up to 64.
int64_t contraction_tiles(int64_t channels, int64_t taps, const Target& target) {
  if (!target.is_neuron()) return 0;
  const int64_t rows = target.core().tensor_rows;
  const int64_t shared = channels * 4 <= rows ? 4 : channels * 2 <= rows ? 2 : 1;
  return ceil_div(channels, rows) * ceil_div(taps, shared);
}

GemmShape forward_shape(const Convolution& conv, const Target& target) {
  if (conv.in_channels == 1 && conv.groups > 1) {  // depthwise: taps on the partitions
    return {conv.groups, conv.batch * conv.positions(), conv.out_channels, conv.taps, 0};
  }
  return {conv.groups, conv.batch * conv.positions(), conv.out_channels,
          conv.in_channels * conv.taps, contraction_tiles(conv.in_channels, conv.taps, target)};
}

void add_gemm(Cost& cost, const GemmShape& shape, DType dtype, const Target& target) {
  const GemmPlan plan = plan_gemm(shape, dtype, target);
  cost.tensor_cycles += plan.tensor_cycles;
  cost.vector_cycles += plan.evacuation_cycles;
  cost.evacuation_cycles = plan.last_evacuation_cycles;
  cost.gemms.push_back(shape);
}

// Weights are loaded by every core, and again for every 8192 rows.
void reload_weights(Cost& cost, const Signature& signature, int64_t rows, const Target& target) {
  Stream* stream = read_stream(cost, find_input(signature, "weight"));
  if (!stream || !target.is_neuron()) return;
  const Split split = split_over_cores(1, rows, 1, target);
  stream->bytes *= ceil_div(rows, split.rows) * ceil_div<int64_t>(split.rows, 8192);
}

Cost forward(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "convolution", Fusion::anchor);
  const TensorMeta* input = meta_of(signature, "input");
  const TensorMeta* weight = meta_of(signature, "weight");
  TRN_CHECK(input && weight && !signature.outputs.empty(), lower,
            signature.op + " has no input and weight",
            "the Workload was made by another version of PyTorch");
  const Convolution conv = read(signature, *input, *weight, signature.outputs[0].meta);
  add_gemm(cost, forward_shape(conv, target), input->dtype, target);
  reload_weights(cost, signature, conv.batch * conv.positions(), target);
  cost.dtype = workload::dtype_name(input->dtype);
  cost.model_flops = cost.model_flops_causal = cost.executed_flops = conv.flops();
  return cost;
}

bool wants(const Signature& signature, size_t gradient) {
  const std::vector<int64_t> mask = int_list(signature, "output_mask");
  return mask.size() <= gradient || mask[gradient] != 0;
}

Cost backward(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "convolution", Fusion::alone);
  const TensorMeta* grad = meta_of(signature, "grad_output");
  const TensorMeta* input = meta_of(signature, "input");
  const TensorMeta* weight = meta_of(signature, "weight");
  TRN_CHECK(grad && input && weight, lower, signature.op + " has no gradient, input and weight",
            "the Workload was made by another version of PyTorch");
  const Convolution conv = read(signature, *input, *weight, *grad);
  const int64_t rows = conv.batch * conv.positions();
  cost.dtype = workload::dtype_name(input->dtype);
  if (wants(signature, 0)) {
    add_gemm(
        cost,
        {conv.groups, conv.batch * conv.in_positions, conv.in_channels,
         conv.out_channels * conv.taps, contraction_tiles(conv.out_channels, conv.taps, target)},
        input->dtype, target);
    cost.model_flops += conv.flops();
    reload_weights(cost, signature, rows, target);
  }
  if (wants(signature, 1)) {
    add_gemm(cost, {conv.groups, conv.in_channels * conv.taps, conv.out_channels, rows, 0},
             input->dtype, target);
    cost.model_flops += conv.flops();
    // The gradient is read once for each of the two products.
    if (Stream* stream = read_stream(cost, find_input(signature, "grad_output"));
        stream && wants(signature, 0)) {
      stream->bytes *= 2;
    }
  }
  cost.model_flops_causal = cost.executed_flops = cost.model_flops;
  cost.evacuation_cycles = 0;  // two outputs, no epilogue
  return cost;
}

}  // namespace

void register_convolution(Registry& registry) {
  for (const char* op : {"convolution", "convolution_overrideable", "_convolution",
                         "cudnn_convolution", "mkldnn_convolution", "conv2d", "conv1d", "conv3d"}) {
    registry.add({std::string("aten::") + op, "convolution", kSource, forward});
  }
  for (const char* op : {"convolution_backward", "convolution_backward_overrideable"}) {
    registry.add({std::string("aten::") + op, "convolution", kSource, backward});
  }
}

}  // namespace trnsim::lower::rules
