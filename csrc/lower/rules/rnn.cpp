// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Cells of recurrent networks, without their two GEMMs, which are records of their own.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Recurrent cells'; nki.isa tensor_tensor, activation: "
    "aws-neuron-sdk@1db4d74e nki/api/nki/isa/__init__.py; the passes are ours";

// Passes over one hidden state.
struct Cell {
  int vector = 0, scalar = 0;
};

CostFunction cell(Cell passes) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "rnn", Fusion::alone);
    if (!target.is_neuron() || cost.elements == 0) return cost;
    const Instructions core(target, is_narrow(signature));
    const int64_t n = per_partition(cost.elements, target);
    cost.vector_cycles = passes.vector * core.tensor_tensor(n);
    cost.scalar_cycles = passes.scalar * core.activation(n);
    return cost;
  };
}

}  // namespace

void register_rnn(Registry& registry) {
  const auto add = [&](const std::string& op, Cell passes) {
    registry.add({"aten::" + op, "rnn", kSource, cell(passes)});
  };
  add("_thnn_fused_lstm_cell", {4 + 4, 5});  // gates added, then f * c + i * g, o * tanh(c)
  add("_thnn_fused_gru_cell", {3 + 4, 3});
  add("_thnn_fused_lstm_cell_backward", {12, 2});
  add("_thnn_fused_lstm_cell_backward_impl", {12, 2});
  add("_thnn_fused_gru_cell_backward", {12, 1});
}

}  // namespace trnsim::lower::rules
