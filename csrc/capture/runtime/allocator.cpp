// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "capture/recorder.h"
#include "capture/runtime/device_type.h"
#include "capture/runtime/guard.h"
#include "capture/runtime/memory_history.h"

namespace trnsim::capture {
namespace {

constexpr uint64_t kReservationBytes = uint64_t(64) << 40;
constexpr int kMaxDevices = 128;

using c10::CachingDeviceAllocator::DeviceStats;

void follow(c10::CachingAllocator::StatArray& stat, int64_t now) {
  auto& all = stat[size_t(c10::CachingAllocator::StatType::AGGREGATE)];
  if (now > all.current) all.increase(size_t(now - all.current));
  if (now < all.current) all.decrease(size_t(all.current - now));
}

// Brings torch's counters up to the model's, so that their peaks and sums are right; after every
// change of the model.
void follow(DeviceStats& counters, const workload::AllocatorStats& model) {
  follow(counters.allocation, model.live_blocks);
  follow(counters.active, model.live_blocks);
  follow(counters.segment, model.segment_count);
  follow(counters.allocated_bytes, model.allocated_bytes);
  follow(counters.active_bytes, model.allocated_bytes);
  follow(counters.requested_bytes, model.requested_bytes);
  follow(counters.reserved_bytes, model.reserved_bytes);
  counters.num_alloc_retries = model.retries;
  counters.num_ooms = model.out_of_memory;
}

template <typename Visit>
void for_each_stat(DeviceStats& counters, Visit visit) {
  for (auto* stat :
       {&counters.allocation, &counters.active, &counters.segment, &counters.allocated_bytes,
        &counters.active_bytes, &counters.requested_bytes, &counters.reserved_bytes}) {
    for (auto& one : *stat) visit(one);
  }
}

Reservation reserve() {
  // A container may limit address space: ask for less until it is granted.
  for (uint64_t bytes = kReservationBytes; bytes >= (uint64_t(1) << 36); bytes /= 2) {
    void* const base =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) return {uint64_t(base), bytes};
  }
  throw Error(ErrorKind::capture, "no address space for the device's memory",
              "raise the limit of `ulimit -v`");
}

// All of it behind one mutex: allocations come from the main thread and from autograd's.
struct Memory {
  std::mutex mutex;
  std::array<std::unique_ptr<workload::CachingAllocator>, kMaxDevices> devices;
  std::array<std::unique_ptr<DeviceStats>, kMaxDevices> counters;  // beside each of the devices
  int64_t capacity = -1;
  bool only_report = false;
  int64_t out_of_memory = 0;
  std::string refusal;  // of every allocation; empty: none
  int64_t live_blocks = 0;
  Block* first = nullptr;
  Block* last = nullptr;

  workload::CachingAllocator& device(c10::DeviceIndex index) {
    TORCH_CHECK(index >= 0 && index < kMaxDevices, "invalid device index ", int(index));
    auto& slot = devices[size_t(index)];
    if (!slot) {
      // Device 0 has half of the addresses: most captures use no other.
      const Reservation& space = reservation();
      const uint64_t half = space.bytes / 2;
      const uint64_t offset = index == 0 ? 0 : half + half / kMaxDevices * uint64_t(index);
      slot = std::make_unique<workload::CachingAllocator>(only_report ? -1 : capacity,
                                                          space.base + offset);
      counters[size_t(index)] = std::make_unique<DeviceStats>();
    }
    return *slot;
  }

  DeviceStats& counters_of(c10::DeviceIndex index) {
    const auto& model = device(index).stats();
    follow(*counters[size_t(index)], model);
    return *counters[size_t(index)];
  }

  void apply_capacity() {
    for (auto& slot : devices) {
      if (slot) slot->set_capacity_bytes(only_report ? -1 : capacity);
    }
  }
};

Memory& memory() {
  static Memory* const memory = new Memory;  // outlives every static tensor
  return *memory;
}

std::string bytes_text(int64_t bytes) {
  char text[64];
  const double value = double(bytes);
  if (bytes < 1024) {
    std::snprintf(text, sizeof text, "%lld bytes", static_cast<long long>(bytes));
  } else if (bytes < (int64_t(1) << 20)) {
    std::snprintf(text, sizeof text, "%.2f KiB", value / 1024);
  } else if (bytes < (int64_t(1) << 30)) {
    std::snprintf(text, sizeof text, "%.2f MiB", value / (1 << 20));
  } else {
    std::snprintf(text, sizeof text, "%.2f GiB", value / (1 << 30));
  }
  return text;
}

[[noreturn]] void throw_out_of_memory(int64_t bytes, c10::DeviceIndex index,
                                      const workload::AllocatorStats& stats, int64_t capacity) {
  const int64_t free_bytes = std::max<int64_t>(0, capacity - stats.reserved_bytes);
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, serves_cuda() ? "CUDA" : c10::get_privateuse1_backend(false),
      " out of memory. Tried to allocate ", bytes_text(bytes), ". Device ", int(index),
      " has a total capacity of ", bytes_text(capacity), " of which ", bytes_text(free_bytes),
      " is free. Of the allocated memory ", bytes_text(stats.allocated_bytes),
      " is allocated by PyTorch, and ", bytes_text(stats.reserved_bytes - stats.allocated_bytes),
      " is reserved by PyTorch but unallocated.");
  std::abort();
}

void link(Memory& memory, Block* block) {
  block->previous = memory.last;
  if (memory.last) memory.last->next = block;
  memory.last = block;
  if (!memory.first) memory.first = block;
  ++memory.live_blocks;
}

void unlink(Memory& memory, Block* block) {
  (block->previous ? block->previous->next : memory.first) = block->next;
  (block->next ? block->next->previous : memory.last) = block->previous;
  --memory.live_blocks;
}

void take_address(Memory& memory, Block& block) {
  TORCH_CHECK(memory.refusal.empty(), memory.refusal);
  auto& device = memory.device(block.device);
  block.address = device.allocate(block.bytes, block.stream);
  memory.counters_of(block.device);
  if (block.address == 0) {
    ++memory.out_of_memory;
    runtime::note_out_of_memory(block.device, block.bytes,
                                memory.capacity - device.stats().reserved_bytes);
    throw_out_of_memory(block.bytes, block.device, device.stats(), memory.capacity);
  }
  if (memory.only_report && memory.capacity >= 0 &&
      device.stats().allocated_bytes > memory.capacity) {
    ++memory.out_of_memory;
  }
}

}  // namespace

const Reservation& reservation() {
  static const Reservation space = reserve();
  return space;
}

c10::DataPtr allocate_block(int64_t bytes, c10::DeviceIndex device) {
  auto block = std::make_unique<Block>();
  block->bytes = bytes;
  block->device = device;
  block->stream = current_stream_index(device);
  block->known = mode() == Mode::compute || bytes <= kKnownBytes;
  if (bytes > 0) {
    Memory& all = memory();
    const std::lock_guard lock(all.mutex);
    take_address(all, *block);
    link(all, block.get());
  }
  if (bytes > 0) {
    note_allocation(*block);
    runtime::note_block_made(*block);
  }
  void* const address = reinterpret_cast<void*>(block->address);
  return {address, block.release(), &release_block, c10::Device(device_type(), device)};
}

void release_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  if (block->bytes == 0) return;
  note_free(*block);
  runtime::note_block_freed(*block);
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  unlink(all, block.get());
  all.device(block->device).release(block->address);
  all.counters_of(block->device);
}

void set_capacity_bytes(int64_t capacity_bytes) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  all.capacity = capacity_bytes;
  all.apply_capacity();
}

int64_t capacity_bytes() { return memory().capacity; }

void set_only_report_out_of_memory(bool only_report) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  all.only_report = only_report;
  all.apply_capacity();
}

int64_t out_of_memory_count() { return memory().out_of_memory; }

void refuse_allocations(std::string reason) {
  const std::lock_guard lock(memory().mutex);
  memory().refusal = std::move(reason);
}

const workload::AllocatorStats& allocator_stats(c10::DeviceIndex device) {
  const std::lock_guard lock(memory().mutex);
  return memory().device(device).stats();
}

void reset_allocator_peaks(c10::DeviceIndex device) {
  const std::lock_guard lock(memory().mutex);
  memory().device(device).reset_peaks();
  for_each_stat(memory().counters_of(device), [](auto& stat) { stat.reset_peak(); });
}

void release_cached_memory() {
  const std::lock_guard lock(memory().mutex);
  for (auto& slot : memory().devices) {
    if (slot) slot->release_cached_segments();
  }
}

std::vector<workload::SegmentInfo> allocator_segments(c10::DeviceIndex device) {
  const std::lock_guard lock(memory().mutex);
  return memory().device(device).segments();
}

int64_t live_block_count() { return memory().live_blocks; }

void for_each_live_block(const std::function<void(Block&)>& visit) {
  const std::lock_guard lock(memory().mutex);
  for (Block* block = memory().first; block; block = block->next) visit(*block);
}

namespace {

// c10's view of the model, which torch.accelerator's memory functions read.
struct TrnAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    return allocate_block(int64_t(bytes), current_device());
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // a Block is not raw memory
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "device memory has no native copies");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { release_cached_memory(); }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(memory().mutex);
    return memory().counters_of(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(memory().mutex);
    for_each_stat(memory().counters_of(device), [](auto& stat) { stat.reset_accumulated(); });
    memory().device(device).reset_failures();
  }
  void resetPeakStats(c10::DeviceIndex device) override { reset_allocator_peaks(device); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const int64_t total = capacity_bytes() >= 0 ? capacity_bytes() : int64_t(1) << 46;
    const int64_t used = allocator_stats(device).reserved_bytes;
    return {size_t(std::max<int64_t>(0, total - used)), size_t(total)};
  }
};

TrnAllocator allocator;

}  // namespace

c10::Allocator* trn_allocator() { return &allocator; }

namespace {

const bool registered = [] {
  c10::SetAllocator(device_type(), &allocator, kRegistrationPriority);
  return true;
}();

}  // namespace

}  // namespace trnsim::capture
