// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// disturb_step and its result. Nothing is computed here.
#include <pybind11/stl.h>

#include "bind/bind.h"
#include "project/disturbed.h"
#include "simulate/jitter.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using project::AtPercentile;
using project::Disturbance;
using project::Disturbances;
using project::Disturbed;
using project::Draw;
using project::Outcome;
using WorkloadPointer = std::shared_ptr<workload::Workload>;
using Smaller = std::tuple<std::vector<WorkloadPointer>, machine::Placement, int64_t, double>;

std::shared_ptr<Disturbances> run_disturb(
    const std::vector<WorkloadPointer>& workloads, const machine::Machine& machine,
    const machine::Placement& placement, int64_t step, bool fold, bool step_mode,
    const std::vector<std::string>& disturbances, uint64_t first_seed, int64_t seeds,
    int64_t spare_pods, const std::vector<Smaller>& smaller, int64_t exact_tasks,
    int64_t most_tasks, bool one_by_one, std::shared_ptr<project::Progress> progress) {
  project::DisturbOptions options;
  options.placement = placement;
  options.step = step;
  options.fold = fold;
  options.step_mode = step_mode;
  options.disturbances = disturbances;
  options.first_seed = first_seed;
  options.seeds = seeds;
  options.spare_pods = spare_pods;
  for (const auto& [of, place, measured, work] : smaller) {
    options.smaller.push_back({{of.begin(), of.end()}, place, measured, work});
  }
  options.exact_tasks = exact_tasks;
  options.most_tasks = most_tasks;
  options.one_by_one = one_by_one;
  options.progress = std::move(progress);
  return std::make_shared<Disturbances>(
      project::disturb_step({workloads.begin(), workloads.end()}, machine, options));
}

}  // namespace

void bind_disturbed(py::module_& module) {
  py::class_<Draw>(module, "Draw", "What one seed makes of a disturbance.")
      .def_readonly("slow_chips", &Draw::slow_chips)
      .def_readonly("faults", &Draw::faults)
      .def_readonly("sigma", &Draw::sigma)
      .def_readonly("pods_out", &Draw::pods_out)
      .def_readonly("what", &Draw::what);
  py::class_<Outcome>(module, "Outcome")
      .def_readonly("seed", &Outcome::seed)
      .def_readonly("low_ps", &Outcome::low_ps)
      .def_readonly("high_ps", &Outcome::high_ps)
      .def_readonly("stops", &Outcome::stops)
      .def_readonly("job", &Outcome::job)
      .def_readonly("drawn", &Outcome::drawn);
  py::class_<AtPercentile>(module, "AtPercentile")
      .def_readonly("percentile", &AtPercentile::percentile)
      .def_readonly("outcome", &AtPercentile::outcome)
      .def_readonly("breakdown", &AtPercentile::breakdown);
  py::class_<Disturbed>(module, "Disturbed")
      .def_readonly("text", &Disturbed::text)
      .def_readonly("outcomes", &Disturbed::outcomes)
      .def_readonly("at", &Disturbed::at)
      .def_readonly("stopped", &Disturbed::stopped)
      .def_readonly("affected", &Disturbed::affected)
      .def_readonly("simulated", &Disturbed::simulated);
  py::class_<Disturbances, std::shared_ptr<Disturbances>>(module, "Disturbances")
      .def_readonly("step_ps", &Disturbances::step_ps)
      .def_readonly("breakdown", &Disturbances::breakdown)
      .def_readonly("smaller_ps", &Disturbances::smaller_ps)
      .def_readonly("rows", &Disturbances::rows);
  module.def("disturb_step", run_disturb, py::arg("workloads"), py::arg("machine"),
             py::arg("placement"), py::arg("step"), py::arg("fold"), py::arg("step_mode"),
             py::arg("disturbances"), py::arg("first_seed"), py::arg("seeds"),
             py::arg("spare_pods"), py::arg("smaller"), py::arg("exact_tasks"),
             py::arg("most_tasks"), py::arg("one_by_one"), py::arg("progress").none(true),
             py::call_guard<py::gil_scoped_release>());
  module.def("normal_factor", &simulate::normal_factor, py::arg("seed"), py::arg("chip"),
             py::arg("sigma"));
  py::class_<Disturbance>(module, "Disturbance", "One part of a text, as it is written there.")
      .def_readonly("name", &Disturbance::name)
      .def_readonly("tier", &Disturbance::tier)
      .def_readonly("box", &Disturbance::box, "Switches in a row that die together.");
  module.def(
      "parse_disturbance",
      [](const std::string& text) { return project::parse_disturbance(text).parts; },
      py::arg("text"));
}

}  // namespace trnsim::bind
