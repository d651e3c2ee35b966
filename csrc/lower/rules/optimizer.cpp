// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Optimizers as one op over lists of parameters. AdamW, per element on the vector engine in fp32:
// first moment 2, second moment 2, epsilon 1, divide 2, weights 2; on the scalar engine: scale,
// square, root, cast. Gradients are read, and written only when they are unscaled.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Optimizer'; lists of aws-neuron-sdk@81ce03ae "
    "nki/library/api/fused-adam.rst; the passes are ours";

struct Passes {
  int vector = 0, scalar = 0;
};

bool is_list(const TensorSlot& slot, const char* argument) { return slot.argument == argument; }

CostFunction fused(Passes passes) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "optimizer", Fusion::alone);
    const bool unscales = find_input(signature, "grad_scale") >= 0;
    std::erase_if(cost.streams, [&](const Stream& stream) {
      return !stream.is_output && stream.is_write && !unscales &&
             is_list(signature.inputs[size_t(stream.slot)], "grads");
    });
    if (!target.is_neuron()) return cost;
    const int64_t extra = signature.int_or("amsgrad", 0) != 0 ? 1 : 0;
    for (const int64_t elements : element_counts(signature)) {
      if (elements == 0) continue;
      const int64_t n = std::max(target.core().min_cycles, per_partition(elements, target));
      cost.vector_cycles += (passes.vector + extra) * n;
      cost.scalar_cycles += passes.scalar * n;
    }
    return cost;
  };
}

// Over the list of gradients: one pass to unscale, one to look for infinities.
Cost unscale(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "optimizer", Fusion::alone);
  if (!target.is_neuron()) return cost;
  const Instructions core(target, is_narrow(signature));
  for (const int64_t elements : element_counts(signature)) {
    if (elements == 0) continue;
    const int64_t n = per_partition(elements, target);
    cost.vector_cycles += core.tensor_scalar(n) + core.reduce(n);
  }
  return cost;
}

Cost update_scale(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "optimizer", Fusion::alone);
  if (target.is_neuron()) cost.vector_cycles = 4 * target.core().min_cycles;
  return cost;
}

}  // namespace

void register_optimizer(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({"aten::" + op, "optimizer", kSource, std::move(cost)});
  };
  add("_fused_adamw", fused({9, 4}));
  add("_fused_adam", fused({9, 4}));
  add("_fused_sgd", fused({4, 1}));
  add("_fused_adagrad", fused({5, 2}));
  add("_amp_foreach_non_finite_check_and_unscale", unscale);
  add("_amp_update_scale", update_scale);
}

}  // namespace trnsim::lower::rules
