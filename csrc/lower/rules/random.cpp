// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Random numbers: the generator's state lives on the GPSIMD engine, which fills a tile in 150 + N.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Random numbers'; generator on GPSIMD: aws-neuron-sdk@81ce03ae "
    "nki/library/api/rng.rst; 150 + N is ours";

// `activations` of the scalar engine turn uniform numbers into the distribution.
CostFunction fill(int activations) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "random", Fusion::pointwise);
    if (!target.is_neuron()) return cost;
    const Instructions core(target, is_narrow(signature));
    for (const int64_t elements : element_counts(signature)) {
      if (elements == 0) continue;
      const int64_t n = per_partition(elements, target);
      cost.gpsimd_cycles += core.gpsimd(n);
      cost.vector_cycles += core.tensor_scalar(n);
      cost.scalar_cycles += activations * core.activation(n);
    }
    return cost;
  };
}

// Mask and scale, and the mask of one byte an element.
Cost dropout(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "random", Fusion::pointwise);
  if (!target.is_neuron() || cost.elements == 0) return cost;
  const Instructions core(target, is_narrow(signature));
  const int64_t n = per_partition(cost.elements, target);
  cost.vector_cycles = core.vector(n);
  cost.gpsimd_cycles = core.gpsimd(n);
  return cost;
}

}  // namespace

void register_random(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({"aten::" + op, "random", kSource, std::move(cost)});
  };
  for (const char* op : {"uniform", "random", "rand", "rand_like", "randint", "randint_like",
                         "bernoulli", "randperm"}) {
    add(op, fill(0));
  }
  for (const char* op : {"exponential", "geometric"}) add(op, fill(1));
  // Box-Muller: a logarithm, a root and a sine.
  for (const char* op : {"normal", "randn", "randn_like", "log_normal", "cauchy"}) {
    add(op, fill(3));
  }
  for (const char* op : {"native_dropout", "dropout", "_fused_dropout", "alpha_dropout"}) {
    add(op, dropout);
  }
}

}  // namespace trnsim::lower::rules
