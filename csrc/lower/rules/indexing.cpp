// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Rows by index: indirect DMA with one descriptor a row, whose descriptors the GPSIMD engine makes
// in software, for the hardware generators cannot gather. A scatter that adds reads, adds and
// writes back, and a dense gradient is a whole table of zeros first.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Indexing'; aws-neuron-sdk@81ce03ae nki/deep-dives/nki-dge.rst, "
    "nki/library/api/scatter-add.rst; 600 cycles ours";

// Cycles of making the descriptors of `rows` rows, split over the cores.
int64_t descriptor_cycles(int64_t rows, const Target& target) {
  return row_tiles(rows, target) * target.core().dynamic_cycles;
}

int64_t index_elements(const Signature& signature) {
  int64_t most = 0;
  for (const TensorSlot& slot : signature.inputs) {
    const bool is_index = slot.argument == "indices" || slot.argument == "index";
    if (is_index) most = std::max(most, slot.meta.element_count());
  }
  return most;
}

// Gathers `moved` elements in `rows` pieces from input `source`.
void gather_rows(Cost& cost, const Signature& signature, const Target& target, int32_t source,
                 int64_t rows, int64_t moved) {
  const TensorMeta& table = signature.inputs[size_t(source)].meta;
  const int64_t size = workload::dtype_bytes(table.dtype);
  if (Stream* stream = read_stream(cost, source)) {
    stream->bytes = moved * size;
    stream->run_bytes = std::max(size, moved * size / std::max<int64_t>(1, rows));
  }
  if (target.is_neuron()) cost.gpsimd_cycles += descriptor_cycles(rows, target);
}

CostFunction gather(const std::string& table) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "indexing", Fusion::alone);
    const int64_t rows = std::max<int64_t>(1, index_elements(signature));
    const int32_t source = std::max(0, find_input(signature, table));
    if (!signature.inputs.empty()) {
      gather_rows(cost, signature, target, source, rows, cost.elements);
      if (Stream* stream = write_stream(cost, 0)) {
        const int64_t row = stream->bytes / rows;
        if (row > 0) stream->run_bytes = std::max(stream->run_bytes, row);
      }
    }
    return cost;
  };
}

// Rows of `source` are added into (or put over) a table.
Cost scatter(const Signature& signature, const Target& target, const TensorMeta& source,
             int64_t rows, bool adds) {
  Cost cost = make_cost(signature, target, "indexing", Fusion::alone);
  const int64_t size = workload::dtype_bytes(source.dtype), bytes = source.element_count() * size;
  const int64_t run = std::max(size, bytes / std::max<int64_t>(1, rows));
  // In place only the rows are written; else the whole table was copied or cleared first.
  bool in_place = false;
  for (Stream& stream : cost.streams) {
    if (stream.is_output || stream.is_write || stream.slot < 0) continue;
    const TensorSlot& slot = signature.inputs[size_t(stream.slot)];
    if (!slot.mutated) continue;
    in_place = true;
    stream.bytes = adds ? bytes : 0;
    stream.run_bytes = run;
  }
  for (Stream& stream : cost.streams) {
    if (!stream.is_write) continue;
    if (in_place) {
      stream.bytes = bytes;
      stream.run_bytes = run;
    }
  }
  if (!in_place) {
    Stream rows_written;
    rows_written.bytes = bytes;
    rows_written.run_bytes = run;
    if (adds) cost.streams.push_back(rows_written);
    rows_written.is_write = true;
    cost.streams.push_back(rows_written);
  }
  if (target.is_neuron()) {
    const Instructions core(target, size <= 2);
    const int64_t row = ceil_div(source.element_count(), std::max<int64_t>(1, rows));
    cost.gpsimd_cycles = descriptor_cycles(rows, target);
    if (adds) cost.vector_cycles = row_tiles(rows, target) * core.tensor_tensor(row);
  }
  return cost;
}

Cost embedding_backward(const Signature& signature, const Target& target) {
  const TensorMeta& grad = signature.inputs[0].meta;
  const int64_t rows = std::max<int64_t>(1, index_elements(signature));
  return scatter(signature, target, grad, rows, true);
}

CostFunction scatter_from(bool always_adds) {
  return [=](const Signature& signature, const Target& target) {
    const TensorMeta* source = nullptr;
    for (const char* name : {"values", "src", "source", "value"}) {
      if (!source) source = meta_of(signature, name);
    }
    if (!source) source = meta_of(signature, "index");
    if (!source) source = &signature.inputs.back().meta;
    const bool adds = always_adds || signature.int_or("accumulate", 0) != 0;
    const int64_t index = std::max<int64_t>(1, index_elements(signature));
    return scatter(signature, target, *source, std::min(index, source->element_count()), adds);
  };
}

// Counts what is not zero, then writes where each of these stands: the input is read for either.
Cost nonzero(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "indexing", Fusion::alone);
  const TensorMeta& input = signature.inputs[0].meta;
  if (Stream* read = read_stream(cost, 0)) read->bytes *= 2;
  if (!target.is_neuron() || input.element_count() == 0) return cost;
  const Instructions core(target, is_narrow(signature));
  const int64_t n = per_partition(input.element_count(), target);
  const int64_t found = signature.outputs.empty() ? 0 : signature.outputs[0].meta.sizes[0];
  cost.vector_cycles = core.reduce(n) + core.select(n);  // the count, and a running sum: places
  cost.gpsimd_cycles = descriptor_cycles(found, target);
  return cost;
}

}  // namespace

void register_indexing(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({"aten::" + op, "indexing", kSource, std::move(cost)});
  };
  add("embedding", gather("weight"));
  for (const char* op : {"index_select", "index", "_unsafe_index", "gather", "take",
                         "masked_select", "take_along_dim"}) {
    add(op, gather("self"));
  }
  add("nonzero", nonzero);
  add("embedding_dense_backward", embedding_backward);
  add("_unsafe_index_put", scatter_from(true));
  for (const char* op : {"scatter_add", "index_add", "index_reduce", "scatter_reduce"}) {
    add(op, scatter_from(true));
  }
  for (const char* op : {"scatter", "index_put", "_index_put_impl", "index_copy", "index_fill",
                         "masked_scatter", "put"}) {
    add(op, scatter_from(false));
  }
}

}  // namespace trnsim::lower::rules
