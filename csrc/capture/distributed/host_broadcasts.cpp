// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/distributed/host_broadcasts.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include <mutex>

namespace trnsim::capture::distributed {
namespace {

// Of one broadcast, and of all together: a loop that sends a model each step stays in memory.
constexpr int64_t kMostBytes = int64_t(16) << 20, kMostBytesTogether = int64_t(64) << 20;

struct State {
  std::mutex mutex;
  HostBroadcasts known, said;
  std::map<std::string, size_t> next;  // of `known`
  int64_t bytes = 0;                   // of `said`
};
State& state() {
  static State state;
  return state;
}

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += int64_t(tensor.nbytes());
  return bytes;
}

}  // namespace

void begin_host_broadcasts(HostBroadcasts known) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.known = std::move(known);
  all.said.clear();
  all.next.clear();
  all.bytes = 0;
}

HostBroadcasts take_host_broadcasts() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.bytes = 0;
  return std::exchange(all.said, {});
}

std::string place_of(const workload::RankPattern& ranks, int64_t root) {
  workload::RankPattern moved = ranks;
  for (int64_t& rank : moved.listed) rank -= moved.start;
  moved.start = 0;
  return moved.text() + " from " + std::to_string(root);
}

void keep_broadcast(const std::string& place, const std::vector<at::Tensor>& tensors) {
  const int64_t bytes = bytes_of(tensors);
  State& all = state();
  const std::lock_guard lock(all.mutex);
  auto& kept = all.said[place].emplace_back();
  if (bytes > kMostBytes || all.bytes + bytes > kMostBytesTogether) return;
  all.bytes += bytes;
  kept.emplace();
  const at::AutoDispatchBelowADInplaceOrView guard;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor plain = tensor.contiguous();
    kept->append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
}

bool fill_from_broadcast(const std::string& place, const std::vector<at::Tensor>& tensors) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const size_t index = all.next[place]++;
  const auto found = all.known.find(place);
  if (found == all.known.end() || index >= found->second.size()) return false;
  std::optional<std::string>& values = found->second[index];
  if (!values || int64_t(values->size()) != bytes_of(tensors)) return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  char* at = values->data();
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(at::from_blob(at, tensor.sizes(), at::TensorOptions().dtype(tensor.dtype())));
    at += tensor.nbytes();
  }
  return true;
}

}  // namespace trnsim::capture::distributed
