// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <string>

#include "base/hash.h"
#include "bind/bind.h"
#include "machine/blast.h"
#include "machine/topology.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using machine::Figure;
using machine::Link;
using machine::Machine;
using machine::Placement;
using machine::Topology;

// Data files write 0 for what is not known.
std::optional<double> known(const Rational& figure) {
  if (figure.is_zero()) return std::nullopt;
  return figure.to_double();
}

std::optional<std::map<std::string, double>> shares_of(const Machine& machine) {
  const machine::Fabric& fabric = machine.fabric;
  if (!fabric.transport.is_known) return std::nullopt;
  const machine::TransportShares shares = machine::transport_shares(fabric.transport);
  return std::map<std::string, double>{{"header", shares.header.to_double()},
                                       {"retransmit", shares.retransmit.to_double()},
                                       {"congestion", shares.congestion.to_double()},
                                       {"all", shares.all.to_double()},
                                       {"window", double(shares.window)}};
}

// What stands around the chips: the fabric, and the site.
void bind_site(py::class_<Machine, std::shared_ptr<Machine>>& type) {
  type.def_property_readonly(
          "network_power_per_chip_w",
          [](const Machine& m) -> std::optional<double> {
            const auto power_W = machine::network_power_per_chip_W(m.fabric);
            if (!power_W) return std::nullopt;
            return power_W->to_double();
          },
          "A chip's part, by ports, of the power of the switches between pods.")
      .def_property_readonly("pue", [](const Machine& m) { return known(m.pue); })
      .def_property_readonly("grid_kg_per_kwh",
                             [](const Machine& m) { return known(m.grid_kg_per_kWh); })
      .def_property_readonly(
          "transport_shares", &shares_of,
          "What the fabric's transport leaves of its links, by cause, and the window in packets;\n"
          "None where the machine states none.");
}

std::optional<int64_t> host_memory_bytes(const Machine& machine) {
  const int64_t bytes = machine.server.host_memory_bytes;
  return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

void bind_figure(py::module_& module) {
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
}

void bind_types(py::module_& module) {
  bind_figure(module);
  py::class_<Machine, std::shared_ptr<Machine>> machine_type(module, "Machine");
  bind_site(machine_type);
  machine_type.def_readonly("name", &Machine::name)
      .def_readonly("description", &Machine::description)
      .def_readonly("figures", &Machine::figures)
      .def_property_readonly("max_chips", &machine::max_chips)
      .def_property_readonly("pod_chips", [](const Machine& m) { return machine::pod_chips(m); })
      .def_property_readonly("server_chips", [](const Machine& m) { return m.server.chips; })
      .def("engine_name", &Machine::engine_name, py::arg("engine"))
      .def_property_readonly("chip_name", [](const Machine& m) { return m.chip.name; })
      .def_property_readonly(
          "architecture",
          [](const Machine& m) { return machine::architecture_name(m.chip.architecture); })
      .def_property_readonly("ranks_per_chip_allowed",
                             [](const Machine& m) { return m.chip.ranks_per_chip_allowed; })
      .def_property_readonly("hash", [](const Machine& m) { return hex16(m.hash); })
      .def_property_readonly("legal_chip_counts", &machine::legal_chip_counts)
      .def_property_readonly("price_usd_per_chip_hour",
                             [](const Machine& m) { return known(m.price_per_chip_hour_usd); })
      .def_property_readonly("power_per_chip_w",
                             [](const Machine& m) { return known(m.power_per_chip_W); })
      .def_property_readonly("power_package_w",
                             [](const Machine& m) { return known(m.power_package_W); })
      .def_property_readonly(
          "host_link_bytes_per_s",
          [](const Machine& m) { return m.server.host_link_Bps.to_double(); },
          "Between the host's memory and one chip, one direction.")
      .def_property_readonly(
          "hbm_bytes_per_s", [](const Machine& m) { return m.chip.hbm.bandwidth_Bps.to_double(); },
          "Of one chip, as published.")
      .def_property_readonly("host_memory_bytes", host_memory_bytes,
                             "Of one server's host; None where the file does not say.")
      .def_property_readonly("published_flops",
                             [](const Machine& m) {
                               std::map<std::string, double> peaks;
                               for (const auto& [dtype, flops] : m.chip.peaks.published_flops) {
                                 peaks[dtype] = flops.to_double();
                               }
                               return peaks;
                             })
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
        return "Machine('" + m.name + "', " + std::to_string(machine::max_chips(m)) +
               " chips at most, hash " + hex16(m.hash) + ")";
      });
}

int32_t in_range(int64_t index, int64_t count, const char* what) {
  if (index < 0 || index >= count) {
    throw py::index_error(std::string(what) + " " + std::to_string(index) + " is not in use");
  }
  return int32_t(index);
}

std::vector<Link> all_links(const Topology& topology) {
  std::vector<Link> links;
  for (int32_t id = 0; id < topology.link_count(); ++id) links.push_back(topology.link(id));
  return links;
}

void bind_topology(py::module_& module) {
  py::class_<Link>(module, "Link")
      .def_readonly("from_node", &Link::from_node)
      .def_readonly("to_node", &Link::to_node)
      .def_property_readonly("tier", [](const Link& link) { return machine::tier_name(link.tier); })
      .def_readonly("rate", &Link::rate)
      .def_readonly("healthy_rate", &Link::healthy_rate);
  py::class_<Topology>(module, "Topology")
      .def_property_readonly("chip_count", &Topology::chip_count)
      .def_property_readonly("pod_count", &Topology::pod_count)
      .def_property_readonly("pod_chips", &Topology::pod_chips)
      .def_property_readonly("link_count", &Topology::link_count)
      .def_property_readonly("links", &all_links)
      .def_property_readonly("can_multicast", &Topology::can_multicast)
      .def_property_readonly("tiers",
                             [](const Topology& topology) {
                               std::vector<std::string> names;
                               for (const machine::Tier tier : topology.tiers()) {
                                 names.push_back(machine::tier_name(tier));
                               }
                               return names;
                             })
      .def(
          "link",
          [](const Topology& topology, int64_t id) {
            return topology.link(in_range(id, topology.link_count(), "link"));
          },
          py::arg("id"))
      .def(
          "link_name",
          [](const Topology& topology, int64_t id) {
            return topology.link_name(in_range(id, topology.link_count(), "link"));
          },
          py::arg("id"))
      .def(
          "route",
          [](const Topology& topology, int64_t from_chip, int64_t to_chip) {
            std::vector<int32_t> links;
            topology.route(in_range(from_chip, topology.chip_count(), "chip"),
                           in_range(to_chip, topology.chip_count(), "chip"), links);
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

void bind_blast(py::module_& module) {
  using machine::BlastRadius;
  const auto share = [](Rational BlastRadius::* member) {
    return [member](const BlastRadius& radius) { return (radius.*member).to_double(); };
  };
  py::class_<BlastRadius>(module, "BlastRadius")
      .def_readonly("tier", &BlastRadius::tier)
      .def_readonly("switches", &BlastRadius::switches)
      .def_readonly("box", &BlastRadius::box)
      .def_readonly("boxes", &BlastRadius::boxes)
      .def_readonly("chips_cut", &BlastRadius::chips_cut)
      .def_readonly("chips_slowed", &BlastRadius::chips_slowed)
      .def_readonly("pods_hit", &BlastRadius::pods_hit)
      .def_property_readonly("left_sprayed", share(&BlastRadius::left_sprayed))
      .def_property_readonly("left_ecmp", share(&BlastRadius::left_ecmp))
      .def_property_readonly("pod_nics_left", share(&BlastRadius::pod_nics_left));
  module.def("blast_radius", &machine::blast_radius, py::arg("machine"), py::arg("chips"),
             py::arg("box") = 1,
             "What dies with a box of so many switches, one row a tier, of the worst box.\n\n"
             "Raises MachineError where the chips use no fabric, and for a box of none.");
}

}  // namespace

void bind_machine(py::module_& module) {
  bind_types(module);
  bind_blast(module);
  bind_topology(module);
  module.def("make_machine", &machine::make_machine, py::arg("name"), py::arg("description"),
             py::arg("figures"));
  module.def(
      "make_topology",
      [](const Machine& machine, int64_t chips,
         const std::vector<std::pair<std::string, std::string>>& faults, uint64_t seed) {
        machine::Conditions conditions{{}, seed};
        for (const auto& [where, factor] : faults) {
          conditions.faults.push_back({where, Rational::parse(factor)});
        }
        return machine::make_topology(machine, chips, conditions);
      },
      py::arg("machine"), py::arg("chips"), py::arg("faults") = py::list(), py::arg("seed") = 0);
  module.def("make_placement", &machine::make_placement, py::arg("machine"), py::arg("chips"),
             py::arg("ranks"), py::arg("ranks_per_chip"));
}

}  // namespace trnsim::bind
