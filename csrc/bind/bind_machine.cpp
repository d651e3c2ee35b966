// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include "base/hash.h"
#include "bind/bind.h"
#include "machine/topology.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using machine::Figure;
using machine::Link;
using machine::Machine;
using machine::Placement;
using machine::Topology;

void bind_types(py::module_& module) {
  py::class_<Figure>(module, "Figure")
      .def(py::init([](const std::string& key, const std::string& value, const std::string& unit,
                       const std::string& source, const std::string& confidence) {
             return Figure{key, value, unit, source, machine::parse_confidence(confidence)};
           }),
           py::arg("key"), py::arg("value"), py::arg("unit"), py::arg("source"),
           py::arg("confidence"))
      .def_readonly("key", &Figure::key)
      .def_readonly("value", &Figure::value)
      .def_readonly("unit", &Figure::unit)
      .def_readonly("source", &Figure::source)
      .def_property_readonly("confidence", [](const Figure& figure) {
        return machine::confidence_name(figure.confidence);
      });
  py::class_<Machine, std::shared_ptr<Machine>>(module, "Machine")
      .def_readonly("name", &Machine::name)
      .def_readonly("description", &Machine::description)
      .def_readonly("figures", &Machine::figures)
      .def_readonly("max_chips", &Machine::max_chips)
      .def_property_readonly("server_chips", [](const Machine& m) { return m.server.chips; })
      .def_property_readonly("chip_name", [](const Machine& m) { return m.chip.name; })
      .def_property_readonly(
          "architecture",
          [](const Machine& m) {
            return m.chip.architecture == machine::Architecture::gpu ? "gpu" : "neuroncore";
          })
      .def_property_readonly("ranks_per_chip_allowed",
                             [](const Machine& m) { return m.chip.ranks_per_chip_allowed; })
      .def_property_readonly("hash", [](const Machine& m) { return hex16(m.hash); })
      .def_property_readonly("legal_chip_counts", &machine::legal_chip_counts)
      .def("rank_memory_bytes", &machine::rank_memory_bytes, py::arg("ranks_per_chip") = 0)
      .def("with_override", &machine::with_override, py::arg("assignment"))
      .def(
          "scaled",
          [](const Machine& m, const std::string& what, const std::string& factor) {
            return machine::scaled(m, what, Rational::parse(factor));
          },
          py::arg("what"), py::arg("factor"))
      .def_property_readonly("scalable", &machine::scalable)
      .def(py::self == py::self)
      .def("__hash__", [](const Machine& m) { return py::hash(py::int_(m.hash)); })
      .def("__repr__", [](const Machine& m) {
        return "Machine('" + m.name + "', " + std::to_string(m.max_chips) +
               " chips at most, hash " + hex16(m.hash) + ")";
      });
}

void bind_topology(py::module_& module) {
  py::class_<Link>(module, "Link")
      .def_readonly("from_chip", &Link::from_chip)
      .def_readonly("to_chip", &Link::to_chip)
      .def_readonly("axis", &Link::axis)
      .def_readonly("rate", &Link::rate)
      .def_readonly("name", &Link::name);
  py::class_<Topology>(module, "Topology")
      .def_property_readonly("chip_count", &Topology::chip_count)
      .def_property_readonly("links", &Topology::links)
      .def(
          "route",
          [](const Topology& topology, int32_t from_chip, int32_t to_chip) {
            for (const int32_t chip : {from_chip, to_chip}) {
              if (chip < 0 || chip >= topology.chip_count()) {
                throw py::index_error("chip " + std::to_string(chip) + " is not in use");
              }
            }
            std::vector<int32_t> links;
            topology.route(from_chip, to_chip, links);
            return links;
          },
          py::arg("from_chip"), py::arg("to_chip"));
  py::class_<Placement>(module, "Placement")
      .def_readonly("chips", &Placement::chips)
      .def_readonly("ranks_per_chip", &Placement::ranks_per_chip)
      .def_readonly("ranks", &Placement::ranks)
      .def_readonly("ranks_per_server", &Placement::ranks_per_server)
      .def("chip_of", &Placement::chip_of, py::arg("rank"));
}

}  // namespace

void bind_machine(py::module_& module) {
  bind_types(module);
  bind_topology(module);
  module.def("make_machine", &machine::make_machine, py::arg("name"), py::arg("description"),
             py::arg("figures"));
  module.def("make_topology", &machine::make_topology, py::arg("machine"), py::arg("chips"));
  module.def("make_placement", &machine::make_placement, py::arg("machine"), py::arg("chips"),
             py::arg("ranks"), py::arg("ranks_per_chip"));
}

}  // namespace trnsim::bind
