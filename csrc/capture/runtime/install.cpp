// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Puts streams, events, generators and pinned memory into the tables that the guard and the hooks
// read. Static initialization is early enough: torch asks for none of them before the device has a
// name.
#include "capture/runtime/device_type.h"
#include "capture/runtime/event.h"
#include "capture/runtime/generator.h"
#include "capture/runtime/guard.h"
#include "capture/runtime/hooks.h"
#include "capture/runtime/host_allocator.h"
#include "capture/runtime/stream.h"

namespace trnsim::capture::runtime {
namespace {

void install_streams(StreamFunctions& f) {
  f.get_stream = [](c10::Device device) { return current_stream(device.index()); };
  f.exchange_stream = &exchange_stream;
  f.get_from_pool = [](c10::Device device, bool high_priority) {
    return pool_stream(device.index(), high_priority);
  };
  f.get_new = [](c10::Device device, int priority) { return new_stream(device.index(), priority); };
  f.query_stream = [](const c10::Stream&) { return true; };
  f.synchronize_stream = [](const c10::Stream& stream) { synchronize_stream(stream); };
  f.synchronize_device = &synchronize_device;
}

void install_events(StreamFunctions& f) {
  f.record = [](void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) {
    record_mark(event, stream);
  };
  f.block = [](void* event, const c10::Stream& stream) { wait_for_mark(event, stream); };
  f.query_event = [](void*) { return true; };
  f.destroy_event = [](void* event, c10::DeviceIndex) { destroy_event(event); };
  f.synchronize_event = &synchronize_event;
  f.elapsed_time_ms = [](void* begin, void* end, c10::DeviceIndex) {
    return elapsed_ms(begin, end);
  };
}

void install_hooks(HookFunctions& f) {
  f.default_generator = &default_generator;
  f.new_generator = &make_generator;
  f.host_generator = [](const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
    return std::optional<at::Generator>(cpu_generator_for(generator, device));
  };
  f.is_pinned = &is_pinned;
  f.pinned_allocator = []() -> c10::Allocator* { return host_allocator(); };
}

const bool installed = [] {
  install_streams(stream_functions());
  install_events(stream_functions());
  install_hooks(hook_functions());
  at::setHostAllocator(device_type(), host_allocator(), kRegistrationPriority);
  return true;
}();

}  // namespace
}  // namespace trnsim::capture::runtime
