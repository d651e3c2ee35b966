// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/distributed/work.h"

#include <algorithm>

#include "capture/distributed/call_scope.h"
#include "capture/recorder.h"

namespace trnsim::capture::distributed {
namespace {

std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    if (is_trn(tensor) &&
        std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) {
      devices.push_back(tensor.device());
    }
  }
  return devices;
}

}  // namespace

UniformWork::UniformWork(int rank, c10d::OpType op, std::vector<at::Tensor> results,
                         std::vector<int32_t> calls, bool blocks_host, int source_rank)
    : Work(rank, op),
      results_(std::move(results)),
      calls_(std::move(calls)),
      blocks_host_(blocks_host),
      source_rank_(source_rank) {}

void UniformWork::synchronize() {
  for (const int32_t call : calls_) record_wait(call);
  if (blocks_host_ && !calls_.empty()) record_host_read({}, false);
}

bool UniformWork::wait(std::chrono::milliseconds) {
  synchronize();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> UniformWork::getFuture() {
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), devices_of(results_));
    const CallScope scope(calls_);
    future_->markCompleted(c10::IValue(results_));
  }
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> UniformWork::getFutureResult() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  future->markCompleted(c10::IValue(static_cast<int64_t>(c10d::WorkResult::SUCCESS)));
  return future;
}

}  // namespace trnsim::capture::distributed
