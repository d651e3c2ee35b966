// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include <algorithm>

#include "lower/group.h"

namespace trnsim::lower {
namespace {

// Tiles run in waves over the multiprocessors, and a partial wave costs a whole one. When there are
// fewer tiles than half of the multiprocessors, the contraction is split to fill them (split-K).
int128 flops_in_tiles(const GemmShape& shape, int64_t rows, int64_t columns, int64_t sms) {
  const int64_t tiles = shape.batch * ceil_div(shape.m, rows) * ceil_div(shape.n, columns);
  const int128 of_tile = int128(2) * rows * columns * shape.k;
  return of_tile * (2 * tiles < sms ? tiles : ceil_div(tiles, sms) * sms);
}

int64_t gemm_ps(const GemmShape& shape, const std::string& dtype, Rational rate,
                const machine::Gpu& gpu) {
  if (std::min({shape.batch, shape.m, shape.n, shape.k}) == 0) return 0;
  const int64_t sms = gpu.multiprocessors, rows = gpu.tile_rows, columns = gpu.tile_columns;
  const auto either_way = [&](int64_t a, int64_t b) {
    return std::min(flops_in_tiles(shape, a, b, sms), flops_in_tiles(shape, b, a, sms));
  };
  int128 flops = either_way(rows, columns);
  // Operands of 8 bits are half as much to load: tiles of less area are as fast.
  if (dtype.starts_with("float8")) {
    flops = std::min({flops, flops_in_tiles(shape, rows, rows, sms), either_way(rows, rows / 2)});
  }
  return duration_ps(flops, rate);
}

// The rate of a dtype: its own, or fp32's for what has no tensor core.
Rational gemm_rate(const std::string& dtype, const Target& target) {
  const auto& peaks = target.chip.peaks.physical_flops;
  const auto peak = peaks.find(dtype);
  const auto efficiency = target.chip.gpu.gemm_efficiency.find(dtype);
  if (peak == peaks.end()) return target.chip.gpu.vector_flops;
  if (efficiency == target.chip.gpu.gemm_efficiency.end()) return peak->second;
  return peak->second * efficiency->second;
}

}  // namespace

GpuKernel gpu_kernel(const Cost& cost, int64_t bytes, const Target& target) {
  const machine::Gpu& gpu = target.chip.gpu;
  int64_t compute_ps = 0;
  const Rational rate = gemm_rate(cost.dtype, target);
  const Rational grouped = rate * target.grouped_factor;
  for (const GemmShape& shape : cost.gemms) {
    compute_ps += gemm_ps(shape, cost.dtype, shape.batch > 1 ? grouped : rate, gpu);
  }
  if (cost.gemms.empty() && !cost.attention) {  // a cost that the script gives
    compute_ps += duration_ps(cost.executed_flops, rate);
  }
  if (cost.attention) compute_ps += attention_ps(*cost.attention, cost, gpu.attention);
  const int64_t memory_ps = std::max(duration_ps(bytes, target.hbm_Bps), cost.least_dma_ps);
  const int64_t link_ps = cost.host_link_ps;
  if (gpu.kernel_ps > std::max({compute_ps, memory_ps, link_ps})) {
    return {gpu.kernel_ps, QueueKind::vector};
  }
  if (link_ps >= std::max(memory_ps, compute_ps) && link_ps > 0) return {link_ps, QueueKind::host};
  if (memory_ps >= compute_ps) return {memory_ps, QueueKind::dma};
  return {compute_ps, QueueKind::tensor};
}

}  // namespace trnsim::lower
