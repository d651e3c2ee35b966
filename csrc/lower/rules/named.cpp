// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The fused kernels of training frameworks, as the reference programs record them
// (trnsim/recipes/kernels.py): each reads its tensors once and writes its results once. On a
// NeuronCore they are passes of the instructions that the ops they are made of would take.
#include <sstream>

#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Named kernels'; nki.isa tensor_tensor, tensor_scalar, activation: "
    "aws-neuron-sdk@1db4d74e nki/api/nki/isa/__init__.py";

struct Kernel {
  std::string op;
  int tensor_tensor, tensor_scalar, reduce, activation;  // passes over the largest tensor
  int rows;  // 1 = works on whole rows, 2 = and its result goes to memory before the next
};

// Name; tensor_tensor, tensor_scalar, reduce and activation passes; whether it works on rows, and
// fuses with nothing.
constexpr const char* kKernels = R"(
silu 0 0 0 1 0
silu_backward 3 1 0 1 0
gelu 0 0 0 1 0
gelu_backward 3 2 0 1 0
relu2 1 1 0 0 0
relu2_backward 1 1 0 0 0
gated_silu 1 0 0 1 0
gated_silu_backward 4 1 0 1 0
gated_gelu 1 0 0 1 0
gated_gelu_backward 4 2 0 1 0
bias_dropout_add 3 1 0 0 0
dropout_backward 1 1 0 0 0
rope 4 0 0 0 0
masked_softmax 1 1 1 1 1
softmax_mask 2 0 0 0 2
softmax_widen 0 1 0 0 2
softmax_largest 0 0 1 0 2
softmax_shift 0 1 0 0 2
softmax_exponent 0 0 0 1 2
softmax_total 0 0 1 0 2
softmax_share 0 1 0 0 2
softmax_narrow 0 1 0 0 2
decode_softmax 1 1 1 1 1
masked_softmax_backward 2 0 1 0 1
cross_entropy_sums 0 1 1 1 1
cross_entropy_loss 2 0 0 1 0
cross_entropy_backward 1 1 0 1 0
cross_entropy_wide 0 1 0 0 0
cross_entropy_largest 0 0 1 0 1
cross_entropy_exponents 0 1 1 1 1
cross_entropy_shares 0 1 0 0 0
cast_fp8 0 2 1 0 0
largest_value 0 0 1 0 1
route 1 1 8 1 1
route_backward 3 1 0 0 1
permute 0 1 0 0 0
unpermute 1 1 0 0 0
)";

const TensorMeta* largest(const Signature& signature) {
  const TensorMeta* found = nullptr;
  for (const auto* slots : {&signature.inputs, &signature.outputs}) {
    for (const TensorSlot& slot : *slots) {
      if (!found || slot.meta.element_count() > found->element_count()) found = &slot.meta;
    }
  }
  return found;
}

CostFunction kernel_cost(const Kernel& kernel) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "named",
                          kernel.rows == 2   ? Fusion::alone
                          : kernel.rows == 1 ? Fusion::rows
                                             : Fusion::pointwise);
    const TensorMeta* of = largest(signature);
    if (!of || of->element_count() == 0) return cost;
    if (kernel.rows) {
      cost.elements = of->element_count();
      cost.row_length = last_size(*of);
    }
    if (!target.is_neuron()) return cost;
    const Instructions core(target, is_narrow(signature));
    int64_t n = per_partition(of->element_count(), target);
    if (kernel.rows) {  // rows lie on partitions: a few leave most of them idle
      const int64_t rows = ceil_div(cost.elements, cost.row_length);
      n = std::max(n, row_tiles(rows, target) * cost.row_length);
    }
    cost.vector_cycles = kernel.tensor_tensor * core.tensor_tensor(n) +
                         kernel.tensor_scalar * core.tensor_scalar(n) +
                         kernel.reduce * core.reduce(n);
    cost.scalar_cycles = kernel.activation * core.activation(n);
    return cost;
  };
}

}  // namespace

void register_named(Registry& registry) {
  std::istringstream rows(kKernels);
  Kernel row;
  while (rows >> row.op >> row.tensor_tensor >> row.tensor_scalar >> row.reduce >> row.activation >>
         row.rows) {
    registry.add({"trnsim::" + row.op, "named", kSource, kernel_cost(row)});
  }
}

}  // namespace trnsim::lower::rules
