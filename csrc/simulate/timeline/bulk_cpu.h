// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What the CPP and OMP systems share: a thread takes a tile.
#pragma once

#include <vector>

#include "simulate/timeline/bulk_view.h"

namespace trnsim::simulate::TRNSIM_BULK_TARGET {
void advance(const BulkView& view, const std::vector<int32_t>& active);
}

#include "simulate/timeline/bulk_lanes.h"

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

struct AdvanceActive {
  BulkView view;
  const int32_t* active;
  AdvanceTile advance_tile;
  void operator()(int32_t index) const { advance_tile(view, active[index]); }
};

// 16 tiles: below that, waking the threads of an OpenMP team costs more than the tiles do.
inline constexpr size_t kSerialTiles = 16;

inline void advance(const BulkView& view, const std::vector<int32_t>& active) {
  const AdvanceActive work{view, active.data(), advance_for_this_processor()};
  const thrust::counting_iterator<int32_t> first(0);
  const auto last = first + int32_t(active.size());
  if (active.size() < kSerialTiles) {
    thrust::for_each(thrust::host, first, last, work);
  } else {
    thrust::for_each(thrust::device, first, last, work);
  }
}

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
