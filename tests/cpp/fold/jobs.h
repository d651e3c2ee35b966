// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Training jobs as Systems, built by hand: replicas of a pipeline, a stage of which is a pod of
// tensor-parallel ranks. Rank = (replica * stages + stage) * tensor + index.
//
// Links: a ring in every pod and one link that all of the pod shares, a NIC up and down for every
// rank, a leaf up and down for every few pods. Tensor-parallel calls use the pod's links,
// data-parallel ones the NICs and leaves of their members, messages those of sender and receiver.
#pragma once

#include <cstdint>
#include <memory>

#include "fold/system.h"

namespace trnsim::jobs {

struct Shape {
  int32_t replicas = 4, stages = 2, tensor = 4;
  int32_t pods_per_leaf = 1;
  int32_t micro_batches = 2;
  uint64_t seed = 0;  // of durations, sizes, latencies, weights and dependences: zero bytes too
  int32_t rank_count() const { return replicas * stages * tensor; }
};

struct Job {
  Shape shape;
  std::shared_ptr<fold::System> system;

  int32_t rank(int32_t replica, int32_t stage, int32_t index) const {
    return (replica * shape.stages + stage) * shape.tensor + index;
  }
  int32_t pod(int32_t rank) const { return rank / shape.tensor; }
  int32_t pods() const { return shape.replicas * shape.stages; }
  // Links.
  int32_t ring(int32_t rank) const { return rank; }
  int32_t nic_up(int32_t rank) const { return shape.rank_count() + rank; }
  int32_t nic_down(int32_t rank) const { return 2 * shape.rank_count() + rank; }
  int32_t shared(int32_t pod) const { return 3 * shape.rank_count() + pod; }
  int32_t leaf(int32_t rank) const { return pod(rank) / shape.pods_per_leaf; }
  int32_t leaves() const { return (pods() + shape.pods_per_leaf - 1) / shape.pods_per_leaf; }
  int32_t leaf_up(int32_t rank) const { return shared(pods()) + leaf(rank); }
  int32_t leaf_down(int32_t rank) const { return leaf_up(rank) + leaves(); }
};

Job make_job(const Shape& shape);

// 2 to 16 replicas of 1 to 4 stages of 1 to 8 ranks, of which up to two things are disturbed: a
// rank slower or later, a link slower, all ranks or a tenth of them at random, a weight of its own.
Job random_job(uint64_t seed);

}  // namespace trnsim::jobs
