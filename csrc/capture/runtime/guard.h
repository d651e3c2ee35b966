// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which trn device and stream is current, per thread, and c10's guard over them.
//
// Streams and events are functions of a table, so that runtime/stream.cpp and event.cpp can serve
// them without this file knowing how; until they install theirs each device has one stream, 0.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdint>

namespace trnsim::capture {

c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);  // throws on an index that does not exist
c10::DeviceIndex device_count();
void set_device_count(c10::DeviceIndex count);     // ranks of one server, at least 1
// Index of the current stream of a device, as the Workload counts them: 0 is the default stream.
int32_t current_stream_index(c10::DeviceIndex device);

struct StreamFunctions {
  c10::Stream (*get_stream)(c10::Device);
  c10::Stream (*exchange_stream)(c10::Stream);
  c10::Stream (*get_from_pool)(c10::Device, bool high_priority);
  c10::Stream (*get_new)(c10::Device, int priority);
  void (*record)(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag);
  void (*block)(void* event, const c10::Stream&);
  bool (*query_event)(void* event);
  void (*destroy_event)(void* event, c10::DeviceIndex);
  bool (*query_stream)(const c10::Stream&);
  void (*synchronize_stream)(const c10::Stream&);
  void (*synchronize_event)(void* event);
  void (*synchronize_device)(c10::DeviceIndex);
  double (*elapsed_time_ms)(void* start, void* end, c10::DeviceIndex);
};
StreamFunctions& stream_functions();

}  // namespace trnsim::capture
