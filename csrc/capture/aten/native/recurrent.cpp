// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The fused LSTM and GRU cells that nn.LSTM and nn.GRU use on an accelerator. PyTorch has them for
// CUDA only; the same functions serve CPU and meta tensors here.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "capture/aten/special.h"

namespace trnsim::capture {
namespace {

at::Tensor optional_tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

at::Tensor biased(const at::Tensor& gates, const c10::IValue& bias) {
  const at::Tensor tensor = optional_tensor(bias);
  return tensor.defined() ? gates + tensor : gates;
}

// (input_gates, hidden_gates, cx, input_bias?, hidden_bias?) -> (hy, cy, workspace)
void lstm_cell(torch::jit::Stack& stack) {
  const auto gates =
      biased(stack[0].toTensor(), stack[3]) + biased(stack[1].toTensor(), stack[4]);
  const auto cx = stack[2].toTensor();
  const auto chunks = gates.chunk(4, 1);
  const auto in = chunks[0].sigmoid(), forget = chunks[1].sigmoid(), cell = chunks[2].tanh(),
             out = chunks[3].sigmoid();
  const auto cy = forget * cx + in * cell;
  const auto hy = out * cy.tanh();
  const auto workspace = at::cat({in, forget, cell, out}, 1);
  stack.clear();
  stack.emplace_back(hy);
  stack.emplace_back(cy);
  stack.emplace_back(workspace);
}

// (grad_hy?, grad_cy?, cx, cy, workspace, has_bias) -> (grad_gates, grad_cx, grad_bias)
void lstm_cell_backward(torch::jit::Stack& stack) {
  const auto grad_hy = optional_tensor(stack[0]), grad_cy_out = optional_tensor(stack[1]);
  const auto cx = stack[2].toTensor(), cy = stack[3].toTensor(), workspace = stack[4].toTensor();
  const bool has_bias = stack[5].toBool();
  stack.clear();
  if (!grad_hy.defined() && !grad_cy_out.defined()) {
    for (int i = 0; i < 3; ++i) stack.emplace_back(at::Tensor());
    return;
  }
  const auto chunks = workspace.chunk(4, 1);
  const auto &in = chunks[0], &forget = chunks[1], &cell = chunks[2], &out = chunks[3];
  const auto tanh_cy = cy.tanh();
  const auto grad_h = grad_hy.defined() ? grad_hy : at::zeros_like(cy);
  auto grad_cy = grad_h * out * (1 - tanh_cy * tanh_cy);
  if (grad_cy_out.defined()) grad_cy = grad_cy + grad_cy_out;
  const auto grad_gates = at::cat({grad_cy * cell * in * (1 - in),
                                   grad_cy * cx * forget * (1 - forget),
                                   grad_cy * in * (1 - cell * cell),
                                   grad_h * tanh_cy * out * (1 - out)}, 1);
  stack.emplace_back(grad_gates);
  stack.emplace_back(grad_cy * forget);
  stack.emplace_back(has_bias ? grad_gates.sum(0) : at::Tensor());
}

// (input_gates, hidden_gates, hx, input_bias?, hidden_bias?) -> (hy, workspace)
void gru_cell(torch::jit::Stack& stack) {
  const auto input = biased(stack[0].toTensor(), stack[3]).chunk(3, 1);
  const auto hidden = biased(stack[1].toTensor(), stack[4]).chunk(3, 1);
  const auto hx = stack[2].toTensor();
  const auto reset = (input[0] + hidden[0]).sigmoid();
  const auto update = (input[1] + hidden[1]).sigmoid();
  const auto fresh = (input[2] + reset * hidden[2]).tanh();
  const auto hy = fresh + update * (hx - fresh);
  const auto workspace = at::cat({reset, update, fresh, hx, hidden[2]}, 1);
  stack.clear();
  stack.emplace_back(hy);
  stack.emplace_back(workspace);
}

// (grad_hy, workspace, has_bias)
//   -> (grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias)
void gru_cell_backward(torch::jit::Stack& stack) {
  const auto grad = stack[0].toTensor();
  const auto chunks = stack[1].toTensor().chunk(5, 1);
  const bool has_bias = stack[2].toBool();
  const auto &reset = chunks[0], &update = chunks[1], &fresh = chunks[2], &hx = chunks[3],
             &hidden_fresh = chunks[4];
  const auto grad_update = grad * (hx - fresh) * update * (1 - update);
  const auto grad_fresh = grad * (1 - update) * (1 - fresh * fresh);
  const auto grad_reset = grad_fresh * hidden_fresh * reset * (1 - reset);
  const auto grad_input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  const auto grad_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  stack.clear();
  stack.emplace_back(grad_input);
  stack.emplace_back(grad_hidden);
  stack.emplace_back(grad * update);
  stack.emplace_back(has_bias ? grad_input.sum(0) : at::Tensor());
  stack.emplace_back(has_bias ? grad_hidden.sum(0) : at::Tensor());
}

constexpr SpecialOp kOps[] = {
    {"aten::_thnn_fused_lstm_cell", &lstm_cell, &lstm_cell},
    {"aten::_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward, &lstm_cell_backward},
    {"aten::_thnn_fused_gru_cell", &gru_cell, &gru_cell},
    {"aten::_thnn_fused_gru_cell_backward", &gru_cell_backward, &gru_cell_backward},
};

}  // namespace

SpecialOps recurrent_ops() { return {kOps, std::size(kOps)}; }

}  // namespace trnsim::capture
