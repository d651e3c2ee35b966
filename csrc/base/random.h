// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Random numbers without state: the number of (seed, stream, counter) is always the same, so they
// can be drawn in any order, on any number of threads, on a GPU, or one alone.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "base/units.h"

namespace trnsim {

// 64 random bits.
constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
  return combine(combine(mix64(seed), stream), counter);
}

// Of the same bits, one of `count` numbers from 0, each as likely to one in 2^64 / count.
constexpr uint64_t pick(uint64_t bits, uint64_t count) {
  return uint64_t(uint128(bits) * count >> 64);
}

}  // namespace trnsim
