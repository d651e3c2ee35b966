// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include <algorithm>
#include <bit>
#include <cstdio>

#include "lower/cost.h"
#include "lower/rules/families.h"

namespace trnsim::lower {
namespace {

void scale_products(std::map<std::string, Rational>& efficiency, const machine::Stack& stack) {
  for (auto& [dtype, share] : efficiency) {
    share = share * (dtype.starts_with("float8") ? stack.float8_factor : stack.gemm_factor);
  }
}

void scale_attention(machine::AttentionKernels& kernels, Rational factor) {
  for (auto& [name, rates] : kernels.rates) {
    for (machine::AttentionRate& rate : rates) rate.flops_inf = rate.flops_inf * factor;
  }
}

// The chip with the rates that its stack leaves of it.
machine::Chip under_stack(machine::Chip chip, const machine::Stack& stack) {
  scale_products(chip.gpu.gemm_efficiency, stack);
  scale_products(chip.tpu.gemm_efficiency, stack);
  scale_attention(chip.gpu.attention, stack.attention_factor);
  scale_attention(chip.tpu.attention, stack.attention_factor);
  for (Rational* share :
       {&chip.neuron.tensor_efficiency, &chip.neuron.tensor_small_tile_efficiency}) {
    *share = *share * stack.gemm_factor;
  }
  return chip;
}

}  // namespace

Target make_target(const machine::Machine& machine, int64_t ranks_per_chip) {
  Target target;
  target.chip = under_stack(machine.chip, machine.stack);
  target.grouped_factor = machine.stack.grouped_factor;
  target.grouped_launches = machine.stack.grouped_launches;
  target.copies_parameters = machine.stack.copies_parameters;
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

int64_t Target::launch_ps() const {
  if (is_gpu()) return chip.gpu.host_launch_ps;
  return is_tpu() ? chip.tpu.launch_ps : core().launch_ps;
}

int64_t Target::collective_streams() const {
  if (is_gpu()) return chip.gpu.collective_streams;
  return is_tpu() ? chip.tpu.collective_streams : core().collective_streams;
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
    rules::register_named(made);
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

namespace {

// "aten::mm of float32[4,8], float32[8,2]"
std::string shapes_text(const workload::Signature& signature) {
  constexpr size_t kTensorsShown = 4;
  const auto& slots = signature.inputs.empty() ? signature.outputs : signature.inputs;
  std::string text = signature.op;
  for (size_t i = 0; i < std::min(slots.size(), kTensorsShown); ++i) {
    const workload::TensorMeta& meta = slots[i].meta;
    text += std::string(i == 0 ? " of " : ", ") + workload::dtype_name(meta.dtype) + "[";
    for (size_t axis = 0; axis < meta.sizes.size(); ++axis) {
      text += (axis == 0 ? "" : ",") + std::to_string(meta.sizes[axis]);
    }
    text += "]";
  }
  return text;
}

// Stops at the first product above kMostElements, so that no rule multiplies sizes that overflow.
void check_elements(const workload::Signature& signature) {
  for (const auto* slots : {&signature.inputs, &signature.outputs}) {
    for (const workload::TensorSlot& slot : *slots) {
      int128 count = 1;
      for (const int64_t size : slot.meta.sizes) {
        count *= std::max<int64_t>(1, size);
        check_count(signature, "elements in one tensor", count, kMostElements);
      }
    }
  }
}

void check_cost(const workload::Signature& signature, const Cost& cost) {
  check_count(signature, "FLOPs", cost.model_flops, kMostFlops);
  check_count(signature, "FLOPs", cost.executed_flops, kMostFlops);
  for (const int64_t cycles :
       {cost.tensor_cycles, cost.vector_cycles, cost.scalar_cycles, cost.gpsimd_cycles}) {
    check_count(signature, "cycles of one engine", cycles, kMostCycles);
  }
  for (const Stream& stream : cost.streams) {
    check_count(signature, "bytes of one tensor", stream.bytes, kMostBytes);
  }
}

}  // namespace

void check_count(const workload::Signature& signature, const char* of, int128 count, int64_t most) {
  if (count <= most) return;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", double(count));
  throw Error(ErrorKind::lower, shapes_text(signature) + " needs " + text + " " + of,
              "one op may need 2^" + std::to_string(std::bit_width(uint64_t(most)) - 1) +
                  " at most, so make its tensors smaller");
}

Cost cost_of(const workload::Signature& signature, const Target& target) {
  check_elements(signature);
  const bool is_given = rules::has_given_cost(signature);
  const Rule* rule = is_given ? nullptr : registry().find(signature.op);
  const Cost cost = is_given ? rules::given_cost(signature, target)
                    : rule   ? rule->cost(signature, target)
                             : rules::fallback_cost(signature, target);
  check_cost(signature, cost);
  return cost;
}

}  // namespace trnsim::lower
