// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/bind_runtime.h"

#include <optional>
#include <tuple>

#include "capture/recorder.h"
#include "capture/runtime/clock.h"
#include "capture/runtime/device_type.h"
#include "capture/runtime/generator.h"
#include "capture/runtime/host_allocator.h"
#include "capture/runtime/stream.h"

namespace py = pybind11;

namespace trnsim::capture::runtime {
namespace {

using StreamParts = std::tuple<int64_t, int64_t, int64_t>;  // id, device index, device type

StreamParts parts(c10::Stream stream) {
  return {stream.id(), stream.device_index(), int64_t(stream.device_type())};
}

// A Python function may be called, and dropped, from any thread.
std::shared_ptr<py::function> keep(py::function function) {
  return {new py::function(std::move(function)), [](py::function* held) {
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

void install_clock(std::optional<py::function> function) {
  if (!function) return set_event_clock({});
  set_event_clock([held = keep(std::move(*function))](int64_t event_id) {
    const py::gil_scoped_acquire gil;
    return (*held)(event_id).cast<int64_t>();
  });
}

void install_warning(py::function function) {
  set_host_clock_warning([held = keep(std::move(function))] {
    const py::gil_scoped_acquire gil;
    (*held)();
  });
}

}  // namespace

void bind_runtime(py::module_& module) {
  bind_memory_history(module);
  module.def("set_event_clock", &install_clock, py::arg("clock"),
             "Installs clock(event_id) -> picoseconds, or with None the host's own clock.");
  module.def("set_host_clock_warning", &install_warning, py::arg("warn"));
  module.def(
      "default_stream", [](int device) { return parts(default_stream(c10::DeviceIndex(device))); },
      py::arg("device"), "(stream id, device index, device type)");
  module.def(
      "stream_priority",
      [](int64_t id) {
        return stream_priority(c10::Stream(c10::Stream::UNSAFE, c10::Device(device_type(), 0), id));
      },
      py::arg("stream_id"));
  module.def(
      "stream_priority_range",
      [] { return std::tuple<int, int>(kLeastPriority, kGreatestPriority); },
      "(least, greatest): lower is more urgent");
  module.def(
      "default_generator", [](int device) { return default_generator(c10::DeviceIndex(device)); },
      py::arg("device"));
  module.def(
      "mark_step", [](int64_t tokens) { record_marker(workload::MarkerKind::step, tokens); },
      py::arg("tokens"), "The end of a step; -1 tokens = not known.");
  module.def(
      "is_pinned_address",
      [](uint64_t address) { return is_pinned(reinterpret_cast<const void*>(address)); },
      py::arg("address"));
}

}  // namespace trnsim::capture::runtime
