// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// As cpp.cpp, on a GPU: a thread takes a lane.
#define TRNSIM_BULK_TARGET bulk_cuda
#include <cuda_runtime.h>

#include <vector>

#include "simulate/network/dp_solver.h"
#include "simulate/timeline/bulk_functors.h"
#include "simulate/timeline/bulk_lanes.h"
#include "simulate/timeline/timed_lanes.h"

namespace trnsim::simulate {
namespace bulk_cuda {

struct AdvanceLane {
  BulkView view;
  const int32_t* active;
  __host__ __device__ void operator()(int32_t index) const {
    const int32_t tile = active[index / kTileLanes], lane = index % kTileLanes;
    if (lane < view.tiles[tile].lanes) Advance<1>(view, tile, lane).run();
  }
};

void advance(const BulkView& view, const std::vector<TileRun>& runs) {
  std::vector<int32_t> active;
  for (const TileRun& run : runs) active.push_back(run.tile);
  const thrust::device_vector<int32_t> tiles(active.begin(), active.end());
  const thrust::counting_iterator<int32_t> first(0);
  thrust::for_each(thrust::device, first, first + int32_t(active.size()) * kTileLanes,
                   AdvanceLane{view, thrust::raw_pointer_cast(tiles.data())});
}

}  // namespace bulk_cuda

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::unique_ptr<Lanes> make_cuda_lanes(const fold::System& system, bool keep_times) {
  return bulk_cuda::make_lanes(system, keep_times);
}

std::unique_ptr<WholeSolver> make_cuda_dp_solver() { return std::make_unique<bulk_cuda::Dp>(); }

}  // namespace trnsim::simulate
