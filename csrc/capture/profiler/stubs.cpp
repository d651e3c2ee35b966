// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Simulated device time for torch.profiler and torch.autograd.profiler.
//
// The profiler marks the beginning and the end of each op with an event and asks how far apart they
// are. Ours are the events of the device (runtime/event.h): marks in the Workload, whose times come
// from this rank's uncontended timeline so far (runtime/clock.h). Ops that the machine fuses end
// together, so the first of a fused group shows the group's time, and the sum is right. Nothing
// runs, so there is nothing to wait for: synchronize records no wait of the host, or profiling
// would change the step.
#include "capture/profiler/stubs.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "capture/runtime/device_type.h"
#include "capture/runtime/event.h"
#include "capture/runtime/guard.h"
#include "capture/runtime/stream.h"

namespace trnsim::capture {
namespace {

using torch::profiler::impl::ProfilerStubs;
using torch::profiler::impl::ProfilerVoidEventStub;

class DeviceTime final : public ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (device != nullptr) *device = current_device();
    if (cpu_ns != nullptr) *cpu_ns = c10::getTime();
    void* mark = nullptr;
    runtime::record_mark(&mark, runtime::current_stream(current_device()));
    *event = ProfilerVoidEventStub(mark, [](void* made) { runtime::destroy_event(made); });
  }
  // In microseconds.
  float elapsed(const ProfilerVoidEventStub* begin,
                const ProfilerVoidEventStub* end) const override {
    return float(1000 * runtime::elapsed_ms(begin->get(), end->get()));
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> visit) const override { visit(current_device()); }
  void synchronize() const override {}
};

}  // namespace

void register_device_time() {
  static DeviceTime time;
  if (serves_cuda()) {
    torch::profiler::impl::registerCUDAMethods(&time);
  } else {
    torch::profiler::impl::registerPrivateUse1Methods(&time);
  }
}

}  // namespace trnsim::capture
