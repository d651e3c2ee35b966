// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Attention by a table of measured rates, on GPUs and TPUs.
#include <cstdlib>

#include "lower/group.h"

namespace trnsim::lower {

// rate = flops_inf * S / (S + half_length); of the rows of the same pass, where the kernel has any,
// the one with the nearest head size, of the same mask where there is one.
int64_t attention_ps(const AttentionShape& shape, const Cost& cost,
                     const machine::AttentionKernels& kernels) {
  const auto kernel = kernels.rates.find(kernels.used);
  TRN_CHECK(kernel != kernels.rates.end(), lower,
            "the machine has no rates of the attention kernel '" + kernels.used + "'",
            "choose one of its file's");
  const machine::AttentionRate* best = nullptr;
  const auto distance = [&](const machine::AttentionRate& rate) {
    const int64_t other_pass = rate.backward == shape.backward ? 0 : int64_t{1} << 40;
    return other_pass + std::abs(rate.head_size - shape.head_size) * 2 +
           (rate.causal != shape.causal);
  };
  for (const machine::AttentionRate& rate : kernel->second) {
    if (!best || distance(rate) < distance(*best)) best = &rate;
  }
  const int64_t length = std::max<int64_t>(1, shape.key_length);
  const int128 flops = shape.causal ? cost.executed_flops / 2 : cost.executed_flops;
  // The length's share goes to the FLOPs: a rate with both in it may not fit 64 bits.
  return duration_ps(ceil_div(flops * (length + best->half_length), int128(length)),
                     best->flops_inf);
}

}  // namespace trnsim::lower
