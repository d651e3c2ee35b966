// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/guard.h"

#include <c10/core/DeviceCapability.h>
#include <c10/util/Exception.h>

#include <atomic>

#include "capture/recorder.h"
#include "capture/runtime/device_type.h"

namespace trnsim::capture {
namespace {

std::atomic<c10::DeviceIndex> count{1};
thread_local c10::DeviceIndex device_of_thread = 0;

c10::Stream default_stream(c10::Device device) {
  return c10::Stream(c10::Stream::DEFAULT, device);
}

[[noreturn]] void no_events() {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "events are not installed");
  std::abort();
}

StreamFunctions one_stream_per_device() {
  StreamFunctions f{};
  f.get_stream = &default_stream;
  f.exchange_stream = [](c10::Stream stream) { return default_stream(stream.device()); };
  f.get_from_pool = [](c10::Device device, bool) { return default_stream(device); };
  f.get_new = [](c10::Device device, int) { return default_stream(device); };
  f.record = [](void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) { no_events(); };
  f.block = [](void*, const c10::Stream&) { no_events(); };
  f.query_event = [](void*) { return true; };
  f.destroy_event = [](void*, c10::DeviceIndex) {};
  f.query_stream = [](const c10::Stream&) { return true; };
  f.synchronize_stream = [](const c10::Stream&) { record_host_read({}, false); };
  f.synchronize_event = [](void*) { record_host_read({}, false); };
  f.synchronize_device = [](c10::DeviceIndex) { record_host_read({}, false); };
  f.elapsed_time_ms = [](void*, void*, c10::DeviceIndex) -> double { no_events(); };
  return f;
}

}  // namespace

StreamFunctions& stream_functions() {
  static StreamFunctions functions = one_stream_per_device();
  return functions;
}

c10::DeviceIndex current_device() { return device_of_thread; }

void set_current_device(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < device_count(), "invalid device ordinal: ", int(device),
              " of ", int(device_count()), " devices");
  device_of_thread = device;
}

c10::DeviceIndex device_count() { return count.load(std::memory_order_relaxed); }
void set_device_count(c10::DeviceIndex value) { count.store(value < 1 ? 1 : value); }

int32_t current_stream_index(c10::DeviceIndex device) {
  return int32_t(
      stream_functions().get_stream({device_type(), device}).id());
}

namespace {

struct TrnGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return device_type(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::DeviceIndex old = current_device();
    if (device.index() >= 0) set_current_device(device.index());
    return {device_type(), old};
  }
  c10::Device getDevice() const override { return {device_type(), current_device()}; }
  void setDevice(c10::Device device) const override {
    if (device.index() >= 0) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) device_of_thread = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  // Every dtype, since the CPU or a shape function stands behind each op.
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device device) const override {
    if (device.index() < 0) device = getDevice();
    return stream_functions().get_stream(device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device.index() < 0 ? getDevice() : device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return stream_functions().get_from_pool(device.index() < 0 ? getDevice() : device, high);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return stream_functions().get_new(device.index() < 0 ? getDevice() : device, priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_functions().exchange_stream(stream);
  }
  void destroyEvent(void* event, const c10::DeviceIndex index) const noexcept override {
    stream_functions().destroy_event(event, index);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag flag) const override {
    stream_functions().record(event, stream, index, flag);
  }
  void block(void* event, const c10::Stream& stream) const override {
    stream_functions().block(event, stream);
  }
  bool queryEvent(void* event) const override { return stream_functions().query_event(event); }
  bool queryStream(const c10::Stream& s) const override {
    return stream_functions().query_stream(s);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    stream_functions().synchronize_stream(stream);
  }
  void synchronizeEvent(void* event) const override {
    stream_functions().synchronize_event(event);
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    stream_functions().synchronize_device(index);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  double elapsedTime(void* start, void* end, const c10::DeviceIndex index) const override {
    return stream_functions().elapsed_time_ms(start, end, index);
  }
};

}  // namespace

const c10::impl::DeviceGuardImplRegistrar registered(device_type(), new TrnGuard);

}  // namespace trnsim::capture
