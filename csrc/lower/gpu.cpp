// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include <algorithm>
#include <span>

#include "lower/group.h"

namespace trnsim::lower {
namespace {

using Shapes = std::span<const GemmShape>;  // of products that one kernel makes

// Tiles run in waves over the multiprocessors, and a partial wave costs a whole one, of tiles of
// their mean. When there are fewer tiles than half of the multiprocessors, the contraction is split
// to fill them (split-K).
int128 flops_in_tiles(Shapes shapes, int64_t rows, int64_t columns, int64_t sms) {
  int128 tiles = 0, flops = 0;
  for (const GemmShape& shape : shapes) {
    const int128 of_shape =
        int128(shape.batch) * ceil_div(shape.m, rows) * ceil_div(shape.n, columns);
    tiles += of_shape;
    flops += of_shape * 2 * rows * columns * shape.k;
  }
  if (2 * tiles < sms) return flops;
  return ceil_div(flops * (ceil_div(tiles, int128(sms)) * sms), tiles);
}

int64_t gemm_ps(Shapes shapes, const std::string& dtype, Rational rate, const machine::Gpu& gpu) {
  for (const GemmShape& shape : shapes) {
    if (std::min({shape.batch, shape.m, shape.n, shape.k}) == 0) return 0;
  }
  const int64_t sms = gpu.multiprocessors, rows = gpu.tile_rows, columns = gpu.tile_columns;
  const auto either_way = [&](int64_t a, int64_t b) {
    return std::min(flops_in_tiles(shapes, a, b, sms), flops_in_tiles(shapes, b, a, sms));
  };
  int128 flops = either_way(rows, columns);
  // Operands of 8 bits are half as much to load: tiles of less area are as fast.
  if (dtype.starts_with("float8")) {
    flops = std::min({flops, flops_in_tiles(shapes, rows, rows, sms), either_way(rows, rows / 2)});
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
  for (Shapes left = cost.gemms; !left.empty();) {
    const GemmShape& shape = left.front();
    const Shapes together = shape.is_of_group ? left : left.first(1);
    const bool is_grouped = shape.is_of_group || shape.batch > 1;
    compute_ps += gemm_ps(together, cost.dtype, is_grouped ? grouped : rate, gpu);
    left = left.subspan(together.size());
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
