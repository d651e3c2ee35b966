// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// An op without a rule: its bytes on the HBM and one pass of the vector engine over its largest
// tensor. Never zero, and listed in the report.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {

Cost fallback_cost(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "fallback", Fusion::alone);
  cost.rule_class = RuleClass::fallback;
  if (!target.is_neuron()) return cost;
  int64_t elements = 1;
  for (const auto* slots : {&signature.inputs, &signature.outputs}) {
    for (const TensorSlot& slot : *slots) {
      elements = std::max(elements, slot.meta.element_count());
    }
  }
  cost.vector_cycles = Instructions(target, false).select(per_partition(elements, target));
  return cost;
}

}  // namespace trnsim::lower::rules
