// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Reductions. Over the last axes: a row op; of rows that leave most partitions idle, elements lie
// on the partitions, and a product with ones adds theirs, a column for each row. Over the first
// axes (tokens, for bias gradients): ones^T x on the tensor engine. Over everything: square or sum
// on the scalar engine, then across partitions.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Reduction'; nki.isa tensor_reduce, activation_reduce, nc_matmul: "
    "aws-neuron-sdk@1db4d74e nki/api/nki/isa/__init__.py";

enum class Which : uint8_t { rows, columns, mixed, all };

struct Axes {
  Which which = Which::all;
  int64_t reduced = 1, kept = 1;
};

Axes axes_of(const Signature& signature, const TensorMeta& input) {
  Axes axes;
  const size_t count = input.sizes.size();
  std::vector<uint8_t> is_reduced(count, 0);
  const std::vector<int64_t> dims = int_list(signature, "dim");
  for (const int64_t dim : dims) {
    const int64_t axis = dim < 0 ? dim + int64_t(count) : dim;
    if (axis >= 0 && axis < int64_t(count)) is_reduced[size_t(axis)] = 1;
  }
  const bool all = dims.empty() || count == 0;
  for (size_t i = 0; i < count; ++i) {
    (all || is_reduced[i] ? axes.reduced : axes.kept) *= input.sizes[i];
  }
  if (all || axes.kept == 1) return axes;
  const auto first_kept = std::find(is_reduced.begin(), is_reduced.end(), 0);
  const auto first_reduced = std::find(is_reduced.begin(), is_reduced.end(), 1);
  const bool trailing = std::find(first_reduced, is_reduced.end(), 0) == is_reduced.end();
  const bool leading = std::find(first_kept, is_reduced.end(), 1) == is_reduced.end();
  axes.which = trailing ? Which::rows : leading ? Which::columns : Which::mixed;
  return axes;
}

// Sums over rows on the tensor engine, or, when there are few long rows, over all on the vector
// engine.
bool columns_by_tensor(const Axes& axes, int64_t tensor_cycles, const Target& target) {
  const machine::NeuronCore& core = target.core();
  const int64_t vector_cycles = per_partition(axes.reduced * axes.kept, target);
  return duration_ps(tensor_cycles, core.tensor_clock_Hz) <=
         duration_ps(vector_cycles, core.vector_clock_Hz);
}

void add_cycles(Cost& cost, const Axes& axes, bool narrow, bool is_norm, const Target& target) {
  const machine::NeuronCore& machine = target.core();
  const Instructions core(target, narrow);
  const int64_t n = per_partition(axes.reduced * axes.kept, target);
  const bool lie_across = leave_half_idle(axes.kept, target) && n < axes.reduced;
  if (axes.which == Which::rows && !lie_across) {
    const int64_t tiles = row_tiles(axes.kept, target);
    if (is_norm) {
      cost.scalar_cycles += tiles * core.activation_reduce(axes.reduced);
    } else {
      cost.vector_cycles += tiles * core.reduce(axes.reduced);
    }
    return;
  }
  if (axes.which == Which::columns) {
    const int64_t factor = narrow ? 1 : machine.tensor_fp32_factor;
    const int64_t cycles = row_tiles(axes.reduced, target) * core.vector(axes.kept) * factor;
    if (columns_by_tensor(axes, cycles, target)) {
      cost.tensor_cycles += cycles;
      cost.vector_cycles += core.vector(axes.kept);  // evacuation of one row
      return;
    }
  }
  (is_norm ? cost.scalar_cycles : cost.vector_cycles) +=
      is_norm ? core.activation_reduce(n) : core.reduce(n);
  if (axes.which == Which::all) cost.tensor_cycles += machine.min_cycles;
  if (axes.which == Which::rows) cost.tensor_cycles += core.at_least(axes.kept);
}

CostFunction reduce(bool is_norm, int passes) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "reduction", Fusion::alone);
    if (signature.inputs.empty()) return cost;
    const TensorMeta& input = signature.inputs[0].meta;
    const Axes axes = axes_of(signature, input);
    if (axes.which == Which::rows) {
      cost.fusion = Fusion::rows;
      cost.row_length = axes.reduced;
    }
    cost.elements = input.element_count();
    if (!target.is_neuron()) return cost;
    const int64_t list_lengths =
        signature.op.find("_foreach") != std::string::npos ? int64_t(signature.inputs.size()) : 1;
    const bool narrow = workload::dtype_bytes(input.dtype) <= 2;
    for (int64_t i = 0; i < list_lengths; ++i) {
      const Axes one =
          i == 0 ? axes : Axes{Which::all, signature.inputs[size_t(i)].meta.element_count(), 1};
      for (int pass = 0; pass < passes; ++pass) add_cycles(cost, one, narrow, is_norm, target);
    }
    return cost;
  };
}

// An elementwise loss and the mean or sum of it.
CostFunction loss(int tensor_tensor, int activation) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "reduction", Fusion::alone);
    cost.elements = signature.inputs.empty() ? 0 : signature.inputs[0].meta.element_count();
    if (!target.is_neuron()) return cost;
    const Instructions core(target, is_narrow(signature));
    const int64_t n = per_partition(cost.elements, target);
    cost.vector_cycles = tensor_tensor * core.tensor_tensor(n) + core.reduce(n);
    cost.scalar_cycles = activation * core.activation(n);
    return cost;
  };
}

// A running sum along an axis: tensor_tensor_scan, 2N.
Cost scan(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "reduction", Fusion::alone);
  if (target.is_neuron()) {
    cost.vector_cycles = Instructions(target, false).select(per_partition(cost.elements, target));
  }
  return cost;
}

// Looks at its values, and stops the device where one is zero.
Cost assertion(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "reduction", Fusion::alone);
  if (target.is_neuron() && !signature.inputs.empty()) {
    const int64_t elements = signature.inputs[0].meta.element_count();
    cost.vector_cycles = Instructions(target, false).reduce(per_partition(elements, target));
  }
  return cost;
}

}  // namespace

void register_reduction(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({"aten::" + op, "reduction", kSource, std::move(cost)});
  };
  for (const char* op : {"sum", "mean", "nansum", "amax", "amin", "max", "min", "prod", "any",
                         "all", "count_nonzero", "_foreach_max"}) {
    add(op, reduce(false, 1));
  }
  for (const char* op : {"aminmax", "argmax", "argmin"}) add(op, reduce(false, 2));
  for (const char* op : {"norm", "linalg_vector_norm", "_foreach_norm", "logsumexp"}) {
    add(op, reduce(true, 1));
  }
  for (const char* op : {"var", "std", "var_mean", "std_mean"}) add(op, reduce(false, 2));
  add("mse_loss", loss(1, 1));
  add("l1_loss", loss(1, 1));
  add("smooth_l1_loss", loss(2, 1));
  add("huber_loss", loss(2, 1));
  add("kl_div", loss(2, 1));
  add("binary_cross_entropy", loss(3, 2));
  add("_assert_async", assertion);
  for (const char* op : {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"}) add(op, scan);
}

}  // namespace trnsim::lower::rules
