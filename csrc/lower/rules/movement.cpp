// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Copies, casts, joins and cuts. A copy between equal layouts is a tensor_copy; between layouts
// whose innermost axes differ it is a transposition, by the tensor engine in blocks of 128 x 128.
// Allocation and pure aliases cost nothing.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kHostSource =
    "csrc/lower/README.md 'Host copies'; server.host_link_bandwidth of the machine file: "
    "SemiAnalysis 2024-12-03 on Trainium2, inferred";

constexpr const char* kSource =
    "csrc/lower/README.md 'Movement'; nki.isa tensor_copy, nc_transpose, memset, iota: "
    "aws-neuron-sdk@1db4d74e nki/api/nki/isa/__init__.py";

// Elements that are contiguous, in the same order, in both tensors of one shape.
int64_t common_run(const TensorMeta& a, const TensorMeta& b) {
  if (a.sizes != b.sizes || a.strides.size() != a.sizes.size() ||
      b.strides.size() != b.sizes.size()) {
    return std::min(run_bytes(a) / workload::dtype_bytes(a.dtype),
                    run_bytes(b) / workload::dtype_bytes(b.dtype));
  }
  std::vector<size_t> axes;
  for (size_t i = 0; i < b.sizes.size(); ++i) {
    if (b.sizes[i] != 1) axes.push_back(i);
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [&](size_t x, size_t y) { return b.strides[x] < b.strides[y]; });
  int64_t run = 1;
  for (const size_t axis : axes) {
    if (a.strides[axis] == 0 && run == 1) return b.sizes[axis];  // a value repeated
    if (a.strides[axis] != run || b.strides[axis] != run) break;
    run *= b.sizes[axis];
  }
  return run;
}

void limit_runs(Cost& cost, int64_t elements, const TensorMeta& from, const TensorMeta& to) {
  for (Stream& stream : cost.streams) {
    const DType dtype = stream.is_write ? to.dtype : from.dtype;
    stream.run_bytes = std::min(stream.run_bytes, elements * workload::dtype_bytes(dtype));
  }
}

Cost copy(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "movement", Fusion::pointwise);
  const TensorMeta* to = domain(signature);
  const TensorMeta* from = meta_of(signature, "src");
  if (!from && !signature.inputs.empty()) from = &signature.inputs.back().meta;
  if (!to || !from || !target.is_neuron()) return cost;
  const Instructions core(target, is_narrow(signature));
  for (const int64_t elements : element_counts(signature)) {
    if (elements > 0) cost.vector_cycles += core.tensor_scalar(per_partition(elements, target));
  }
  const int64_t run = common_run(*from, *to);
  const machine::NeuronCore& machine = target.core();
  if (run < 2 && to->element_count() > 1 && from->element_count() > 1) {
    const int64_t block = machine.partitions * machine.partitions;
    const int64_t blocks = ceil_div(ceil_div(cost.elements, target.cores), block);
    cost.tensor_cycles = blocks * machine.partitions;
    cost.vector_cycles = std::max(cost.vector_cycles, blocks * machine.partitions);
    cost.fusion = Fusion::alone;
  } else if (!cost.streams.empty() && signature.op.find("foreach") == std::string::npos) {
    limit_runs(cost, std::max<int64_t>(1, run), *from, *to);
  }
  return cost;
}

// Slices that a DMA moves. As an anchor they start a group of their own, and a pointwise reader
// takes the result through access patterns, without a copy in the HBM.
CostFunction moved(Fusion fusion) {
  return [=](const Signature& signature, const Target& target) {
    return make_cost(signature, target, "movement", fusion);
  };
}

// What torch's FSDP copies out of the buffer of an all-gather, and into that of a reduce-scatter:
// into tensors that exist, which is what tells it from other cuts and joins.
Cost parameter_copy(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "movement", Fusion::anchor);
  if (!target.copies_parameters) cost.streams.clear();
  return cost;
}

// Between the host's memory and the HBM, at the rank's share of the link to the host, each way with
// a queue of its own.
Cost host_copy(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "movement", Fusion::alone);
  int64_t bytes = 0;
  for (const Stream& stream : cost.streams) bytes = std::max(bytes, stream.bytes);
  cost.host_link_ps = duration_ps(bytes, target.host_link_Bps);
  cost.host_link = signature.op == "trnsim::copy_h2d";
  return cost;
}

Cost fill(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "movement", Fusion::pointwise);
  // zeros_like and its kin read nothing of their argument.
  std::erase_if(cost.streams, [](const Stream& stream) { return !stream.is_write; });
  if (!target.is_neuron()) return cost;
  const Instructions core(target, is_narrow(signature));
  for (const int64_t elements : element_counts(signature)) {
    if (elements > 0) cost.vector_cycles += core.reduce(per_partition(elements, target));
  }
  return cost;
}

// Ramps and triangular masks: iota and affine_select of the GPSIMD engine.
Cost pattern(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "movement", Fusion::pointwise);
  if (target.is_neuron() && cost.elements > 0) {
    cost.gpsimd_cycles = Instructions(target, false).gpsimd(per_partition(cost.elements, target));
  }
  return cost;
}

Cost nothing(const Signature&, const Target&) {
  Cost cost;
  cost.rule = "allocation";
  cost.fusion = Fusion::nothing;
  return cost;
}

// Allocation, and aliases that a tracer may still record.
void register_nothing(Registry& registry) {
  for (const std::string& op : words(R"(
empty empty_like empty_strided new_empty new_empty_strided resize set
empty_permuted lift_fresh detach alias _reshape_alias view _unsafe_view
as_strided t transpose permute expand slice select unsqueeze squeeze split
split_with_sizes unbind narrow _conj _neg_view record_stream)")) {
    registry.add({"aten::" + op, "movement", kSource, nothing});
  }
}

}  // namespace

void register_movement(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({"aten::" + op, "movement", kSource, std::move(cost)});
  };
  for (const std::string& op : words(R"(
copy clone _to_copy contiguous _copy_from to _copy_from_and_resize
_foreach_copy expand_copy view_copy permute_copy _reshape_copy flip roll repeat)")) {
    add(op, copy);
  }
  for (const std::string& op : words(R"(
cat stack _cat constant_pad_nd pad slice_backward select_backward
split_with_sizes_copy split_copy chunk_cat _chunk_cat slice_scatter
select_scatter as_strided_scatter unfold_backward repeat_interleave
pixel_shuffle pixel_unshuffle channel_shuffle reflection_pad1d
reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
replication_pad3d reflection_pad1d_backward reflection_pad2d_backward
reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward
replication_pad3d_backward diag_embed diagonal_copy block_diag rot90
_jagged_to_padded_dense_forward _padded_dense_to_jagged_forward)")) {
    add(op, moved(Fusion::anchor));
  }
  for (const char* op : {"cat.out", "split_with_sizes_copy.out", "_chunk_cat.out"}) {
    add(op, parameter_copy);
  }
  for (const std::string& op : words(R"(
zero fill zeros ones full zeros_like ones_like full_like new_zeros new_ones
new_full scalar_tensor _foreach_zero _efficientzerotensor)")) {
    add(op, fill);
  }
  for (const char* op :
       {"arange", "linspace", "range", "tril", "triu", "eye", "tril_indices", "triu_indices"}) {
    add(op, pattern);
  }
  for (const char* op : {"trnsim::copy_h2d", "trnsim::copy_d2h"}) {
    registry.add({op, "movement", kHostSource, host_copy});
  }
  register_nothing(registry);
}

}  // namespace trnsim::lower::rules
