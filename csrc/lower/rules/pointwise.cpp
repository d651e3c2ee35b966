// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Element in, element out. Each op is a count of passes: tensor_tensor (add, mul, sub),
// tensor_scalar (one or two chained scalar operations), select (divide, compare, predicated copy:
// 2N) on the vector engine, and activations on the scalar engine.
#include <sstream>

#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Pointwise'; nki.isa tensor_tensor, tensor_scalar, activation: "
    "aws-neuron-sdk@1db4d74e nki/api/nki/isa/__init__.py";

struct Passes {
  std::string op;
  int tensor_tensor, tensor_scalar, select, activation;
};

// Name, tensor_tensor, tensor_scalar, select and activation passes; foreach forms cost the same.
// With a scalar in place of the second tensor, tensor_tensor and select become tensor_scalar.
constexpr const char* kBinary = R"(
add 1 0 0 0
sub 1 0 0 0
rsub 1 0 0 0
mul 1 0 0 0
div 0 0 1 0
true_divide 0 0 1 0
maximum 1 0 0 0
minimum 1 0 0 0
fmax 1 0 0 0
fmin 1 0 0 0
eq 0 0 1 0
ne 0 0 1 0
lt 0 0 1 0
le 0 0 1 0
gt 0 0 1 0
ge 0 0 1 0
logical_and 1 0 0 0
logical_or 1 0 0 0
logical_xor 1 0 0 0
bitwise_and 1 0 0 0
bitwise_or 1 0 0 0
bitwise_xor 1 0 0 0
__and__ 1 0 0 0
__or__ 1 0 0 0
__lshift__ 1 0 0 0
__rshift__ 1 0 0 0
bitwise_left_shift 1 0 0 0
bitwise_right_shift 1 0 0 0
floor_divide 0 1 1 0
fmod 1 0 2 0
remainder 1 0 2 0
pow 1 0 0 2
atan2 1 0 1 1
hypot 1 0 0 3
clamp_max 1 0 0 0
clamp_min 1 0 0 0
copysign 1 0 1 0
heaviside 0 0 2 0
xlogy 1 0 1 1
logaddexp 2 0 0 2
)";

constexpr const char* kOther = R"(
neg 0 1 0 0
abs 0 1 0 0
clamp 0 1 0 0
relu 0 1 0 0
relu6 0 1 0 0
sign 0 2 0 0
sgn 0 2 0 0
hardtanh 0 1 0 0
threshold 0 1 0 0
leaky_relu 0 2 0 0
hardswish 0 3 0 0
hardsigmoid 0 2 0 0
elu 0 2 0 1
celu 0 2 0 1
selu 0 2 0 1
prelu 1 1 0 0
_prelu_kernel 1 1 0 0
exp 0 0 0 1
exp2 0 0 0 1
expm1 0 1 0 1
log 0 0 0 1
log2 0 0 0 1
log10 0 0 0 1
log1p 0 0 0 1
sqrt 0 0 0 1
rsqrt 0 0 0 1
square 0 0 0 1
reciprocal 0 0 0 1
sigmoid 0 0 0 1
tanh 0 0 0 1
erf 0 0 0 1
erfc 0 1 0 1
erfinv 0 2 0 2
gelu 0 0 0 1
silu 0 0 0 1
mish 1 0 0 2
softplus 0 0 0 1
sin 0 0 0 1
cos 0 0 0 1
tan 0 0 1 2
asin 0 0 0 2
acos 0 0 0 2
atan 0 0 0 1
sinh 1 1 0 2
cosh 1 1 0 2
lgamma 2 2 0 2
digamma 2 2 0 2
log_sigmoid_forward 0 0 0 2
floor 0 2 0 0
ceil 0 2 0 0
round 0 2 0 0
trunc 0 2 0 0
frac 1 2 0 0
isnan 0 0 1 0
isinf 0 1 0 0
isfinite 0 1 0 0
logical_not 0 1 0 0
bitwise_not 0 1 0 0
nan_to_num 0 1 2 0
where 0 0 1 0
masked_fill 0 0 1 0
lerp 2 0 0 0
addcmul 2 0 0 0
addcdiv 1 0 1 0
glu 1 0 0 1
gelu_backward 1 0 0 1
silu_backward 3 1 0 1
sigmoid_backward 2 1 0 0
tanh_backward 1 1 0 1
threshold_backward 1 1 0 0
hardtanh_backward 1 2 0 0
leaky_relu_backward 1 2 0 0
elu_backward 1 2 0 1
hardswish_backward 1 3 0 0
hardsigmoid_backward 1 2 0 0
softplus_backward 1 1 0 1
mish_backward 4 1 0 3
log_sigmoid_backward 2 1 0 0
glu_backward 4 1 0 1
_prelu_kernel_backward 2 2 0 0
native_dropout_backward 1 1 0 0
mse_loss_backward 1 1 0 0
smooth_l1_loss_backward 2 2 1 0
binary_cross_entropy_backward 2 1 1 0
binary_cross_entropy_with_logits 2 1 0 2
)";

// The second operand is a number, or a tensor of one element.
bool second_is_scalar(const Signature& signature) {
  const int64_t elements = domain(signature) ? domain(signature)->element_count() : 0;
  int large = 0;
  const std::string* seen = nullptr;
  for (const TensorSlot& slot : signature.inputs) {
    if (seen && *seen == slot.argument) continue;  // further tensors of one list
    seen = &slot.argument;
    large += slot.meta.element_count() > 1 || elements == 1;
  }
  return large < 2;
}

CostFunction passes_cost(Passes passes, bool binary) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "pointwise", Fusion::pointwise);
    if (!target.is_neuron()) return cost;
    const Instructions core(target, is_narrow(signature));
    const bool scalar = binary && second_is_scalar(signature);
    for (const int64_t elements : element_counts(signature)) {
      if (elements == 0) continue;
      const int64_t n = per_partition(elements, target);
      const int64_t scalar_passes =
          passes.tensor_scalar + (scalar ? passes.tensor_tensor + passes.select : 0);
      cost.vector_cycles += scalar_passes * core.tensor_scalar(n);
      if (!scalar) {
        cost.vector_cycles +=
            passes.tensor_tensor * core.tensor_tensor(n) + passes.select * core.select(n);
      }
      cost.scalar_cycles += passes.activation * core.activation(n);
    }
    return cost;
  };
}

std::vector<Passes> read_table(const char* table) {
  std::istringstream rows(table);
  std::vector<Passes> all;
  Passes row;
  while (rows >> row.op >> row.tensor_tensor >> row.tensor_scalar >> row.select >> row.activation) {
    all.push_back(row);
  }
  return all;
}

}  // namespace

void register_pointwise(Registry& registry) {
  const auto add = [&](const Passes& passes, bool binary) {
    for (const char* prefix : {"aten::", "aten::_foreach_"}) {
      registry.add({prefix + passes.op, "pointwise", kSource, passes_cost(passes, binary)});
    }
  };
  for (const Passes& passes : read_table(kBinary)) add(passes, true);
  for (const Passes& passes : read_table(kOther)) add(passes, false);
  registry.add({"aten::pow.Tensor_Scalar", "pointwise", kSource,
                passes_cost({"pow", 0, 0, 0, 1}, false)});  // a square is one activation
}

}  // namespace trnsim::lower::rules
