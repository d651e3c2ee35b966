// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/host_allocator.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace trnsim::capture::runtime {
namespace {

constexpr size_t kPageBytes = 4096;
// From here on in pages of their own, which nothing backs before they are written: phantom mode
// sends activations of any size to the host.
constexpr size_t kOwnPagesBytes = 64 * 1024;

class PinnedAllocator final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, at::DeviceType::CPU};
    void* const address = take(in_pages(bytes));
    TORCH_CHECK(address != nullptr, "trnsim: pinned host memory: could not allocate ", bytes,
                " bytes");
    const std::unique_lock lock(mutex_);
    sizes_[uintptr_t(address)] = bytes;
    count(int64_t(bytes), +1);
    return {address, address, &release, at::DeviceType::CPU};
  }

  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  // Work on a stream is done when its call returns, so memory may be freed at any time.
  bool record_event(void* address, void* /*context*/, c10::Stream /*stream*/) override {
    return contains(address);
  }
  void empty_cache() override {}

  at::HostStats get_stats() override {
    const std::shared_lock lock(mutex_);
    return stats_;
  }
  void reset_accumulated_stats() override {
    const std::unique_lock lock(mutex_);
    for (auto* stat : all_stats()) stat->reset_accumulated();
    stats_.num_host_alloc = stats_.num_host_free = 0;
  }
  void reset_peak_stats() override {
    const std::unique_lock lock(mutex_);
    for (auto* stat : all_stats()) stat->reset_peak();
  }

  bool contains(const void* address) const {
    const std::shared_lock lock(mutex_);
    const auto above = sizes_.upper_bound(uintptr_t(address));
    if (above == sizes_.begin()) return false;
    const auto& [start, bytes] = *std::prev(above);
    return uintptr_t(address) < start + bytes;
  }

 private:
  static void release(void* address);

  static size_t in_pages(size_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

  static void* take(size_t bytes) {
    if (bytes <= kOwnPagesBytes) return std::aligned_alloc(kPageBytes, bytes);
    void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pages == MAP_FAILED ? nullptr : pages;
  }

  // What `take` gave of so many bytes.
  static void give_back(void* address, size_t bytes) {
    if (bytes <= kOwnPagesBytes) return std::free(address);
    munmap(address, bytes);
  }

  // Its bytes; 0 where it is none of ours.
  size_t forget(void* address) {
    const std::unique_lock lock(mutex_);
    const auto found = sizes_.find(uintptr_t(address));
    if (found == sizes_.end()) return 0;
    const size_t bytes = found->second;
    count(int64_t(bytes), -1);
    sizes_.erase(found);
    return bytes;
  }

  void count(int64_t bytes, int sign) {
    const auto add = [sign](c10::CachingAllocator::Stat& stat, int64_t amount) {
      if (sign > 0) stat.increase(size_t(amount));
      if (sign < 0) stat.decrease(size_t(amount));
    };
    add(stats_.active_requests, 1);
    add(stats_.allocations, 1);
    add(stats_.active_bytes, bytes);
    add(stats_.allocated_bytes, bytes);
    (sign > 0 ? stats_.num_host_alloc : stats_.num_host_free) += 1;
  }

  std::array<c10::CachingAllocator::Stat*, 4> all_stats() {
    return {&stats_.active_requests, &stats_.allocations, &stats_.active_bytes,
            &stats_.allocated_bytes};
  }

  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, size_t> sizes_;  // live allocations by address
  at::HostStats stats_;
};

PinnedAllocator& pinned() {
  static PinnedAllocator* const kept = new PinnedAllocator;  // tensors may outlive statics
  return *kept;
}

void PinnedAllocator::release(void* address) {
  if (address == nullptr) return;
  const size_t bytes = pinned().forget(address);
  if (bytes > 0) give_back(address, in_pages(bytes));
}

}  // namespace

at::HostAllocator* host_allocator() { return &pinned(); }
bool is_pinned(const void* address) { return pinned().contains(address); }

}  // namespace trnsim::capture::runtime
