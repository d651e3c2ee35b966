// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <pybind11/stl.h>

#include "bind/bind.h"
#include "project/collective.h"

namespace py = pybind11;

namespace trnsim::bind {

void bind_collective(py::module_& module) {
  using project::CollectiveRun;
  py::class_<CollectiveRun>(module, "CollectiveRun")
      .def_readonly("bytes", &CollectiveRun::bytes)
      .def_readonly("algorithm", &CollectiveRun::algorithm)
      .def_readonly("in_steps", &CollectiveRun::in_steps)
      .def_readonly("time_ps", &CollectiveRun::time_ps)
      .def_readonly("uncontended_ps", &CollectiveRun::uncontended_ps)
      .def_readonly("low_ps", &CollectiveRun::low_ps)
      .def_readonly("high_ps", &CollectiveRun::high_ps)
      .def_readonly("engine", &CollectiveRun::engine)
      .def_property_readonly("reliefs", [](const CollectiveRun& run) {
        std::vector<std::tuple<std::string, int64_t, std::string>> reliefs;
        for (const project::Relief& at : run.reliefs)
          reliefs.emplace_back(at.text, at.time_ps, at.algorithm);
        return reliefs;
      });
  module.def("collective_name", [](const std::string& name) {
    return project::collective_name(project::parse_collective(name));
  });
  module.def(
      "run_collective",
      [](const std::string& name, const std::vector<int64_t>& sizes,
         const machine::Machine& machine, const machine::Placement& placement,
         const std::string& algorithm, const std::vector<int64_t>& shares,
         const std::vector<std::string>& faults, bool step_mode, bool interval,
         const std::shared_ptr<project::Progress>& progress) {
        const project::CollectiveRequest request{
            project::parse_collective(name),           sizes,     algorithm, shares,
            project::parse_scenario({}, faults).links, step_mode, interval};
        return project::run_collective(request, machine, placement, progress.get());
      },
      py::arg("name"), py::arg("sizes"), py::arg("machine"), py::arg("placement"),
      py::arg("algorithm"), py::arg("shares"), py::arg("faults"), py::arg("step_mode"),
      py::arg("interval"), py::arg("progress"), py::call_guard<py::gil_scoped_release>());
  module.def(
      "bus_factor",
      [](const std::string& name, int64_t ranks) {
        const Rational factor = project::bus_factor(project::parse_collective(name), ranks);
        return std::pair(factor.numerator, factor.denominator);
      },
      py::arg("name"), py::arg("ranks"));
}

}  // namespace trnsim::bind
