// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <pybind11/stl.h>

#include <array>

#include "bind/bind.h"
#include "project/goodput.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using project::GoodputEstimate;
using project::Ranged;
using Triple = std::array<double, 3>;  // value, low, high

Ranged ranged(const Triple& of) { return {of[0], of[1], of[2]}; }
Triple triple(const Ranged& of) { return {of.value, of.low, of.high}; }

}  // namespace

void bind_goodput(py::module_& module) {
  using project::TimeShares;
  py::class_<TimeShares>(module, "TimeShares")
      .def_readonly("kept", &TimeShares::kept)
      .def_readonly("checkpoints", &TimeShares::checkpoints)
      .def_readonly("redone", &TimeShares::redone)
      .def_readonly("restarts", &TimeShares::restarts)
      .def_readonly("waiting", &TimeShares::waiting);
  py::class_<project::Choice>(module, "CheckpointChoice")
      .def_readonly("name", &project::Choice::name)
      .def_readonly("work_s", &project::Choice::work_s)
      .def_readonly("every", &project::Choice::every)
      .def_readonly("goodput", &project::Choice::goodput);
  py::class_<project::Moved>(module, "MovedInput")
      .def_readonly("input", &project::Moved::input)
      .def_readonly("goodput_low", &project::Moved::goodput_low)
      .def_readonly("goodput_high", &project::Moved::goodput_high)
      .def_readonly("wall_low_s", &project::Moved::wall_low_s)
      .def_readonly("wall_high_s", &project::Moved::wall_high_s);
  py::class_<GoodputEstimate>(module, "GoodputEstimate")
      .def_readonly("every", &GoodputEstimate::every)
      .def_readonly("shares", &GoodputEstimate::shares)
      .def_property_readonly("goodput", [](const GoodputEstimate& e) { return triple(e.goodput); })
      .def_property_readonly("wall_s", [](const GoodputEstimate& e) { return triple(e.wall_s); })
      .def_property_readonly("drawn_s",
                             [](const GoodputEstimate& e) {
                               return Triple{e.drawn_p5_s, e.drawn_p50_s, e.drawn_p95_s};
                             })
      .def_readonly("drawn_mean_s", &GoodputEstimate::drawn_mean_s)
      .def_readonly("standard_error_s", &GoodputEstimate::standard_error_s)
      .def_readonly("failures", &GoodputEstimate::failures)
      .def_readonly("choices", &GoodputEstimate::choices)
      .def_readonly("moved", &GoodputEstimate::moved);
  module.def(
      "estimate_goodput",
      [](const Triple& step_s, const Triple& failures_per_s, const Triple& restart_s,
         const Triple& blocking_s, const Triple& upload_s, int64_t every, int64_t steps,
         const std::optional<std::tuple<int64_t, double, double>>& spares, int64_t runs,
         uint64_t seed) {
        project::GoodputRequest request{ranged(step_s),
                                        ranged(failures_per_s),
                                        ranged(restart_s),
                                        ranged(blocking_s),
                                        ranged(upload_s),
                                        every,
                                        steps,
                                        std::nullopt,
                                        runs,
                                        seed};
        if (spares) {
          const auto& [count, repair_s, share] = *spares;
          request.spares = project::Spares{count, repair_s, share};
        }
        return project::estimate_goodput(request);
      },
      py::arg("step_s"), py::arg("failures_per_s"), py::arg("restart_s"), py::arg("blocking_s"),
      py::arg("upload_s"), py::arg("every"), py::arg("steps"), py::arg("spares"), py::arg("runs"),
      py::arg("seed"), py::call_guard<py::gil_scoped_release>(),
      "Inputs as (value, low, high); spares as (count, repair_s, share of failures that take "
      "one).");
}

}  // namespace trnsim::bind
