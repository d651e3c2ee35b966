// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/clock.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace trnsim::capture::runtime {
namespace {

struct Installed {
  std::mutex mutex;
  std::shared_ptr<const EventClock> clock;
  std::function<void()> warn;
  std::atomic<bool> has_warned{false};
};

// Never destroyed: the functions may hold Python objects, and the interpreter ends before statics.
Installed& installed() {
  static Installed* const kept = new Installed;
  return *kept;
}

std::shared_ptr<const EventClock> current_clock() {
  const std::lock_guard lock(installed().mutex);
  return installed().clock;
}

}  // namespace

void set_event_clock(EventClock clock) {
  auto next = clock ? std::make_shared<const EventClock>(std::move(clock)) : nullptr;
  const std::lock_guard lock(installed().mutex);
  installed().clock.swap(next);
}

bool has_event_clock() { return current_clock() != nullptr; }

int64_t event_time_ps(int64_t event_id) {
  const auto clock = current_clock();
  TRN_ASSERT(clock != nullptr, "event_time_ps was called without an event clock");
  return (*clock)(event_id);
}

int64_t host_time_ps() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() * 1000;
}

void set_host_clock_warning(std::function<void()> warn) {
  const std::lock_guard lock(installed().mutex);
  installed().warn = std::move(warn);
}

void warn_host_clock() {
  if (installed().has_warned.exchange(true)) return;
  std::function<void()> warn;
  {
    const std::lock_guard lock(installed().mutex);
    warn = installed().warn;
  }
  if (warn) warn();
}

}  // namespace trnsim::capture::runtime
