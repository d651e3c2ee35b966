// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What the matrix units of a TPU take. Operands are padded: the contraction and the columns to a
// side of the unit, the rows to the sublanes of a register, whichever of the two is called the
// rows. The rest of a fusion is its bytes, as on Trainium.
#include <algorithm>

#include "lower/group.h"

namespace trnsim::lower {
namespace {

int64_t padded(int64_t count, int64_t to) { return ceil_div(count, to) * to; }

int64_t gemm_ps(const GemmShape& shape, Rational rate, const machine::Tpu& tpu) {
  if (std::min({shape.batch, shape.m, shape.n, shape.k}) == 0) return 0;
  const auto cells = [&](int64_t rows, int64_t columns) {
    return int128(padded(rows, tpu.sublanes)) * padded(columns, tpu.mxu);
  };
  const int128 results = std::min(cells(shape.m, shape.n), cells(shape.n, shape.m));
  return duration_ps(2 * shape.batch * results * padded(shape.k, tpu.mxu), rate);
}

// Of a dtype without a rate, that of float32: what the unit does not take is widened.
Rational gemm_rate(const std::string& dtype, const Target& target) {
  const auto& peaks = target.chip.peaks.physical_flops;
  const auto& efficiencies = target.chip.tpu.gemm_efficiency;
  const std::string& timed = peaks.count(dtype) > 0 ? dtype : "float32";
  const auto efficiency = efficiencies.find(timed);
  const Rational share = Rational::of(1, target.ranks_per_chip);
  const Rational rate = peaks.at(timed) * share;
  return efficiency == efficiencies.end() ? rate : rate * efficiency->second;
}

}  // namespace

int64_t tpu_first_blocks_ps(int64_t bytes, const Target& target) {
  const machine::Tpu& tpu = target.chip.tpu;
  const Rational room =
      tpu.vmem_resident_fraction * Rational::of(tpu.vmem_bytes, target.ranks_per_chip);
  const int64_t blocks = std::min(bytes, room.numerator / room.denominator);
  return blocks == 0 ? 0 : duration_ps(blocks, target.hbm_Bps);
}

int64_t tpu_matrix_ps(const Cost& cost, const Target& target) {
  const Rational rate = gemm_rate(cost.dtype, target);
  int64_t time_ps = 0;
  const Rational grouped = rate * target.grouped_factor;
  for (const GemmShape& shape : cost.gemms) {
    const bool is_grouped = shape.is_of_group || shape.batch > 1;
    time_ps += gemm_ps(shape, is_grouped ? grouped : rate, target.chip.tpu);
  }
  if (cost.attention) {  // its rates are of the whole chip
    time_ps +=
        attention_ps(*cost.attention, cost, target.chip.tpu.attention) * target.ranks_per_chip;
  }
  if (cost.gemms.empty() && !cost.attention && cost.executed_flops > 0) {  // given by the script
    time_ps += duration_ps(cost.executed_flops, rate);
  }
  return time_ps;
}

}  // namespace trnsim::lower
