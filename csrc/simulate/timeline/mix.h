// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The Timeline's hash: the sum mod 2^64, over ranks and tasks, of mix(role, task, end) times the
// number of ranks that a rank stands for. No rank ids, so it is the same folded and unfolded.
//
// mix is a seed from (role, task) and, for each end, one add, one shift and one square: it costs a
// third of a full mixing function, and is half of what a bulk lane does for a task. The shift keeps
// errors that cancel in a sum from cancelling in the sum of squares.
#pragma once

#include <cstdint>

#include "base/hash.h"

namespace trnsim::simulate {

constexpr uint64_t hash_seed(int32_t role, int32_t task) {
  return combine(mix64(uint64_t(role)), uint64_t(task));
}

constexpr uint64_t mix_end(uint64_t seed, int64_t end_ps) {
  uint64_t x = seed + uint64_t(end_ps);
  x ^= x >> 29;
  return x * x;
}

}  // namespace trnsim::simulate
