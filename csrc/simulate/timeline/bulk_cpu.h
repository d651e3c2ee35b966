// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What the CPP, OMP and TBB systems share: a thread takes a tile.
#pragma once

#include <vector>

#include "simulate/timeline/bulk_lanes.h"

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

struct WorkOnTile {
  BulkView view;
  const TileRun* runs;
  TileWork work;
  void operator()(int32_t index) const {
    const TileRun& run = runs[index];
    if (run.segment == nullptr) {
      work.advance(view, run.tile);
    } else {
      work.replay(view, run.tile, *run.rows, *run.segment);
    }
  }
};

// 16 tiles: below that, waking the threads of an OpenMP team costs more than the tiles do.
inline constexpr size_t kSerialTiles = 16;

void advance(const BulkView& view, const std::vector<TileRun>& runs) {
  const WorkOnTile work{view, runs.data(), work_for_this_processor()};
  const thrust::counting_iterator<int32_t> first(0);
  const auto last = first + int32_t(runs.size());
  if (runs.size() < kSerialTiles) {
    thrust::for_each(thrust::host, first, last, work);
  } else {
    thrust::for_each(thrust::device, first, last, work);
  }
}

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
