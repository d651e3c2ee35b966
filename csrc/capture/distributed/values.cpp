// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/distributed/values.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch_v2.h>

#include <limits>

#include "capture/distributed/host_values.h"

namespace trnsim::capture::distributed {
namespace {

using c10d::ReduceOp;

// Of a float of 16 or 8 bits.
double largest_finite(at::ScalarType type) {
  double largest = 0;
  AT_DISPATCH_V2(type, "limits", AT_WRAP([&] {
                   largest = static_cast<double>(std::numeric_limits<scalar_t>::max());
                 }),
                 at::kHalf, at::kBFloat16, AT_EXPAND(AT_FLOAT8_TYPES));
  return largest;
}

// Narrow floats take their values from float32, where what overflows becomes the largest finite
// value and what was infinite stays so.
void take_narrowed(at::Tensor& value, const at::Tensor& before, const at::Tensor& wide) {
  const double largest = largest_finite(value.scalar_type());
  value.copy_(at::where(before.isinf(), wide, wide.clamp(-largest, largest)));
}

// value * factor, where what overflows an integer or a float of 16 bits becomes the largest finite
// value.
void multiply_saturating(at::Tensor& value, int64_t factor) {
  if (factor == 1) return;
  if (c10::isIntegralType(value.scalar_type(), false)) {
    int64_t low = 0, high = 0;
    AT_DISPATCH_INTEGRAL_TYPES(value.scalar_type(), "limits", [&] {
      low = static_cast<int64_t>(std::numeric_limits<scalar_t>::lowest());
      high = static_cast<int64_t>(std::numeric_limits<scalar_t>::max());
    });
    const at::Tensor above = value.gt(high / factor), below = value.lt(low / factor);
    value.mul_(factor).masked_fill_(above, high).masked_fill_(below, low);
  } else if (value.scalar_type() == at::kHalf || value.scalar_type() == at::kBFloat16) {
    const at::Tensor wide = value.to(at::kFloat);
    take_narrowed(value, wide, wide.mul(static_cast<double>(factor)));
  } else {
    value.mul_(static_cast<double>(factor));
  }
}

// value^exponent by repeated squaring is what ranks multiplied together give; integers saturate
// through float64, which is exact as long as the result is.
void raise_saturating(at::Tensor& value, int64_t exponent) {
  if (exponent == 1) return;
  const at::Tensor power = value.to(at::kDouble).pow(static_cast<double>(exponent));
  if (c10::isIntegralType(value.scalar_type(), false)) {
    double low = 0, high = 0;
    AT_DISPATCH_INTEGRAL_TYPES(value.scalar_type(), "limits", [&] {
      low = static_cast<double>(std::numeric_limits<scalar_t>::lowest());
      high = static_cast<double>(std::numeric_limits<scalar_t>::max());
    });
    // The largest int64 is no float64: the next one below it is.
    if (value.scalar_type() == at::kLong) high = std::nextafter(high, 0.0);
    value.copy_(power.clamp(low, high));
  } else {
    value.copy_(power);
  }
}

void reduce_values(at::Tensor& value, const ReduceOp& op, int64_t ranks) {
  const bool is_bool = value.scalar_type() == at::kBool;
  switch (static_cast<ReduceOp::RedOpType>(op)) {
    case ReduceOp::SUM:
      if (!is_bool) multiply_saturating(value, ranks);
      return;
    case ReduceOp::PREMUL_SUM: {
      const auto* factor = static_cast<c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (factor->tensor_factor.defined()) {
        value.mul_(*host_values(factor->tensor_factor));
      } else {
        value.mul_(factor->double_factor);
      }
      multiply_saturating(value, ranks);
      return;
    }
    case ReduceOp::PRODUCT:
      if (!is_bool) raise_saturating(value, ranks);
      return;
    case ReduceOp::BXOR:
      if (ranks % 2 == 0) value.zero_();
      return;
    case ReduceOp::AVG: case ReduceOp::MIN: case ReduceOp::MAX: case ReduceOp::BAND:
    case ReduceOp::BOR: case ReduceOp::UNUSED:
      return;
  }
}

// The source as a tensor that a copy into target may read: in-place gathers pass a slice of it.
at::Tensor apart(const at::Tensor& source, const at::Tensor& target) {
  return source.is_alias_of(target) ? source.clone() : source;
}

// Complex sums are sums of the parts; float8, which has no arithmetic on the CPU, goes through
// float32.
void reduce_any(at::Tensor& value, const ReduceOp& op, int64_t ranks) {
  if (!c10::isFloat8Type(value.scalar_type())) return reduce_values(value, op, ranks);
  const at::Tensor before = value.to(at::kFloat);
  at::Tensor wide = before.clone();
  reduce_values(wide, op, ranks);
  take_narrowed(value, before, wide);
}

// Whether values reduced by it can be known: a factor on the device may have none.
bool is_known(const ReduceOp& op) {
  if (static_cast<ReduceOp::RedOpType>(op) != ReduceOp::PREMUL_SUM) return true;
  const auto* factor = static_cast<c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  return !factor->tensor_factor.defined() || host_values(factor->tensor_factor).has_value();
}

}  // namespace

void reduce_in_place(const at::Tensor& tensor, const ReduceOp& op, int64_t ranks) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (!is_known(op)) return forget_values(tensor);
  std::optional<at::Tensor> values = host_values(tensor);
  if (values) reduce_any(*values, op, ranks);
}

void fill_with(const at::Tensor& output, const at::Tensor& input) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const std::optional<at::Tensor> source = host_values(input);
  if (!source) {
    forget_values(output);
    return;
  }
  std::optional<at::Tensor> target = host_values_to_write(output);
  if (!target || target->numel() == 0) return;
  if (source->numel() == 0) {
    target->zero_();
    return;
  }
  const at::Tensor flat = apart(*source, *target).reshape({-1});
  const int64_t copies = (target->numel() + flat.numel() - 1) / flat.numel();
  if (copies == 1) {
    target->copy_(flat.narrow(0, 0, target->numel()).view(target->sizes()));
  } else if (target->is_contiguous() && target->numel() % flat.numel() == 0) {
    target->view({copies, flat.numel()}).copy_(flat.unsqueeze(0));
  } else {
    target->copy_(
        flat.repeat({copies}).narrow(0, 0, target->numel()).view(target->sizes()));
  }
}

void reduce_slice(const at::Tensor& output, const at::Tensor& input, int64_t index, int64_t count,
                  const ReduceOp& op, int64_t ranks) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const std::optional<at::Tensor> source = host_values(input);
  if (!source || !is_known(op)) {
    forget_values(output);
    return;
  }
  std::optional<at::Tensor> target = host_values_to_write(output);
  if (!target) return;
  const int64_t length = source->numel() / count;
  const at::Tensor slice = source->reshape({-1}).narrow(0, index * length, length);
  target->copy_(apart(slice, *target).view(target->sizes()));
  reduce_any(*target, op, ranks);
}

void fill_from_elsewhere(const at::Tensor& output) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (!values_are_computed(output)) {
    forget_values(output);
    return;
  }
  std::optional<at::Tensor> target = host_values_to_write(output);
  if (target) target->zero_();
}

}  // namespace trnsim::capture::distributed
