// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The handle of a collective: complete from the start, since its values are known at once. Waiting
// for it is what is recorded, once for each call that it stands for.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace trnsim::capture::distributed {

class UniformWork : public c10d::Work {
 public:
  // `calls` are indices of recorded calls (empty: nothing was recorded, as for CPU tensors).
  // blocks_host: the waiting host stands still too (a barrier).
  UniformWork(int rank, c10d::OpType op, std::vector<at::Tensor> results,
              std::vector<int32_t> calls, bool blocks_host, int source_rank);

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  int sourceRank() const override { return source_rank_; }
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() { synchronize(); }
  void abort() override {}
  // A future of List[Tensor], as DDP's reducer expects. Waiting for it is seen as a stream that
  // waits for an event of the call.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult();
  const std::vector<int32_t>& calls() const { return calls_; }

 private:
  std::vector<at::Tensor> results_;
  std::vector<int32_t> calls_;
  bool blocks_host_;
  int source_rank_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace trnsim::capture::distributed
