// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <pybind11/stl.h>

#include "bind/bind.h"
#include "fold/job.h"

namespace py = pybind11;

namespace trnsim::bind {

using fold::Communicator;
using fold::LinkInfo;
using fold::LinkUse;
using fold::Rank;
using fold::System;
using fold::Variable;

namespace {

// What a System lists.
void bind_parts(py::module_& module) {
  py::class_<LinkUse>(module, "LinkUse")
      .def_readonly("link", &LinkUse::link)
      .def_readonly("weight", &LinkUse::weight);
  py::class_<Variable>(module, "Variable")
      .def_readonly("communicator", &Variable::communicator)
      .def_readonly("call", &Variable::call)
      .def_readonly("phase", &Variable::phase)
      .def_readonly("latency_ps", &Variable::latency_ps)
      .def_readonly("bytes", &Variable::bytes)
      .def_readonly("uses", &Variable::uses)
      .def_readonly("is_private", &Variable::is_private);
  py::class_<Communicator>(module, "Communicator")
      .def_readonly("slot", &Communicator::slot)
      .def_readonly("members", &Communicator::members)
      .def_readonly("name", &Communicator::name);
  py::class_<Rank>(module, "Rank")
      .def_readonly("role", &Rank::role)
      .def_readonly("chip", &Rank::chip)
      .def_readonly("factor", &Rank::factor)
      .def_readonly("start_ps", &Rank::start_ps)
      .def_readonly("count", &Rank::count)
      .def_readonly("communicator_of_slot", &Rank::communicator_of_slot);
  py::class_<LinkInfo>(module, "LinkInfo")
      .def_readonly("name", &LinkInfo::name)
      .def_readonly("rate", &LinkInfo::rate)
      .def_property_readonly("changes", [](const LinkInfo& link) {
        std::vector<std::pair<int64_t, int64_t>> changes;
        for (const auto& change : link.changes) changes.emplace_back(change.time_ps, change.rate);
        return changes;
      });
}

// A Program and the ranks that play it, as RankPattern writes them.
using Roles = std::vector<std::pair<std::shared_ptr<lower::Program>, std::string>>;
// rank, factor in 2^-16, start in ps
using OddRanks = std::vector<std::tuple<int64_t, int32_t, int64_t>>;

fold::Job make_job(const Roles& roles, const machine::Machine& machine,
                   const machine::Topology& topology, const machine::Placement& placement,
                   const OddRanks& odd_ranks) {
  fold::Job job{machine, topology, placement, placement.ranks, {}};
  for (const auto& [program, ranks] : roles) {
    job.roles.push_back({program, workload::RankPattern::parse(ranks)});
  }
  for (const auto& [rank, factor, start_ps] : odd_ranks) {
    job.odd_ranks.push_back({rank, factor, start_ps, {}});
  }
  return job;
}

void bind_jobs(py::module_& module) {
  module.def(
      "make_job_system",
      [](const Roles& roles, const machine::Machine& machine, const machine::Topology& topology,
         const machine::Placement& placement, const OddRanks& odd_ranks) {
        return std::make_shared<System>(
            fold::make_system(make_job(roles, machine, topology, placement, odd_ranks)));
      },
      py::arg("roles"), py::arg("machine"), py::arg("topology"), py::arg("placement"),
      py::arg("odd_ranks"), py::call_guard<py::gil_scoped_release>());
  module.def(
      "make_cohorts",
      [](const Roles& roles, const machine::Machine& machine, const machine::Topology& topology,
         const machine::Placement& placement, const OddRanks& odd_ranks) {
        return fold::make_cohorts(make_job(roles, machine, topology, placement, odd_ranks));
      },
      py::arg("roles"), py::arg("machine"), py::arg("topology"), py::arg("placement"),
      py::arg("odd_ranks"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace

void bind_fold(py::module_& module) {
  bind_parts(module);
  bind_jobs(module);
  py::class_<System, std::shared_ptr<System>>(
      module, "System",
      "A placed job, ready to be simulated: ranks with their Programs, communicators with their "
      "members, and the shares that their transfers have of links. trnsim.fold.place makes one of "
      "a Program; that of a projection is trnsim.project(..., fold=False).timeline.system (folded, "
      "a rank stands for `count` alike). It is never changed: `with_rank` and the like return "
      "another.")
      .def_readonly("communicators", &System::communicators)
      .def_readonly("links", &System::links)
      .def_readonly("variables", &System::variables)
      .def_readonly("ranks", &System::ranks)
      .def(
          "with_rank",
          [](const System& system, int64_t rank, int32_t factor, int64_t start_ps) {
            return fold::with_rank(system, rank, factor, start_ps);
          },
          py::arg("rank"), py::arg("factor"), py::arg("start_ps"))
      .def(
          "with_factor_changes",
          [](const System& system, int64_t rank,
             const std::vector<std::pair<int64_t, int32_t>>& changes) {
            std::vector<fold::FactorChange> list;
            for (const auto& [time_ps, factor] : changes) list.push_back({time_ps, factor});
            return fold::with_factor_changes(system, rank, list);
          },
          py::arg("rank"), py::arg("changes"))
      .def(
          "with_link_changes",
          [](const System& system, int64_t link,
             const std::vector<std::pair<int64_t, int64_t>>& changes) {
            std::vector<fold::RateChange> list;
            for (const auto& [time_ps, rate] : changes) list.push_back({time_ps, rate});
            return fold::with_link_changes(system, link, list);
          },
          py::arg("link"), py::arg("changes"))
      .def("__repr__", [](const System& s) {
        return "System(" + std::to_string(s.ranks.size()) + " ranks, " +
               std::to_string(s.communicators.size()) + " communicators, " +
               std::to_string(s.links.size()) + " links)";
      });
  py::class_<fold::Cohorts>(module, "Cohorts")
      .def_property_readonly(
          "system",
          [](const fold::Cohorts& c) { return std::const_pointer_cast<System>(c.system); })
      .def_readonly("class_of_rank", &fold::Cohorts::class_of_rank)
      .def_readonly("class_of_communicator", &fold::Cohorts::class_of_communicator)
      .def_readonly("class_of_link", &fold::Cohorts::class_of_link)
      .def("__repr__", [](const fold::Cohorts& c) {
        return "Cohorts(" + std::to_string(c.class_of_rank.size()) + " ranks in " +
               std::to_string(c.system->ranks.size()) + " classes)";
      });
  module.def(
      "fold_system",
      [](const std::shared_ptr<System>& system) { return fold::fold_system(system); },
      py::arg("system").none(false), py::call_guard<py::gil_scoped_release>());
  module.def(
      "make_system",
      [](const std::shared_ptr<lower::Program>& program, const machine::Machine& machine,
         const machine::Topology& topology, const machine::Placement& placement,
         int64_t used_ranks) {
        return std::make_shared<System>(
            fold::make_system(program, machine, topology, placement, used_ranks));
      },
      py::arg("program"), py::arg("machine"), py::arg("topology"), py::arg("placement"),
      py::arg("used_ranks"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace trnsim::bind
