// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Mode, memory and recording. A Workload belongs to _core, whose pybind11 is another one, so it
// crosses as a capsule that _core's Workload.from_capsule takes over.
#include <memory>

#include "base/error.h"
#include "capture/bind.h"
#include "capture/graph.h"
#include "capture/recorder.h"
#include "capture/ring.h"
#include "capture/runtime/allocator.h"
#include "capture/runtime/device_type.h"
#include "capture/runtime/fault.h"
#include "capture/runtime/guard.h"
#include "capture/runtime/hooks.h"

namespace trnsim::capture {
namespace {

namespace py = pybind11;
using WorkloadPointer = std::shared_ptr<workload::Workload>;

py::capsule capsule_of(WorkloadPointer workload) {
  return py::capsule(
      new WorkloadPointer(std::move(workload)), "trnsim.Workload", [](PyObject* capsule) {
        delete static_cast<WorkloadPointer*>(PyCapsule_GetPointer(capsule, "trnsim.Workload"));
      });
}

workload::MarkerKind marker_kind(const std::string& name) {
  for (int i = 0; i <= int(workload::MarkerKind::setup); ++i) {
    if (name == workload::marker_kind_name(workload::MarkerKind(i))) {
      return workload::MarkerKind(i);
    }
  }
  throw Error(ErrorKind::capture, "no marker kind '" + name + "'");
}

workload::StorageKind storage_kind(const std::string& name) {
  for (int i = 0; i < workload::kStorageKindCount; ++i) {
    if (name == workload::storage_kind_name(workload::StorageKind(i))) {
      return workload::StorageKind(i);
    }
  }
  throw Error(ErrorKind::capture, "no storage kind '" + name + "'");
}

using MarkTuple = std::tuple<int32_t, int64_t, int64_t>;
MarkTuple mark_tuple(const GraphMark& mark) {
  return {mark.recording, mark.records, mark.allocations};
}

void bind_recording(py::module_& m) {
  m.def("start_recording", &start_recording);
  m.def("stop_recording", [] { return capsule_of(stop_recording()); });
  m.def("snapshot_recording", [] { return capsule_of(snapshot_recording()); });
  m.def("is_recording", &is_recording);
  m.def("push_module", &push_module);
  m.def("pop_module", &pop_module);
  m.def("module_path", &module_path);
  m.def("module_depth", &module_depth);
  m.def("push_recomputation", &push_recomputation);
  m.def("pop_recomputation", &pop_recomputation);
  m.def("push_optimizer", &push_optimizer);
  m.def("pop_optimizer", &pop_optimizer);
  m.def("record_count", &record_count);
  m.def("mark_below_diagonal", &mark_below_diagonal);
  m.def("begin_region", &begin_region);
  m.def("end_region", &end_region);
  m.def("set_region_module", &set_region_module);
  m.def("record_marker",
        [](const std::string& kind, int64_t value) { record_marker(marker_kind(kind), value); });
  m.def("set_storage_kind", [](const at::Tensor& tensor, const std::string& kind) {
    set_storage_kind(tensor, storage_kind(kind));
  });
  m.def("begin_graph", [] { return mark_tuple(begin_graph()); });
  m.def("end_graph", [] { return mark_tuple(end_graph()); });
  m.def("replay_graph", [](const MarkTuple& begin, const MarkTuple& end) {
    replay_graph(std::make_from_tuple<GraphMark>(begin), std::make_from_tuple<GraphMark>(end));
  });
  m.def(
      "position",
      [] {
        std::pair<int64_t, int64_t> at;
        edit_recording([&](workload::Workload& workload, int32_t) {
          at = {int64_t(workload.records.size()), int64_t(workload.allocations.size())};
        });
        return at;
      },
      "Records and allocation events so far.");
  m.def("set_world", &set_world);
  m.def("add_note", &add_note);
}

void bind_memory(py::module_& m) {
  m.def("set_capacity_bytes", &set_capacity_bytes);
  m.def("refuse_allocations", &refuse_allocations, py::arg("reason"),
        "This process may make no tensor of the device any more: RuntimeError with the reason.");
  m.def("capacity_bytes", &capacity_bytes);
  m.def("set_only_report_out_of_memory", &set_only_report_out_of_memory);
  m.def("out_of_memory_count", &out_of_memory_count);
  m.def(
      "resize_storage",
      [](const at::Tensor& tensor, int64_t bytes) {
        resize_storage(*tensor.storage().unsafeGetStorageImpl(), bytes);
      },
      "Makes the device tensor's storage hold so many bytes.");
  m.def(
      "peak_bytes",
      [](int device) { return allocator_stats(c10::DeviceIndex(device)).allocated_peak; },
      "The most that tensors had on the device, in bytes.");
  m.def("release_cached_memory", &release_cached_memory);
  m.def("live_block_count", &live_block_count);
}

}  // namespace

void bind_capture(py::module_& m) {
  py::register_local_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const Error& error) {
      const auto errors = py::module_::import("trnsim.errors");
      PyErr_SetString(errors.attr("CaptureError").ptr(), error.what());
    }
  });
  m.def("mode", [] { return mode() == Mode::phantom ? "phantom" : "compute"; });
  m.def("set_mode", [](const std::string& name) {
    TRN_CHECK(name == "phantom" || name == "compute", capture, "no mode '" + name + "'",
              "choose phantom or compute");
    set_mode(name == "phantom" ? Mode::phantom : Mode::compute);
  });
  m.def("device_name", &device_type_name, "The type of torch.device that we serve.");
  m.def("device_count", [] { return int(device_count()); });
  m.def("set_device_count", [](int count) { set_device_count(c10::DeviceIndex(count)); });
  m.def("current_device", [] { return int(current_device()); });
  m.def(
      "is_known",
      [](const at::Tensor& tensor) {
        const Block* const block = block_of(tensor);
        return block == nullptr || block->known;
      },
      "Does the device tensor have values?");
  m.def("install_fault_handler", &install_fault_handler);
  bind_recording(m);
  bind_memory(m);
}

}  // namespace trnsim::capture
