// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/stream.h"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "capture/recorder.h"
#include "capture/runtime/device_type.h"
#include "capture/runtime/event.h"

namespace trnsim::capture::runtime {
namespace {

constexpr int kPoolSize = 32;
constexpr int kDeviceLimit = std::numeric_limits<c10::DeviceIndex>::max() + 1;

struct StreamInfo {
  c10::DeviceIndex device = 0;
  int priority = kLeastPriority;
};

struct Pool {
  std::vector<c10::StreamId> ids;
  size_t next = 0;
};

struct Streams {
  std::mutex mutex;
  std::vector<StreamInfo> made{StreamInfo{}};  // by id; 0 stands for every default stream
  std::array<std::array<Pool, 2>, kDeviceLimit> pools;
  std::array<c10::StreamId, kDeviceLimit> host_wait{};  // 0 = not made yet
};

Streams& streams() {
  static Streams* const kept = new Streams;  // events may outlive statics
  return *kept;
}

thread_local std::array<c10::StreamId, kDeviceLimit> current_ids{};

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(device_type(), device), id);
}

c10::StreamId add_stream(Streams& all, c10::DeviceIndex device, int priority) {
  all.made.push_back({device, std::clamp(priority, kGreatestPriority, kLeastPriority)});
  return c10::StreamId(all.made.size()) - 1;
}

size_t slot(c10::DeviceIndex device) {
  TRN_ASSERT(device >= 0, "a stream needs a device index");
  return size_t(device);
}

}  // namespace

c10::Stream default_stream(c10::DeviceIndex device) { return stream_of(device, 0); }

c10::Stream current_stream(c10::DeviceIndex device) {
  return stream_of(device, current_ids[slot(device)]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  auto& id = current_ids[slot(stream.device_index())];
  const c10::StreamId before = id;
  id = stream.id();
  return stream_of(stream.device_index(), before);
}

c10::Stream new_stream(c10::DeviceIndex device, int priority) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  slot(device);
  return stream_of(device, add_stream(all, device, priority));
}

c10::Stream pool_stream(c10::DeviceIndex device, bool is_high_priority) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  Pool& pool = all.pools[slot(device)][is_high_priority ? 1 : 0];
  if (pool.ids.size() < kPoolSize) {
    pool.ids.push_back(
        add_stream(all, device, is_high_priority ? kGreatestPriority : kLeastPriority));
    return stream_of(device, pool.ids.back());
  }
  return stream_of(device, pool.ids[pool.next++ % kPoolSize]);
}

int stream_priority(c10::Stream stream) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  TRN_CHECK(stream.id() >= 0 && size_t(stream.id()) < all.made.size(), capture,
            "stream " + std::to_string(stream.id()) + " was not made in this process",
            "make streams with torch.Stream, and do not carry them over from another process");
  return all.made[size_t(stream.id())].priority;
}

void synchronize_stream(c10::Stream stream) {
  if (!is_recording()) return;
  const c10::Stream before = exchange_stream(stream);
  record_host_read({}, /*answered_by_policy=*/false);
  exchange_stream(before);
}

void synchronize_device(c10::DeviceIndex device) {
  if (!is_recording()) return;
  std::vector<c10::StreamId> used;
  {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    const c10::StreamId host = all.host_wait[slot(device)];
    for (size_t id = 1; id < all.made.size(); ++id) {
      if (all.made[id].device == device && c10::StreamId(id) != host) used.push_back(int64_t(id));
    }
  }
  if (used.empty()) return synchronize_stream(default_stream(device));
  used.push_back(0);
  const c10::Stream host = host_wait_stream(device);
  for (const c10::StreamId id : used) {
    const int64_t event = next_event_id();
    record_event(event, int32_t(id));
    record_event_wait(event, int32_t(host.id()));
  }
  synchronize_stream(host);
}

c10::Stream host_wait_stream(c10::DeviceIndex device) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  c10::StreamId& id = all.host_wait[slot(device)];
  if (id == 0) id = add_stream(all, device, kLeastPriority);
  return stream_of(device, id);
}

}  // namespace trnsim::capture::runtime
