// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What all operations share: recording, groups, coalescing, and point-to-point messages.
#include "capture/distributed/backend.h"

#include <torch/csrc/autograd/node.h>
#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "capture/distributed/values.h"
#include "capture/recorder.h"
#include "capture/runtime/device_type.h"
#include "workload/messages.h"

namespace trnsim::capture::distributed {
namespace {

std::atomic<int64_t> point_to_point_count{0}, host_count{0};

// What is reduced during backward without being known as anything else is a buffer made for it, as
// DDP's buckets are.
void mark_buffers(const std::vector<at::Tensor>& tensors) {
  if (!torch::autograd::get_current_node()) return;
  for (const at::Tensor& tensor : tensors) {
    const Block* const block = block_of(tensor);
    if (block != nullptr && block->kind < 0) {
      set_storage_kind(tensor, workload::StorageKind::communication);
    }
  }
}

}  // namespace

MessageCounts take_counts() { return {point_to_point_count.exchange(0), host_count.exchange(0)}; }

UniformBackend::UniformBackend(int rank, int size, std::string name, int32_t group,
                               workload::RankPattern ranks, std::string refused_device_hint,
                               std::chrono::milliseconds timeout)
    : Backend(rank, size),
      name_(std::move(name)),
      group_(group),
      ranks_(std::move(ranks)),
      refused_device_hint_(std::move(refused_device_hint)),
      options_(c10::make_intrusive<Options>(name_, timeout)) {
  TRN_CHECK(rank >= 0 && rank < size, capture,
            "rank " + std::to_string(rank) + " is not in a group of " + std::to_string(size),
            "ranks are 0 to " + std::to_string(size - 1));
  TRN_ASSERT(ranks_.size() == size, "a group's pattern must hold as many ranks as its size");
}

c10::intrusive_ptr<c10d::Backend> UniformBackend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                        const std::vector<int>& ranks,
                                                        const c10::intrusive_ptr<Options>& opts) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  std::vector<int64_t> global;
  global.reserve(ranks.size());
  for (const int rank : ranks) global.push_back(ranks_.rank_at(rank));
  const workload::RankPattern pattern = workload::RankPattern::of(global);
  const std::string name = opts && !opts->group_desc.empty() ? opts->group_desc
                           : opts                            ? opts->group_name
                                                             : std::string();
  auto child = c10::make_intrusive<UniformBackend>(
      static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()), name_,
      add_group(name, pattern), pattern, refused_device_hint_, options_->timeout);
  return child;
}

// torch describes a group ("mesh_dp") after it has made its backend.
void UniformBackend::take_description() {
  if (is_described_ || group_ == 0) return;
  is_described_ = true;
  const std::string& description = getGroupDesc();
  if (!description.empty() && description != "undefined") name_group(group_, description);
}

UniformBackend::WorkPtr UniformBackend::issue(const Message& message, const Tensors& inputs,
                                              const Tensors& outputs, Tensors results) {
  ++sequence_;
  const Tensors& any = inputs.empty() ? outputs : inputs;
  const bool on_device = any.empty() ? refused_device_hint_.empty() : is_trn(any.front());
  TRN_CHECK(!on_device || refused_device_hint_.empty(), capture,
            std::string(workload::call_kind_name(message.kind)) + " of a " + device_type_name() +
                " tensor in a group of backend " + name_,
            refused_device_hint_);
  std::vector<int32_t> calls;
  if (on_device) {
    take_description();
    workload::Call call;
    call.kind = message.kind;
    call.group = group_;
    call.bytes = message.bytes;
    call.peer = message.peer < 0 ? -1 : static_cast<int32_t>(ranks_.rank_at(message.peer));
    call.tag = message.tag;
    call.async = message.async || coalescing_;
    call.splits = message.splits;
    call.received = message.received;
    const bool is_message = workload::is_message(message.kind);
    if (is_message && coalescing_) call.batch = batch_;
    if (!any.empty()) call.dtype = dtype_of(any.front().scalar_type());
    const int32_t index = record_call(call, inputs, outputs);
    if (index >= 0) calls.push_back(index);
    if (message.kind == workload::CallKind::all_reduce) mark_buffers(outputs);
    if (is_message) ++point_to_point_count;
  } else if (!any.empty()) {
    ++host_count;
  }
  if (coalescing_) {
    coalesced_calls_.insert(coalesced_calls_.end(), calls.begin(), calls.end());
    coalesced_results_.insert(coalesced_results_.end(), results.begin(), results.end());
  }
  return c10::make_intrusive<UniformWork>(rank_, message.op, std::move(results), std::move(calls),
                                          message.blocks_host,
                                          static_cast<int>(message.peer < 0 ? 0 : message.peer));
}

void UniformBackend::startCoalescing() {
  coalescing_ = true;
  batch_ = next_call();
  coalesced_calls_.clear();
  coalesced_results_.clear();
}

UniformBackend::WorkPtr UniformBackend::endCoalescing() {
  coalescing_ = false;
  return c10::make_intrusive<UniformWork>(rank_, c10d::OpType::COALESCED,
                                          std::move(coalesced_results_),
                                          std::move(coalesced_calls_), false, -1);
}

void UniformBackend::check_root(const char* operation, int64_t root) const {
  TRN_CHECK(root >= 0 && root < size_, capture,
            std::string(operation) + " with root " + std::to_string(root) + " in a group of " +
                std::to_string(size_),
            "the root's index in the group is 0 to " + std::to_string(size_ - 1));
}

void UniformBackend::check_count(const char* operation, const char* what, size_t count) const {
  TRN_CHECK(count == static_cast<size_t>(size_), capture,
            std::string(operation) + " got " + std::to_string(count) + " " + what +
                " in a group of " + std::to_string(size_),
            "pass one for each rank of the group");
}

UniformBackend::WorkPtr UniformBackend::send(Tensors& tensors, int destination, int tag) {
  check_root("send", destination);
  TRN_CHECK(tensors.size() == 1, capture, "send of " + std::to_string(tensors.size()) + " tensors",
            "send one tensor at a time");
  const Message message{workload::CallKind::send,
                        c10d::OpType::SEND,
                        static_cast<int64_t>(tensors[0].nbytes()),
                        true,
                        destination,
                        tag};
  return issue(message, tensors, {}, tensors);
}

UniformBackend::WorkPtr UniformBackend::recv(Tensors& tensors, int source, int tag) {
  check_root("recv", source);
  TRN_CHECK(tensors.size() == 1, capture, "recv of " + std::to_string(tensors.size()) + " tensors",
            "receive one tensor at a time");
  const Message message{workload::CallKind::recv,
                        c10d::OpType::RECV,
                        static_cast<int64_t>(tensors[0].nbytes()),
                        true,
                        source,
                        tag};
  WorkPtr work = issue(message, {}, tensors, tensors);
  fill_from_elsewhere(tensors[0]);
  return work;
}

UniformBackend::WorkPtr UniformBackend::recvAnysource(Tensors& tensors, int tag) {
  TRN_CHECK(false, capture, "recv from any source",
            "name the source rank: one captured rank cannot know who sends first");
  return nullptr;
}

UniformBackend::WorkPtr UniformBackend::barrier(const c10d::BarrierOptions& opts) {
  const Message message{
      workload::CallKind::barrier, c10d::OpType::BARRIER, 0, opts.asyncOp, -1, 0, {}, {}, true};
  return issue(message, {}, {}, {});
}

void UniformBackend::monitoredBarrier(const c10d::BarrierOptions&, bool) {
  // The host's barrier: all ranks arrive together, and the device sees nothing of it.
  ++sequence_;
}

}  // namespace trnsim::capture::distributed
