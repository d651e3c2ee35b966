// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What the writer of Chakra traces needs of a run.
#include <pybind11/stl.h>

#include "bind/bind.h"
#include "report/chakra.h"
#include "report/tasks.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using report::ChakraGraph;
using report::ChakraNode;

const char* kind_name(const ChakraNode& node) {
  switch (node.kind) {
    case report::ChakraKind::comp:
      return "comp";
    case report::ChakraKind::call:
      return "call";
    case report::ChakraKind::host_read:
      return "host_read";
  }
  return "comp";
}

}  // namespace

void bind_traces(py::module_& module) {
  py::class_<ChakraNode>(module, "ChakraNode", "What is computed, sent or waited for.")
      .def_property_readonly("kind", kind_name, "comp, call or host_read.")
      .def_readonly("name", &ChakraNode::name)
      .def_readonly("flops", &ChakraNode::flops)
      .def_readonly("read_bytes", &ChakraNode::read_bytes)
      .def_readonly("write_bytes", &ChakraNode::write_bytes)
      .def_readonly("output_bytes", &ChakraNode::output_bytes)
      .def_readonly("dtype", &ChakraNode::dtype)
      .def_readonly("call", &ChakraNode::call, "Index in the Workload's calls, or -1.")
      .def_readonly("stream", &ChakraNode::stream)
      .def_readonly("region", &ChakraNode::region)
      .def_readonly("module", &ChakraNode::module)
      .def_property_readonly("phase", [](const ChakraNode& node) { return phase_name(node.phase); })
      .def_readonly("waits_for_all", &ChakraNode::waits_for_all)
      .def_readonly("start_ps", &ChakraNode::start_ps)
      .def_readonly("end_ps", &ChakraNode::end_ps)
      .def_readonly("data_deps", &ChakraNode::data_deps)
      .def_readonly("ctrl_deps", &ChakraNode::ctrl_deps);
  py::class_<ChakraGraph>(module, "ChakraGraph", "A step of a role's captured rank.")
      .def_readonly("nodes", &ChakraGraph::nodes)
      .def_readonly("ops_of_cycles", &ChakraGraph::ops_of_cycles);
  py::class_<fold::JobGroups>(module, "JobGroups", "The process groups of all ranks of a job.")
      .def_readonly("members", &fold::JobGroups::members)
      .def_readonly("names", &fold::JobGroups::names)
      .def_readonly("of_slot", &fold::JobGroups::of_slot,
                    "[rank][slot], an index in members or -1.");
  module.def("chakra_graph", &report::chakra_graph, py::arg("run"), py::arg("role"),
             py::call_guard<py::gil_scoped_release>());
  module.def("job_groups", &report::groups_of, py::arg("run"),
             py::call_guard<py::gil_scoped_release>());
}

}  // namespace trnsim::bind
