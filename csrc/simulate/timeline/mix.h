// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The Timeline's hash: the sum mod 2^64, over ranks and tasks, of mix(role, task, end) times the
// number of ranks that a rank stands for. No rank ids, so it is the same folded and unfolded.
//
// mix = seed + c * e * (e + a), with a < 2^62 and c odd from the seed of (role, task). It is a
// square in disguise, and that is why it is cheap in bulk: over many lanes it needs the sum of
// their ends and the sum of their squares alone, and both can be taken from 32-bit offsets of a
// common base (one 32 x 32 -> 64 multiply an end, which every vector unit has) and moved to the
// base afterwards. What it sees:
//
//   one wrong end    always. e(e + a) = e'(e' + a) needs e = e' or e + e' + a = 0 mod 2^64, which
//                    no two times below 2^62 give.
//   two that cancel  in the sum of ends: on one task (e + d, e' - d) changes the squares by
//                    2d(d + e - e'): zero where the ranks change places, which no hash without
//                    rank ids may see, or where both hold 63 factors of two between them; on two
//                    tasks their c and a differ.
//   more             on one task, ends with the same sum and the same sum of squares look alike.
#pragma once

#include <cstdint>

#include "base/hash.h"

namespace trnsim::simulate {

constexpr uint64_t hash_seed(int32_t role, int32_t task) {
  return combine(mix64(uint64_t(role)), uint64_t(task));
}

struct HashWeights {
  uint64_t a = 0, c = 0;
};
constexpr HashWeights hash_weights(uint64_t seed) {
  return {seed >> 2 | 1, seed >> 32 | seed << 32 | 1};
}

constexpr uint64_t mix_end(uint64_t seed, int64_t end_ps) {
  const HashWeights weights = hash_weights(seed);
  const uint64_t e = uint64_t(end_ps);
  return seed + weights.c * (e * (e + weights.a));
}

// The sum of mix_end over `lanes` ends of one task, from the sums of ends and of squares of ends.
constexpr uint64_t mix_ends(uint64_t seed, uint64_t lanes, uint64_t ends, uint64_t squares) {
  const HashWeights weights = hash_weights(seed);
  return lanes * seed + weights.c * (squares + weights.a * ends);
}

}  // namespace trnsim::simulate
