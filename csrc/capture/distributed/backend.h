// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The c10d backend of the simulated device: one process stands for a group of any size.
//
// Each operation is recorded as a Call (kind, group, bytes in the convention of workload.h, peer as
// a global rank) with the tensors that it reads and writes, and leaves in them what values.h says.
// A group is a RankPattern, so its size costs nothing but what the caller itself passes as lists.
// Tensors of the CPU get their values and are not recorded: such messages never reach the device.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "capture/distributed/work.h"
#include "workload/workload.h"

namespace trnsim::capture::distributed {

// Of messages since the last call of take_counts.
struct MessageCounts {
  int64_t point_to_point = 0;  // sends and receives of device tensors
  int64_t on_host = 0;         // collectives of CPU tensors, which nothing times
};
MessageCounts take_counts();

class UniformBackend : public c10d::Backend {
 public:
  // group: index in the Workload's groups. refused_device_hint: not empty for a backend that has
  // the name of another one (gloo) and serves CPU tensors only; it says what to write instead.
  UniformBackend(int rank, int size, std::string name, int32_t group, workload::RankPattern ranks,
                 std::string refused_device_hint, std::chrono::milliseconds timeout);

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;
  int32_t group() const { return group_; }
  const workload::RankPattern& ranks() const { return ranks_; }

  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override;
  // New in torch 2.14, so not marked override.
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts);
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

 private:
  struct Message {
    workload::CallKind kind;
    c10d::OpType op;
    int64_t bytes = 0;
    bool async = false;
    int64_t peer = -1;  // index in the group
    int tag = 0;
    std::vector<int64_t> splits = {}, received = {};  // as of a workload::Call
    bool blocks_host = false;
    // Of an all-to-all: bytes to each member, and from each.
    void set_parts(std::vector<int64_t> sent, std::vector<int64_t> from_each);
  };
  // Records one call and returns its handle; `results` is what the handle's future holds.
  WorkPtr issue(const Message& message, const Tensors& inputs, const Tensors& outputs,
                Tensors results);
  void take_description();
  void broadcast_on_host(const Tensors& tensors, int64_t root);
  void check_root(const char* operation, int64_t root) const;
  void check_count(const char* operation, const char* what, size_t count) const;
  WorkPtr reduce_slices(const Tensors& outputs, const Tensors& inputs, c10d::OpType op,
                        const c10d::ReduceScatterOptions& opts);
  WorkPtr gather_tensors(const Tensors& outputs, const Tensors& inputs, c10d::OpType op,
                         const c10d::AllgatherOptions& opts);

  std::string name_;
  int32_t group_;
  bool is_described_ = false;
  workload::RankPattern ranks_;
  std::string refused_device_hint_;
  c10::intrusive_ptr<Options> options_;
  uint64_t sequence_ = 0;
  bool coalescing_ = false;
  int32_t batch_ = -1;  // of the messages between startCoalescing and endCoalescing
  std::vector<int32_t> coalesced_calls_;
  Tensors coalesced_results_;
};

}  // namespace trnsim::capture::distributed
