// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/distributed/call_scope.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "capture/recorder.h"
#include "capture/runtime/guard.h"

namespace trnsim::capture::distributed {
namespace {

thread_local const std::vector<int32_t>* calls_of_scope = nullptr;

// The live events of calls. `count` lets the other events pass without the lock.
struct CallEvents {
  std::mutex mutex;
  std::unordered_map<void*, std::vector<int32_t>> calls;
  std::atomic<size_t> count{0};
};
CallEvents& call_events() {
  static CallEvents events;
  return events;
}

StreamFunctions& without_calls() {
  static StreamFunctions functions;
  return functions;
}

void forget_event(void* event) {
  CallEvents& events = call_events();
  if (events.count.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(events.mutex);
  events.calls.erase(event);
  events.count.store(events.calls.size(), std::memory_order_release);
}

void record(void** event, const c10::Stream& stream, c10::DeviceIndex device,
            c10::EventFlag flag) {
  without_calls().record(event, stream, device, flag);
  if (calls_of_scope == nullptr) {
    forget_event(*event);  // recorded anew, so that it is a stream's event again
    return;
  }
  CallEvents& events = call_events();
  const std::lock_guard lock(events.mutex);
  events.calls[*event] = *calls_of_scope;
  events.count.store(events.calls.size(), std::memory_order_release);
}

void block(void* event, const c10::Stream& stream) {
  CallEvents& events = call_events();
  std::vector<int32_t> calls;
  bool found = false;
  if (events.count.load(std::memory_order_acquire) != 0) {
    const std::lock_guard lock(events.mutex);
    const auto entry = events.calls.find(event);
    if ((found = entry != events.calls.end())) calls = entry->second;
  }
  if (!found) {
    without_calls().block(event, stream);
    return;
  }
  for (const int32_t call : calls) record_wait(call);
}

void destroy_event(void* event, c10::DeviceIndex device) {
  forget_event(event);
  without_calls().destroy_event(event, device);
}

}  // namespace

CallScope::CallScope(const std::vector<int32_t>& calls) : before_(calls_of_scope) {
  calls_of_scope = &calls;
}

CallScope::~CallScope() { calls_of_scope = before_; }

const std::vector<int32_t>* current_calls() { return calls_of_scope; }

void install_call_events() {
  static std::once_flag once;
  std::call_once(once, [] {
    without_calls() = stream_functions();
    stream_functions().record = &record;
    stream_functions().block = &block;
    stream_functions().destroy_event = &destroy_event;
  });
}

}  // namespace trnsim::capture::distributed
