// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/hash.h"
#include "bind/bind.h"
#include "bind/python_exchange.h"
#include "simulate/jitter.h"
#include "simulate/network/certificate.h"
#include "simulate/network/repair.h"
#include "simulate/scenarios.h"
#include "simulate/shard.h"
#include "simulate/timeline.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using simulate::CallSpan;
using simulate::Progress;
using simulate::SimulateOptions;
using simulate::Timeline;

// A read-only array over the owner's memory; `owner` keeps it alive.
py::array_t<int64_t> view(const std::vector<int64_t>& values, int64_t begin, int64_t end,
                          const py::object& owner) {
  py::array_t<int64_t> array(end - begin, values.data() + begin, owner);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

template <std::vector<int64_t> Timeline::* field>
py::array_t<int64_t> view_all(const py::object& self) {
  const auto& values = self.cast<const Timeline&>().*field;
  return view(values, 0, int64_t(values.size()), self);
}

// Times of one rank's tasks, in Program order.
template <std::vector<int64_t> Timeline::* field>
py::array_t<int64_t> view_rank(const py::object& self, int64_t rank) {
  const auto& timeline = self.cast<const Timeline&>();
  if (rank < 0 || rank + 1 >= int64_t(timeline.first_task.size())) {
    throw py::index_error("no rank " + std::to_string(rank));
  }
  return view(timeline.*field, timeline.first_task[size_t(rank)],
              timeline.first_task[size_t(rank) + 1], self);
}

// Every flow of the list is active.
simulate::Network make_network(const std::vector<int64_t>& capacities,
                               const std::vector<std::vector<std::pair<int32_t, int64_t>>>& flows) {
  std::vector<fold::Variable> variables;
  for (const auto& uses : flows) {
    auto& variable = variables.emplace_back();
    for (const auto& [link, weight] : uses) {
      if (link < 0 || size_t(link) >= capacities.size() || weight < 1) {
        throw py::value_error("a flow uses links of the net with weights of at least 1");
      }
      variable.uses.push_back({link, weight});
    }
  }
  simulate::Network network({capacities.begin(), capacities.end()}, variables);
  for (size_t flow = 0; flow < flows.size(); ++flow) network.enter(int32_t(flow));
  return network;
}

std::unique_ptr<simulate::Solver> make_solver(const std::string& name) {
  if (name == "reference") return simulate::make_reference_solver();
  if (name == "heap") return simulate::make_heap_solver();
  if (name == "dp") return simulate::make_dp_solver(simulate::Backend::cpp);
  if (name == "repair") {
    constexpr simulate::RepairLimits kNeverWhole{0, 1 << 20, 1024};
    return std::make_unique<simulate::Repair>(simulate::make_heap_solver(), kNeverWhole);
  }
  throw py::value_error("no solver '" + name + "': choose reference, heap, dp or repair");
}

void bind_network(py::module_& module) {
  module.def(
      "solve_max_min",
      [](const std::vector<int64_t>& capacities,
         const std::vector<std::vector<std::pair<int32_t, int64_t>>>& flows,
         const std::string& solver) {
        simulate::Network network = make_network(capacities, flows);
        std::vector<int32_t> changed;
        make_solver(solver)->solve(network, changed);
        std::vector<int64_t> rates;
        for (size_t flow = 0; flow < flows.size(); ++flow) {
          rates.push_back(network.rate(int32_t(flow)));
        }
        return rates;
      },
      py::arg("capacities"), py::arg("flows"), py::arg("solver"));
  module.def(
      "find_violation",
      [](const std::vector<int64_t>& capacities,
         const std::vector<std::vector<std::pair<int32_t, int64_t>>>& flows,
         const std::vector<int64_t>& rates) {
        if (rates.size() != flows.size()) throw py::value_error("one rate a flow");
        simulate::Network network = make_network(capacities, flows);
        for (size_t flow = 0; flow < rates.size(); ++flow) {
          network.set_rate(int32_t(flow), rates[flow]);
        }
        return simulate::find_violation(network);
      },
      py::arg("capacities"), py::arg("flows"), py::arg("rates"));
}

void bind_timeline(py::module_& module) {
  py::class_<CallSpan>(module, "CallSpan")
      .def_readonly("communicator", &CallSpan::communicator)
      .def_readonly("call", &CallSpan::call)
      .def_readonly("sequence", &CallSpan::sequence)
      .def_readonly("first_arrival_ps", &CallSpan::first_arrival_ps)
      .def_readonly("start_ps", &CallSpan::start_ps)
      .def_readonly("end_ps", &CallSpan::end_ps)
      .def_readonly("entry_ps", &CallSpan::entry_ps)
      .def_readonly("phase_end_ps", &CallSpan::phase_end_ps);
  py::class_<Timeline, std::shared_ptr<Timeline>>(
      module, "Timeline", "When every task and every call of a System starts and ends.")
      .def_property_readonly(
          "system",
          [](const Timeline& t) { return std::const_pointer_cast<fold::System>(t.system); },
          "What was simulated.")
      .def_readonly("makespan_ps", &Timeline::makespan_ps,
                    "From all engines idle to the end of the last task.")
      .def_property_readonly(
          "hash", [](const Timeline& t) { return hex16(t.hash); },
          "Of the ends of all tasks, in hexadecimal: the same on any number of threads and "
          "devices.")
      .def_property_readonly("first_task", &view_all<&Timeline::first_task>,
                             "Where the tasks of each rank begin in starts_ps and ends_ps.")
      .def_property_readonly(
          "starts_ps", &view_all<&Timeline::starts_ps>,
          "Of the tasks of all ranks, one rank after the other; empty without kept times.")
      .def_property_readonly("ends_ps", &view_all<&Timeline::ends_ps>, "As starts_ps.")
      .def("rank_starts_ps", &view_rank<&Timeline::starts_ps>, py::arg("rank"))
      .def("rank_ends_ps", &view_rank<&Timeline::ends_ps>, py::arg("rank"))
      .def_readonly("calls", &Timeline::calls,
                    "CallSpans of collectives and messages, by their end.")
      .def_readonly("solve_count", &Timeline::solve_count,
                    "How often bandwidth was shared out anew.")
      .def_readonly("event_count", &Timeline::event_count,
                    "Entries and ends of flows in the network.")
      .def_readonly("engine", &Timeline::engine, "What simulated it, and why.")
      .def("__repr__", [](const Timeline& t) {
        return "Timeline(makespan_ps=" + std::to_string(t.makespan_ps) + ", hash='" +
               hex16(t.hash) + "', engine='" + t.engine + "')";
      });
}

}  // namespace

void bind_simulate(py::module_& module) {
  bind_network(module);
  bind_timeline(module);
  py::class_<Progress, std::shared_ptr<Progress>>(module, "Progress")
      .def(py::init<>())
      .def_property_readonly("tasks_ended", [](const Progress& p) { return p.tasks_ended.load(); })
      .def_property_readonly("tasks_total", [](const Progress& p) { return p.tasks_total.load(); });
  py::enum_<simulate::Engine>(module, "Engine")
      .value("reference", simulate::Engine::reference)
      .value("bulk", simulate::Engine::bulk);
  py::enum_<simulate::Backend>(module, "Backend")
      .value("automatic", simulate::Backend::automatic)
      .value("cpp", simulate::Backend::cpp)
      .value("omp", simulate::Backend::omp)
      .value("tbb", simulate::Backend::tbb)
      .value("cuda", simulate::Backend::cuda);
  module.def(
      "simulate_step",
      [](const std::shared_ptr<fold::System>& system, simulate::Engine engine,
         simulate::Backend backend, bool certify, bool use_private, bool keep_times,
         const std::shared_ptr<Progress>& progress) {
        SimulateOptions options;
        options.engine = engine;
        options.backend = backend;
        options.certify = certify;
        options.use_private = use_private;
        options.keep_times = keep_times;
        options.progress = progress.get();
        return std::make_shared<Timeline>(simulate::simulate_step(system, options));
      },
      py::arg("system").none(false), py::arg("engine"), py::arg("backend"), py::arg("certify"),
      py::arg("use_private"), py::arg("keep_times"), py::arg("progress").none(true),
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "simulate_shard",
      [](const std::shared_ptr<fold::System>& system, int64_t first_rank, int64_t end_rank,
         const AllGather& all_gather, bool keep_times) {
        PythonExchange exchange(all_gather);
        SimulateOptions options;
        options.exchange = &exchange;
        options.first_rank = first_rank;
        options.end_rank = end_rank;
        options.keep_times = keep_times;
        const py::gil_scoped_release no_gil;
        return std::make_shared<Timeline>(simulate::simulate_step(system, options));
      },
      py::arg("system").none(false), py::arg("first_rank"), py::arg("end_rank"),
      py::arg("all_gather"), py::arg("keep_times"));
  module.def(
      "simulate_seeds",
      [](const std::shared_ptr<fold::System>& system, const std::vector<uint64_t>& seeds,
         int32_t spread) { return simulate::simulate_seeds(*system, seeds, spread, {}); },
      py::arg("system").none(false), py::arg("seeds"), py::arg("spread"),
      py::call_guard<py::gil_scoped_release>());
  module.def("with_jitter", &simulate::with_jitter, py::arg("system"), py::arg("seed"),
             py::arg("spread"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace trnsim::bind
