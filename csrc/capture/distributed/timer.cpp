// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What DDP's logger asks for its statistics: host times, as c10d takes them for the CPU. The device
// has no clock while a script runs.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "capture/runtime/device_type.h"

namespace trnsim::capture::distributed {
namespace {

class HostTimer : public c10d::Timer {
 public:
  explicit HostTimer(c10::Device) {}

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const int64_t began = getTimeRef(start), ended = getTimeRef(end);
    if (began == c10d::kUnsetTime || ended == c10d::kUnsetTime || ended < began) {
      return std::nullopt;
    }
    return ended - began;
  }
};

const bool registered = [] {
  c10d::TimerRegistry()->Register(
      device_type(),
      [](c10::Device device) -> std::unique_ptr<c10d::Timer> {
        return std::make_unique<HostTimer>(device);
      },
      c10::REGISTRY_PREFERRED);
  return true;
}();

}  // namespace
}  // namespace trnsim::capture::distributed
