// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "lower/cost.h"
#include "lower/rules/families.h"

namespace trnsim::lower {

Target make_target(const machine::Machine& machine, int64_t ranks_per_chip) {
  Target target;
  target.chip = machine.chip;
  target.architecture = machine.chip.architecture;
  target.ranks_per_chip = ranks_per_chip;
  const Rational share = Rational::of(1, ranks_per_chip);
  target.hbm_peak_Bps = machine.chip.hbm.bandwidth_Bps * share;
  target.host_link_Bps = machine.server.host_link_Bps * share;
  target.hbm_Bps = target.hbm_peak_Bps * machine.chip.hbm.efficiency;
  if (target.is_neuron()) {
    target.cores = std::max<int64_t>(1, machine.chip.neuron.cores / ranks_per_chip);
  }
  return target;
}

void Registry::add(const Rule& rule) {
  TRN_CHECK(rules_.emplace(rule.op, rule).second, lower, "op '" + rule.op + "' has two cost rules",
            "register it once");
}

const Rule* Registry::find(const std::string& op) const {
  const auto at = [&](const std::string& name) {
    const auto found = rules_.find(name);
    return found == rules_.end() ? nullptr : &found->second;
  };
  if (const Rule* rule = at(op)) return rule;
  std::string base = op.substr(0, op.find('.'));
  if (const Rule* rule = at(base)) return rule;
  if (base.size() > 1 && base.back() == '_' && base[base.size() - 2] != ':') {
    base.pop_back();
    return at(base);
  }
  return nullptr;
}

const Registry& registry() {
  static const Registry all = [] {
    Registry made;
    rules::register_attention(made);
    rules::register_convolution(made);
    rules::register_indexing(made);
    rules::register_matmul(made);
    rules::register_movement(made);
    rules::register_normalization(made);
    rules::register_optimizer(made);
    rules::register_pointwise(made);
    rules::register_pooling(made);
    rules::register_random(made);
    rules::register_reduction(made);
    rules::register_rnn(made);
    rules::register_softmax_loss(made);
    rules::register_sort(made);
    return made;
  }();
  return all;
}

Cost cost_of(const workload::Signature& signature, const Target& target) {
  const Rule* rule = registry().find(signature.op);
  return rule ? rule->cost(signature, target) : rules::fallback_cost(signature, target);
}

}  // namespace trnsim::lower
