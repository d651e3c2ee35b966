// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "lower/rules/families.h"

#include <iterator>
#include <sstream>

namespace trnsim::lower::rules {

int64_t touched_elements(const TensorMeta& meta) {
  int64_t count = 1;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i] == 0) return 0;
    if (i >= meta.strides.size() || meta.strides[i] != 0) count *= meta.sizes[i];
  }
  return count;
}

int64_t touched_bytes(const TensorMeta& meta) {
  return touched_elements(meta) * workload::dtype_bytes(meta.dtype);
}

// The run and whether it covers the whole tensor: axes from the smallest stride up, as long as each
// one continues where the last ended.
static std::pair<int64_t, bool> run_elements(const TensorMeta& meta) {
  if (meta.is_contiguous()) return {meta.element_count(), true};
  std::vector<size_t> axes;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i] != 1) axes.push_back(i);
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [&](size_t a, size_t b) { return meta.strides[a] < meta.strides[b]; });
  int64_t run = 1;
  for (const size_t axis : axes) {
    if (meta.strides[axis] == 0) continue;
    if (meta.strides[axis] != run) return {run, false};
    run *= meta.sizes[axis];
  }
  return {run, true};
}

int64_t run_bytes(const TensorMeta& meta) {
  return run_elements(meta).first * workload::dtype_bytes(meta.dtype);
}

bool is_dense(const TensorMeta& meta) { return run_elements(meta).second; }

int64_t last_size(const TensorMeta& meta) {
  return meta.sizes.empty() ? 1 : std::max<int64_t>(1, meta.sizes.back());
}

const TensorMeta* domain(const Signature& signature) {
  if (!signature.outputs.empty()) return &signature.outputs.front().meta;
  for (const TensorSlot& slot : signature.inputs) {
    if (slot.mutated) return &slot.meta;
  }
  return signature.inputs.empty() ? nullptr : &signature.inputs.front().meta;
}

std::vector<int64_t> element_counts(const Signature& signature) {
  std::vector<int64_t> counts;
  const auto add_list = [&](const std::vector<TensorSlot>& slots) {
    for (const TensorSlot& slot : slots) {
      if (slot.index >= 0 && slot.argument == slots.front().argument) {
        counts.push_back(slot.meta.element_count());
      }
    }
  };
  if (signature.op.find("foreach") != std::string::npos ||
      signature.op.find("_fused_ad") != std::string::npos ||
      signature.op.find("_fused_sgd") != std::string::npos) {
    if (!signature.inputs.empty()) add_list(signature.inputs);
  }
  if (counts.empty()) {
    if (const TensorMeta* meta = domain(signature)) counts.push_back(meta->element_count());
  }
  return counts;
}

bool is_narrow(const Signature& signature) {
  int64_t most = 1;
  for (const auto* slots : {&signature.inputs, &signature.outputs}) {
    for (const TensorSlot& slot : *slots) most = std::max(most, slot.meta.element_count());
  }
  const auto wide = [&](const TensorSlot& slot) {
    return workload::dtype_bytes(slot.meta.dtype) > 2 && 2 * slot.meta.element_count() > most;
  };
  return std::none_of(signature.inputs.begin(), signature.inputs.end(), wide) &&
         std::none_of(signature.outputs.begin(), signature.outputs.end(), wide);
}

static Stream stream_of(const TensorMeta& meta, const Target& target) {
  Stream stream;
  stream.bytes = touched_bytes(meta);
  // A long run is cut into one piece a partition of every core, and goes on from there.
  const int64_t lanes = target.is_neuron() ? target.core().partitions * target.cores : 1;
  const int64_t piece = std::max(workload::dtype_bytes(meta.dtype), ceil_div(stream.bytes, lanes));
  stream.run_bytes = std::max<int64_t>(1, std::min(run_bytes(meta), piece));
  return stream;
}

void add_read(Cost& cost, const Signature& signature, const Target& target, int32_t input) {
  Stream stream = stream_of(signature.inputs[size_t(input)].meta, target);
  stream.slot = input;
  if (stream.bytes > 0) cost.streams.push_back(stream);
}

void add_write(Cost& cost, const Signature& signature, const Target& target, int32_t output) {
  Stream stream = stream_of(signature.outputs[size_t(output)].meta, target);
  stream.slot = output;
  stream.is_output = stream.is_write = true;
  if (stream.bytes > 0) cost.streams.push_back(stream);
}

// Ops that write an argument without reading it.
static bool overwrites(const std::string& op) {
  for (const char* name : {"copy", "fill", "zero", "normal", "uniform", "bernoulli", "random",
                           "exponential", "trunc_normal"}) {
    const std::string base = std::string("aten::") + name + "_";
    if (op.compare(0, base.size(), base) == 0) return true;
  }
  return op.find("_foreach_zero_") != std::string::npos ||
         op.find("_foreach_copy_") != std::string::npos;
}

Cost make_cost(const Signature& signature, const Target& target, const std::string& rule,
               Fusion fusion) {
  Cost cost;
  cost.rule = rule;
  cost.fusion = fusion;
  if (const TensorMeta* meta = domain(signature)) {
    for (const int64_t count : element_counts(signature)) cost.elements += count;
    cost.row_length = last_size(*meta);
  }
  const bool reads_written = !overwrites(signature.op);
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSlot& slot = signature.inputs[i];
    if (!slot.mutated || (reads_written && slot.argument != "out")) {
      add_read(cost, signature, target, int32_t(i));
    }
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    add_write(cost, signature, target, int32_t(i));
  }
  const bool returned = std::any_of(signature.outputs.begin(), signature.outputs.end(),
                                    [](const TensorSlot& slot) { return slot.mutated; });
  for (size_t i = 0; i < signature.inputs.size() && !returned; ++i) {
    if (!signature.inputs[i].mutated) continue;
    Stream stream = stream_of(signature.inputs[i].meta, target);
    stream.slot = int32_t(i);
    stream.is_write = true;
    if (stream.bytes > 0) cost.streams.push_back(stream);
  }
  return cost;
}

int64_t Instructions::tensor_tensor(int64_t n) const {
  const Rational speedup = narrow_ ? core_.vector_tt16_speedup : core_.vector_tt32_speedup;
  const int64_t cycles = narrow_ ? n : 2 * n;
  return at_least(scale_up(cycles, Rational{1, 1} / speedup));
}

std::vector<std::string> words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

std::vector<int64_t> int_list(const Signature& signature, const std::string& name) {
  const workload::Scalar* scalar = signature.scalar(name);
  if (!scalar) return {};
  if (const auto* list = std::get_if<std::vector<int64_t>>(&scalar->value)) return *list;
  if (const auto* one = std::get_if<int64_t>(&scalar->value)) return {*one};
  return {};
}

int32_t find_input(const Signature& signature, const std::string& argument) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    if (signature.inputs[i].argument == argument) return int32_t(i);
  }
  return -1;
}

const TensorMeta* meta_of(const Signature& signature, const std::string& argument) {
  const int32_t input = find_input(signature, argument);
  return input < 0 ? nullptr : &signature.inputs[size_t(input)].meta;
}

Stream* read_stream(Cost& cost, int32_t input) {
  for (Stream& stream : cost.streams) {
    if (!stream.is_write && !stream.is_output && stream.slot == input) return &stream;
  }
  return nullptr;
}

Stream* write_stream(Cost& cost, int32_t output) {
  for (Stream& stream : cost.streams) {
    if (stream.is_output && stream.slot == output) return &stream;
  }
  return nullptr;
}

int64_t per_partition(int64_t elements, const Target& target) {
  if (!target.is_neuron()) return 0;
  return ceil_div(elements, target.core().partitions * target.cores);
}

int64_t row_tiles(int64_t rows, const Target& target) {
  if (!target.is_neuron()) return 0;
  return ceil_div(ceil_div(rows, target.cores), target.core().partitions);
}

bool leave_half_idle(int64_t rows, const Target& target) {
  return 2 * rows <= target.core().partitions * target.cores;
}

Split split_over_cores(int64_t batch, int64_t rows, int64_t columns, const Target& target) {
  Split split{batch, rows, columns};
  const int64_t least_rows = target.core().partitions, least_columns = target.core().moving_max;
  for (int64_t cores = target.cores; cores > 1; cores /= 2) {
    int64_t* best = nullptr;
    const auto offer = [&](int64_t& size, int64_t least) {
      if (ceil_div<int64_t>(size, 2) >= least && size > 1 && (!best || size > *best)) best = &size;
    };
    offer(split.batch, 1);
    offer(split.rows, least_rows);
    offer(split.columns, least_columns);
    if (!best) break;  // too small to split further: the other cores idle
    *best = ceil_div<int64_t>(*best, 2);
  }
  return split;
}

}  // namespace trnsim::lower::rules
