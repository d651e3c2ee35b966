// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Norms over rows (layer, RMS, group) and over channels (batch). Rows lie on partitions, and of a
// group norm the channels of each sample; a batch norm has channels on partitions and reads its
// input twice, for the statistics and to apply them.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Normalization'; nki.isa bn_stats, bn_aggr: aws-neuron-sdk@1db4d74e "
    "nki/api/nki/isa/__init__.py; nki-library@d2ad3a57 core/rmsnorm/rmsnorm_quant.py; backward "
    "ours";

int64_t row_length(const Signature& signature, const TensorMeta& input) {
  if (const std::vector<int64_t> shape = int_list(signature, "normalized_shape"); !shape.empty()) {
    int64_t length = 1;
    for (const int64_t size : shape) length *= size;
    return length;
  }
  if (signature.scalar("group")) {  // group norm: a row is one group of one sample
    const int64_t rows = signature.int_or("N", input.sizes[0]) * signature.int_or("group", 1);
    return rows == 0 ? 1 : input.element_count() / rows;
  }
  return last_size(input);
}

enum class Kind : uint8_t { layer, rms };

// Sets the domain; returns the row tiles of one core.
int64_t set_rows(Cost& cost, const Signature& signature, const Target& target,
                 const TensorMeta& input) {
  cost.elements = input.element_count();
  cost.row_length = std::max<int64_t>(1, row_length(signature, input));
  return row_tiles(cost.elements / cost.row_length, target);
}

// What passes over the partitions of one core: so many tiles of so many elements.
struct Passes {
  int64_t tiles = 0, length = 0;
};

// A row of a group norm is all channels of a group: few rows, which are long. Each channel of a
// sample is on a partition of its own, as its weight and bias are; of channels that leave most
// partitions idle, elements are.
Passes passes_of_groups(const Cost& cost, const Signature& signature, const Target& target,
                        const TensorMeta& input) {
  const int64_t channels = input.sizes.size() > 1 ? input.sizes[1] : 1;
  const int64_t rows = signature.int_or("N", input.sizes[0]) * signature.int_or("C", channels);
  if (rows == 0 || leave_half_idle(rows, target)) return {1, per_partition(cost.elements, target)};
  return {row_tiles(rows, target), ceil_div(cost.elements, rows)};
}

// Of rows that leave most partitions idle, elements lie on the partitions instead: each row's
// squares are summed over them by a product with ones, whose result has a column for each row.
// False where the rows fill the partitions as well.
bool add_across(Cost& cost, const Instructions& core, const Target& target) {
  const int64_t rows = cost.elements / cost.row_length;
  const int64_t n = per_partition(cost.elements, target);
  if (!leave_half_idle(rows, target) || n >= cost.row_length) return false;
  cost.scalar_cycles = core.activation(n) + core.activation(rows);
  cost.vector_cycles = core.reduce(n) + core.select(n);  // sums on a partition, (x * rstd) * gamma
  cost.tensor_cycles = core.at_least(rows);
  return true;
}

CostFunction forward(Kind kind) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "normalization", Fusion::rows);
    const int64_t tiles = set_rows(cost, signature, target, signature.inputs[0].meta);
    if (!target.is_neuron() || cost.elements == 0) return cost;
    const Instructions core(target, is_narrow(signature));
    const int64_t n = cost.row_length, mii = target.core().min_cycles;
    if (kind == Kind::rms && tiles == 1 && add_across(cost, core, target)) return cost;
    if (kind == Kind::rms) {
      cost.scalar_cycles = tiles * (core.activation_reduce(n) + mii);
      cost.vector_cycles = tiles * core.select(n);  // (x * rstd) * gamma
      cost.tensor_cycles = tiles * n;               // gamma to all partitions
    } else if (signature.scalar("group")) {
      const auto [count, length] =
          passes_of_groups(cost, signature, target, signature.inputs[0].meta);
      // The last scales and shifts by a channel's own two numbers, the affine ones in them.
      cost.vector_cycles =
          count * (core.vector(length) + core.aggregate(length) + core.tensor_scalar(length));
      cost.scalar_cycles = count * mii;
      cost.tensor_cycles = count * core.at_least(2);  // the statistics of a group's channels
    } else {
      const int64_t affine = int64_t(find_input(signature, "weight") >= 0) +
                             int64_t(find_input(signature, "bias") >= 0);
      cost.vector_cycles = tiles * (core.vector(n) + core.aggregate(n) + core.tensor_scalar(n) +
                                    affine * core.tensor_tensor(n));
      cost.scalar_cycles = tiles * mii;
    }
    return cost;
  };
}

Cost backward(const Signature& signature, const Target& target) {
  const TensorMeta* input = meta_of(signature, "input");
  Cost cost = make_cost(signature, target, "normalization", Fusion::rows);
  const int64_t tiles =
      set_rows(cost, signature, target, input ? *input : signature.inputs[0].meta);
  if (!target.is_neuron()) {
    // A GPU has two kernels, for the input and for the weights; each reads gradient and input.
    for (const char* name : {"grad_out", "grad_output", "input"}) {
      if (Stream* stream = read_stream(cost, find_input(signature, name))) stream->bytes *= 2;
    }
    return cost;
  }
  Passes passes{tiles, cost.row_length};
  if (signature.scalar("group")) {
    passes = passes_of_groups(cost, signature, target, input ? *input : signature.inputs[0].meta);
  }
  const int64_t n = passes.tiles * passes.length;
  cost.vector_cycles = 7 * n;  // dy * gamma, two reductions, xhat * dy, combination
  cost.scalar_cycles = 2 * n;
  cost.tensor_cycles = n;  // sums over rows, for gamma and beta
  return cost;
}

// Channels on partitions, positions on the free axis, positions split over the cores.
struct Channels {
  int64_t tiles = 0, length = 0;
  bool resident = false;  // both passes find the input in SBUF
};

Channels channels_of(const TensorMeta& input, const Target& target) {
  Channels channels;
  const int64_t count = input.sizes.size() > 1 ? std::max<int64_t>(1, input.sizes[1]) : 1;
  if (!target.is_neuron()) return channels;
  const machine::NeuronCore& core = target.core();
  channels.tiles = ceil_div(count, core.partitions);
  channels.length = ceil_div(input.element_count() / count, target.cores);
  const int64_t bytes = channels.tiles * channels.length * workload::dtype_bytes(input.dtype);
  channels.resident = 2 * bytes <= core.sbuf_partition_bytes;
  return channels;
}

// Statistics need the whole input before the first result: nothing streams in from a producer.
Cost batch_forward(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "normalization", Fusion::anchor);
  const TensorMeta& input = signature.inputs[0].meta;
  const bool training =
      signature.op.find("_no_") == std::string::npos && signature.int_or("training", 1) != 0;
  const Channels channels = channels_of(input, target);
  cost.row_length = last_size(input);
  if (!training) cost.fusion = Fusion::pointwise;
  if (training) {
    if (Stream* stream = read_stream(cost, 0); stream && !channels.resident) stream->bytes *= 2;
  }
  if (!target.is_neuron() || cost.elements == 0) return cost;
  const Instructions core(target, is_narrow(signature));
  const int64_t n = channels.length;
  cost.vector_cycles = channels.tiles * core.tensor_scalar(n);
  if (training) {
    cost.vector_cycles += channels.tiles * (core.vector(n) + core.aggregate(n));
    cost.scalar_cycles = channels.tiles * target.core().min_cycles;
  }
  return cost;
}

Cost batch_backward(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "normalization", Fusion::anchor);
  const TensorMeta* found = meta_of(signature, "input");
  const TensorMeta& input = found ? *found : signature.inputs[0].meta;
  const Channels channels = channels_of(input, target);
  cost.elements = input.element_count();
  cost.row_length = last_size(input);
  for (const char* name : {"grad_out", "grad_output", "input"}) {
    Stream* stream = read_stream(cost, find_input(signature, name));
    if (stream && !channels.resident) stream->bytes *= 2;
  }
  if (!target.is_neuron() || cost.elements == 0) return cost;
  const Instructions core(target, is_narrow(signature));
  const int64_t n = channels.length;
  // sum dy; xhat * dy and its sum; the combination of dy and xhat; apply.
  cost.vector_cycles =
      channels.tiles * (2 * core.reduce(n) + 2 * core.tensor_tensor(n) + core.tensor_scalar(n));
  cost.scalar_cycles = channels.tiles * core.activation(n);
  return cost;
}

// The parts that SyncBatchNorm puts collectives between: each one pass over its bytes.
CostFunction batch_part(Fusion fusion, int64_t (*cycles)(const Instructions& core, int64_t n)) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "normalization", fusion);
    const TensorMeta* found = meta_of(signature, "input");
    const TensorMeta& input = found ? *found : signature.inputs[0].meta;
    cost.row_length = last_size(input);
    if (!target.is_neuron() || cost.elements == 0) return cost;
    const Channels channels = channels_of(input, target);
    cost.vector_cycles =
        channels.tiles * cycles(Instructions(target, is_narrow(signature)), channels.length);
    return cost;
  };
}

// Of [ranks, channels], for which the input is there only to name its type.
Cost batch_gather(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "normalization", Fusion::anchor);
  const TensorMeta* means = meta_of(signature, "mean");
  if (Stream* stream = read_stream(cost, find_input(signature, "input"))) stream->bytes = 0;
  if (!target.is_neuron() || means == nullptr || means->sizes.size() != 2) return cost;
  const Instructions core(target, false);
  const int64_t tiles = ceil_div(means->sizes[1], target.core().partitions);
  cost.vector_cycles = tiles * 4 * core.tensor_tensor(means->sizes[0]);
  return cost;
}

}  // namespace

void register_normalization(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({"aten::" + op, "normalization", kSource, std::move(cost)});
  };
  for (const char* op : {"native_layer_norm", "layer_norm", "native_group_norm", "group_norm"}) {
    add(op, forward(Kind::layer));
  }
  for (const char* op : {"_fused_rms_norm", "rms_norm"}) add(op, forward(Kind::rms));
  for (const char* op :
       {"native_layer_norm_backward", "native_group_norm_backward", "_fused_rms_norm_backward"}) {
    add(op, backward);
  }
  for (const char* op : {"native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm",
                         "_native_batch_norm_legit_functional", "_batch_norm_with_update",
                         "_batch_norm_with_update_functional", "_batch_norm_no_update",
                         "_native_batch_norm_legit_no_training"}) {
    add(op, batch_forward);
  }
  add("batch_norm_stats", batch_part(Fusion::anchor, [](const Instructions& core, int64_t n) {
        return core.vector(n) + core.aggregate(n);
      }));
  add("batch_norm_gather_stats_with_counts", batch_gather);
  add("batch_norm_elemt", batch_part(Fusion::pointwise, [](const Instructions& core, int64_t n) {
        return core.tensor_scalar(n);
      }));
  add("batch_norm_backward_reduce",
      batch_part(Fusion::anchor, [](const Instructions& core, int64_t n) {
        return 2 * core.reduce(n) + core.tensor_tensor(n);
      }));
  add("batch_norm_backward_elemt",
      batch_part(Fusion::pointwise, [](const Instructions& core, int64_t n) {
        return core.tensor_tensor(n) + 2 * core.tensor_scalar(n);
      }));
  for (const char* op :
       {"native_batch_norm_backward", "cudnn_batch_norm_backward", "batch_norm_backward"}) {
    add(op, batch_backward);
  }
}

}  // namespace trnsim::lower::rules
