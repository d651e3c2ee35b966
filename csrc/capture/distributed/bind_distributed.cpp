// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/distributed/bind_distributed.h"

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "capture/distributed/backend.h"
#include "capture/distributed/call_scope.h"
#include "capture/distributed/host_broadcasts.h"
#include "capture/distributed/store.h"
#include "capture/recorder.h"

namespace trnsim::capture::distributed {
namespace {

namespace py = pybind11;

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
  install_call_events();
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
      .def(
          "place_of",
          [](const UniformBackend& self, int64_t root) { return place_of(self.ranks(), root); },
          py::arg("root"), "How the group lies from its first rank on, and which member roots.")
      .def("perform_nocolor_split", [](UniformBackend&, const py::object&) {});
  py::class_<UniformStore, c10d::Store, c10::intrusive_ptr<UniformStore>>(
      module, "Store", "The store of a job whose other ranks do not run.")
      .def(py::init([](int64_t world_size) {
             return c10::make_intrusive<UniformStore>(world_size);
           }),
           py::arg("world_size"));
  module.def("name_group", &name_group, py::arg("group"), py::arg("name"),
             "Names a group of the Workload; 0 is the world, which has no name at first.");
  module.def("create_backend", &create_backend, py::arg("options"), py::arg("name"),
             py::arg("refused_device_hint") = "");
  module.def(
      "begin_host_broadcasts",
      [](const std::map<std::string, std::vector<std::optional<py::bytes>>>& known) {
        HostBroadcasts values;
        for (const auto& [place, all] : known) {
          for (const auto& each : all) {
            auto& kept = values[place].emplace_back();
            if (each) kept = static_cast<std::string>(*each);
          }
        }
        begin_host_broadcasts(std::move(values));
      },
      py::arg("known"), "Before a capture: what rank 0 broadcast in CPU tensors, by place.");
  module.def(
      "take_host_broadcasts",
      [] {
        std::map<std::string, std::vector<std::optional<py::bytes>>> said;
        for (const auto& [place, all] : take_host_broadcasts()) {
          for (const auto& each : all) {
            said[place].push_back(each ? std::optional(py::bytes(*each)) : std::nullopt);
          }
        }
        return said;
      },
      "What this rank broadcast in CPU tensors since the capture began.");
  module.def("take_counts", [] {
    const MessageCounts counts = take_counts();
    return py::make_tuple(counts.point_to_point, counts.on_host);
  });
}

}  // namespace

void bind_distributed(py::module_& module) {
  py::module_::import("torch.distributed");  // c10d's own classes must be bound before ours
  py::module_ distributed = module.def_submodule("distributed");
  bind_backend(distributed);
  module.def("work_count", &work_count, "Ops and collectives recorded so far.");
  module.def("set_parameter_count", &set_parameter_count, py::arg("count"),
             "Elements of the parameters that optimizers hold.");
  module.def("reset_groups", &reset_groups, "Forgets every group but the world.");
}

}  // namespace trnsim::capture::distributed
