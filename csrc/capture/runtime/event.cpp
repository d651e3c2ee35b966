// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/event.h"

#include <atomic>

#include "capture/recorder.h"
#include "capture/runtime/clock.h"
#include "capture/runtime/stream.h"

namespace trnsim::capture::runtime {
namespace {

Event& event_at(void* event) { return *static_cast<Event*>(event); }

}  // namespace

int64_t next_event_id() {
  static std::atomic<int64_t> newest{0};
  return ++newest;
}

void record_mark(void** event, c10::Stream stream) {
  if (*event == nullptr) *event = new Event;
  Event& mark = event_at(*event);
  mark.id = next_event_id();
  mark.device = stream.device_index();
  mark.host_ps = host_time_ps();
  mark.is_in_workload = is_recording();
  if (mark.is_in_workload) record_event(mark.id, int32_t(stream.id()));
}

void wait_for_mark(void* event, c10::Stream stream) {
  if (event == nullptr || !event_at(event).is_in_workload || !is_recording()) return;
  record_event_wait(event_at(event).id, int32_t(stream.id()));
}

void synchronize_event(void* event) {
  if (event == nullptr || !is_recording()) return;
  const c10::Stream host = host_wait_stream(event_at(event).device);
  wait_for_mark(event, host);
  synchronize_stream(host);
}

void destroy_event(void* event) noexcept { delete static_cast<Event*>(event); }

double elapsed_ms(void* begin, void* end) {
  constexpr double kPicosecondsPerMillisecond = 1e9;
  const Event& first = event_at(begin);
  const Event& last = event_at(end);
  if (has_event_clock() && first.is_in_workload && last.is_in_workload) {
    // The later mark first: a clock that keeps what it computed then already holds the other.
    const int64_t last_ps = event_time_ps(last.id);
    return double(last_ps - event_time_ps(first.id)) / kPicosecondsPerMillisecond;
  }
  warn_host_clock();
  return double(last.host_ps - first.host_ps) / kPicosecondsPerMillisecond;
}

}  // namespace trnsim::capture::runtime
