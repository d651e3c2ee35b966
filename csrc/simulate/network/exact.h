// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The one division of the network, exact and quick.
#pragma once

#include <cstdint>
#include <limits>

#include "base/units.h"

#ifdef __CUDACC__
#define TRN_HOST_DEVICE __host__ __device__
#else
#define TRN_HOST_DEVICE
#endif

namespace trnsim::simulate {

inline constexpr int64_t kMostRate = std::numeric_limits<int64_t>::max();

// The smallest whole q with q * b >= a, for 0 <= a < 2^126 and b > 0; kMostRate when it is more.
// A double proposes q to within one, integers decide it: a 128-bit division costs four times that.
TRN_HOST_DEVICE inline int64_t ceil_quotient(int128 a, int64_t b) {
  constexpr double kTwo64 = 18446744073709551616.0, kSafe = 1125899906842624.0;  // 2^64, 2^50
  const double size = double(int64_t(a >> 64)) * kTwo64 + double(uint64_t(a));
  const double estimate = size / double(b);
  if (estimate < kSafe) {
    int64_t quotient = int64_t(estimate);
    int128 over = int128(quotient) * b - a;
    for (; over < 0; over += b) ++quotient;
    for (; over >= b; over -= b) --quotient;
    return quotient;
  }
  const int128 quotient = (a + b - 1) / b;
  return quotient > kMostRate ? kMostRate : int64_t(quotient);
}

}  // namespace trnsim::simulate
