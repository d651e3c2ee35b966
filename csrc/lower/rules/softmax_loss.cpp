// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Softmax and the losses over classes. Rows lie on partitions; a row that does not fit the SBUF
// twice is read once more (online form).
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Softmax and loss'; nki.isa activation, tensor_reduce: "
    "aws-neuron-sdk@1db4d74e nki/api/nki/isa/__init__.py; nki-library@d2ad3a57 "
    "experimental/loss/cross_entropy.py";

constexpr int64_t kVocabularyChunk = 32768;  // of the cross-entropy kernel

// The axis that is normalised, its length, and whether it is the last.
struct Axis {
  int64_t length = 1;
  bool last = true;
};
Axis axis_of(const Signature& signature, const TensorMeta& input) {
  const int64_t count = int64_t(input.sizes.size());
  if (count == 0) return {};
  int64_t dim = signature.int_or("dim", -1);
  if (dim < 0) dim += count;
  dim = std::clamp<int64_t>(dim, 0, count - 1);
  return {std::max<int64_t>(1, input.sizes[size_t(dim)]), dim == count - 1};
}

bool fits_twice(int64_t length, const TensorMeta& input, const Target& target) {
  return 2 * length * workload::dtype_bytes(input.dtype) <= target.core().sbuf_partition_bytes;
}

// Sets domain and second reading; returns the row tiles of one core.
int64_t set_rows(Cost& cost, const Signature& signature, const Target& target, Axis axis) {
  const TensorMeta& input = signature.inputs[0].meta;
  cost.elements = input.element_count();
  cost.row_length = axis.length;
  if (!axis.last) cost.fusion = Fusion::alone;
  if (target.is_neuron() && !fits_twice(axis.length, input, target)) {
    if (Stream* stream = read_stream(cost, 0)) stream->bytes *= 2;
  }
  return row_tiles(cost.elements / axis.length, target);
}

// add_tile(core, n, target, cost): the cycles of one tile of rows of n elements.
template <typename AddTile>
CostFunction over_rows(AddTile add_tile) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "softmax", Fusion::rows);
    const Axis axis = axis_of(signature, signature.inputs[0].meta);
    const int64_t tiles = set_rows(cost, signature, target, axis);
    if (!target.is_neuron() || cost.elements == 0) return cost;
    add_tile(Instructions(target, is_narrow(signature)), axis.length, target, cost);
    cost.vector_cycles *= tiles;
    cost.scalar_cycles *= tiles;
    return cost;
  };
}

CostFunction softmax(bool is_log) {
  return over_rows([=](const Instructions& core, int64_t n, const Target& target, Cost& cost) {
    const int64_t mii = target.core().min_cycles;
    // max, reciprocal (or the shift by the logarithm of the sum), scale
    cost.vector_cycles = core.reduce(n) + mii + core.tensor_scalar(n);
    cost.scalar_cycles = core.activation_reduce(n) + (is_log ? mii : 0);
  });
}

CostFunction softmax_backward(bool is_log) {
  return over_rows([=](const Instructions& core, int64_t n, const Target&, Cost& cost) {
    // y * (dy - sum(y * dy)); for the logarithm dy - exp(y) * sum(dy)
    const int64_t product = is_log ? 0 : core.tensor_tensor(n);
    cost.vector_cycles = product + core.reduce(n) + core.select(n);
    if (is_log) cost.scalar_cycles = core.activation(n);
  });
}

int64_t classes_of(const TensorMeta& input) {
  if (input.sizes.empty()) return 1;
  return std::max<int64_t>(1, input.sizes.size() > 1 ? input.sizes[1] : input.sizes[0]);
}

// The logit of each row's target. Either a small DMA a row, issued by the descriptor generators,
// or, for few classes, a mask over all of them and its product, summed.
Cost nll_forward(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "loss", Fusion::alone);
  const TensorMeta& input = signature.inputs[0].meta;
  const int64_t classes = classes_of(input), rows = input.element_count() / classes;
  int64_t issue_ps = 0;
  if (target.is_neuron()) {
    const machine::NeuronCore& machine = target.core();
    const Instructions core(target, workload::dtype_bytes(input.dtype) <= 2);
    issue_ps = ceil_div(ceil_div(rows, target.cores) * machine.dge_ps, machine.dge_count);
    const int64_t masked =
        row_tiles(rows, target) *
        (core.select(classes) + core.tensor_tensor(classes) + core.reduce(classes));
    if (duration_ps(masked, machine.vector_clock_Hz) <= issue_ps) {
      cost.vector_cycles = masked;
      cost.gpsimd_cycles = core.gpsimd(classes);
      if (last_size(input) == classes) cost.fusion = Fusion::rows;
      cost.elements = input.element_count();
      cost.row_length = classes;
      return cost;
    }
    cost.vector_cycles = core.select(per_partition(rows, target));
  }
  cost.least_dma_ps = issue_ps;
  if (Stream* stream = read_stream(cost, 0)) {
    stream->bytes = rows * workload::dtype_bytes(input.dtype);
    stream->run_bytes = workload::dtype_bytes(input.dtype);
  }
  return cost;
}

// Writes zeros and one value a row; reads no logits.
Cost nll_backward(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "loss", Fusion::pointwise);
  const int32_t self = find_input(signature, "self");
  std::erase_if(cost.streams, [&](const Stream& stream) {
    return !stream.is_output && !stream.is_write && stream.slot == self;
  });
  if (!target.is_neuron()) return cost;
  const Instructions core(target, is_narrow(signature));
  const int64_t n = per_partition(cost.elements, target);
  cost.vector_cycles = core.select(n);  // index == target, as a mask
  cost.gpsimd_cycles = core.gpsimd(std::min(n, classes_of(signature.inputs[1].meta)));  // iota
  return cost;
}

// The whole loss in one kernel, by chunks of the vocabulary.
Cost cross_entropy(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "loss", Fusion::alone);
  const TensorMeta& input = signature.inputs[0].meta;
  const int64_t classes = classes_of(input), rows = input.element_count() / classes;
  cost.elements = input.element_count();
  cost.row_length = classes;
  if (!target.is_neuron() || cost.elements == 0) return cost;
  const machine::NeuronCore& machine = target.core();
  const Instructions core(target, is_narrow(signature));
  const int64_t tiles = row_tiles(rows, target), mii = machine.min_cycles;
  const int64_t chunk = std::min(classes, kVocabularyChunk);
  const int64_t chunks = ceil_div(classes, chunk);
  cost.vector_cycles =
      tiles * (chunks * (2 * core.reduce(chunk) + core.tensor_scalar(chunk) + 6 * mii) + 3 * mii);
  cost.scalar_cycles = tiles * (chunks * core.activation_reduce(chunk) + mii);
  cost.least_dma_ps = ceil_div(ceil_div(rows, target.cores) * machine.dge_ps, machine.dge_count);
  return cost;
}

}  // namespace

void register_softmax_loss(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({"aten::" + op, "softmax_loss", kSource, std::move(cost)});
  };
  for (const char* op : {"_softmax", "softmax", "_safe_softmax"}) add(op, softmax(false));
  for (const char* op : {"_log_softmax", "log_softmax"}) add(op, softmax(true));
  add("_softmax_backward_data", softmax_backward(false));
  add("_log_softmax_backward_data", softmax_backward(true));
  for (const char* op : {"nll_loss_forward", "nll_loss2d_forward", "nll_loss"}) {
    add(op, nll_forward);
  }
  for (const char* op : {"nll_loss_backward", "nll_loss2d_backward"}) add(op, nll_backward);
  add("cross_entropy_loss", cross_entropy);
}

}  // namespace trnsim::lower::rules
