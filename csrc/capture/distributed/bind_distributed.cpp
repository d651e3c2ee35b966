// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/distributed/bind_distributed.h"

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "capture/distributed/backend.h"
#include "capture/distributed/store.h"
#include "capture/recorder.h"

namespace trnsim::capture::distributed {
namespace {

namespace py = pybind11;
using workload::MarkerKind;
using workload::StorageKind;

// The captured rank's view of the group that `options` asks for. The default group lists no ranks:
// it is the world, group 0 of the Workload.
c10::intrusive_ptr<UniformBackend> create_backend(const c10d::DistributedBackendOptions& options,
                                                  const std::string& name,
                                                  const std::string& refused_device_hint) {
  workload::RankPattern ranks;
  int32_t group = 0;
  if (options.global_ranks_in_group.empty()) {
    ranks.axes = {{1, options.group_size}};
  } else {
    ranks = workload::RankPattern::of(options.global_ranks_in_group);
    // A group that stands for the host only is none of the device's.
    if (refused_device_hint.empty()) group = add_group(options.group_id, ranks);
  }
  return c10::make_intrusive<UniformBackend>(
      options.group_rank, options.group_size, name, group, ranks, refused_device_hint,
      std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout));
}

void bind_backend(py::module_& module) {
  py::class_<UniformBackend, c10d::Backend, c10::intrusive_ptr<UniformBackend>>(
      module, "Backend", "The c10d backend that stands for every rank of a group in one process.")
      .def_property_readonly("group", &UniformBackend::group)
      .def_property_readonly("ranks",
                             [](const UniformBackend& self) { return self.ranks().text(); })
      .def("perform_nocolor_split", [](UniformBackend&, const py::object&) {});
  py::class_<UniformStore, c10d::Store, c10::intrusive_ptr<UniformStore>>(
      module, "Store", "The store of a job whose other ranks do not run.")
      .def(py::init([](int64_t world_size) {
             return c10::make_intrusive<UniformStore>(world_size);
           }),
           py::arg("world_size"));
  module.def("create_backend", &create_backend, py::arg("options"), py::arg("name"),
             py::arg("refused_device_hint") = "");
  module.def("take_counts", [] {
    const MessageCounts counts = take_counts();
    return py::make_tuple(counts.point_to_point, counts.on_host);
  });
}

void bind_recording(py::module_& module) {
  module.def("is_recording", &is_recording);
  module.def("push_module", &push_module, py::arg("path"));
  module.def("pop_module", &pop_module);
  module.def("push_recomputation", &push_recomputation);
  module.def("pop_recomputation", &pop_recomputation);
  module.def("push_optimizer", &push_optimizer);
  module.def("pop_optimizer", &pop_optimizer);
  module.def("set_world", &set_world, py::arg("rank"), py::arg("world_size"),
             py::arg("ranks_per_server"));
  module.def("add_note", &add_note, py::arg("note"));
  const auto mark = [&module](const char* name, MarkerKind kind) {
    module.def(name, [kind](int64_t value) { record_marker(kind, value); }, py::arg("value"));
  };
  mark("mark_optimizer_begin", MarkerKind::optimizer_begin);
  mark("mark_optimizer_end", MarkerKind::optimizer_end);
  mark("mark_optimizer_skipped", MarkerKind::optimizer_skipped);
  mark("mark_forward_begin", MarkerKind::forward_begin);
  mark("mark_step", MarkerKind::step);
  const auto kind = [&module](const char* name, StorageKind storage_kind) {
    module.def(name, [storage_kind](const at::Tensor& tensor) {
      set_storage_kind(tensor, storage_kind);
    }, py::arg("tensor"));
  };
  kind("set_parameter", StorageKind::parameter);
  kind("set_gradient", StorageKind::gradient);
  kind("set_optimizer_state", StorageKind::optimizer_state);
  kind("set_buffer", StorageKind::buffer);
  kind("set_input", StorageKind::input);
  kind("set_communication", StorageKind::communication);
}

}  // namespace

void bind_distributed(py::module_& module) {
  py::module_::import("torch.distributed");  // c10d's own classes must be bound before ours
  py::module_ distributed = module.def_submodule("distributed");
  bind_backend(distributed);
  py::module_ recording = module.def_submodule("recording");
  bind_recording(recording);
}

}  // namespace trnsim::capture::distributed
