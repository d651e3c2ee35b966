// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Group: what a fused unit costs: its streams without what stays inside, its engines added up.
//
// Invariants (tests): bytes of a fused group <= sum of its ops alone; its time <= sum of theirs and
// >= its busiest engine.
#pragma once

#include "lower/dma.h"
#include "lower/plan.h"

namespace trnsim::lower {

struct GroupCost {
  // ps of each engine of one core, in the order tensor, vector, scalar, gpsimd. On a TPU the first
  // are its matrix units, and the second what a fusion without a product takes at least.
  std::array<int64_t, 4> engine_ps{};
  int64_t load_weights_ps = 0, load_ps = 0, store_ps = 0;  // DMA; their sum is exact
  int64_t host_link_ps = 0;  // the part of the link to the host; no DMA of the group is shorter
  int64_t read_bytes = 0, write_bytes = 0;
  int64_t gpu_ps = 0;  // the kernel, on a GPU, and what it is bound by
  QueueKind gpu_bound = QueueKind::vector;
  std::vector<int32_t> producers;  // units, ascending, once each

  int64_t dma_ps() const { return load_weights_ps + load_ps + store_ps; }
};

GroupCost cost_group(const Plan& plan, int32_t unit, const workload::Workload& workload,
                     const Target& target);
// The Op entry of the unit.
Op make_op(const Plan& plan, int32_t unit, const workload::Workload& workload,
           const GroupCost& group, const Target& target);

// One kernel on a GPU: the slowest of tiles and waves or attention's rate (bound: tensor) and HBM
// (bound: dma) and the link to the host (bound: host), and never below the shortest kernel (bound:
// vector).
struct GpuKernel {
  int64_t time_ps = 0;
  QueueKind bound = QueueKind::vector;
};
// Fused attention at the rate of the kernel that is used.
int64_t attention_ps(const AttentionShape& shape, const Cost& cost,
                     const machine::AttentionKernels& kernels);
// What an op takes on the matrix units of a TPU.
int64_t tpu_matrix_ps(const Cost& cost, const Target& target);
// What they wait for the first blocks of an op that moves so many bytes.
int64_t tpu_first_blocks_ps(int64_t bytes, const Target& target);
GpuKernel gpu_kernel(const Cost& cost, int64_t bytes, const Target& target);

}  // namespace trnsim::lower
