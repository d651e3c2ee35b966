// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <pybind11/stl.h>

#include "bind/bind.h"
#include "lower/print.h"
#include "project/sensitivity.h"
#include "report/pictures.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using project::FigureEffect;
using report::MemoryPicture;
using report::PodLinks;
using report::RoleRow;
using report::RuleRow;
using report::StepPicture;
using report::TierRow;

void bind_rows(py::module_& module) {
  py::class_<RoleRow>(module, "RoleRow", "What the captured rank of a role does over the step.")
      .def_readonly("name", &RoleRow::name)
      .def_readonly("rank", &RoleRow::rank)
      .def_readonly("rank_count", &RoleRow::rank_count)
      .def_readonly("has_messages", &RoleRow::has_messages)
      .def_property_readonly(
          "doing",
          [](const RoleRow& row) { return std::vector<int>(row.doing.begin(), row.doing.end()); },
          "By bin, an index into DOINGS: what most of the bin is.")
      .def_readonly("total_ps", &RoleRow::total_ps, "By DOINGS; sums to the step.");
  py::class_<TierRow>(module, "TierRow", "All links of a tier of the network.")
      .def_readonly("tier", &TierRow::tier)
      .def_readonly("link_count", &TierRow::link_count)
      .def_readonly("used_count", &TierRow::used_count)
      .def_readonly("rate_Bps", &TierRow::rate_Bps)
      .def_readonly("bytes", &TierRow::bytes, "Of all of them over the step.")
      .def_readonly("mean", &TierRow::mean, "Load over the step, mean over all of them.")
      .def_readonly("percentiles", &TierRow::percentiles,
                    "Of the links' loads over the step: 0, 5, ... 100 %.")
      .def_readonly("mean_over_time", &TierRow::mean_over_time)
      .def_readonly("most_over_time", &TierRow::most_over_time);
  py::class_<PodLinks>(module, "PodLinks", "Loads over the step of the links that leave a chip.")
      .def_readonly("pod", &PodLinks::pod)
      .def_readonly("first_chip", &PodLinks::first_chip)
      .def_readonly("chip_count", &PodLinks::chip_count)
      .def_readonly("directions", &PodLinks::directions)
      .def_readonly("loads", &PodLinks::loads, "[direction][chip]; -1: no such link.");
  py::class_<RuleRow>(module, "RuleRow", "Ops of a cost rule on the critical rank.")
      .def_readonly("rule", &RuleRow::rule)
      .def_property_readonly("rule_class",
                             [](const RuleRow& r) { return lower::rule_class_name(r.rule_class); })
      .def_readonly("op_count", &RuleRow::op_count)
      .def_readonly("time_ps", &RuleRow::time_ps);
}

}  // namespace

void bind_report(py::module_& module) {
  bind_rows(module);
  py::class_<StepPicture>(module, "StepPicture", "A step in equal bins of time.")
      .def_property_readonly("engines",
                             [](const StepPicture& picture) {
                               std::map<std::string, std::vector<double>> engines;
                               for (const auto& row : picture.engines) {
                                 engines[row.engine] = row.busy;
                               }
                               return engines;
                             })
      .def_readonly("doing", &StepPicture::doing, "[DOINGS][bin]: shares, mean over ranks.")
      .def_readonly("roles", &StepPicture::roles)
      .def_readonly("tiers", &StepPicture::tiers)
      .def_readonly("pod", &StepPicture::pod)
      .def_readonly("rules", &StepPicture::rules);
  py::class_<MemoryPicture>(module, "MemoryPicture", "Memory of a role's rank over the step.")
      .def_readonly("kinds", &MemoryPicture::kinds)
      .def_readonly("by_kind", &MemoryPicture::by_kind, "[kind][bin]")
      .def_readonly("peak_bytes", &MemoryPicture::peak_bytes)
      .def_readonly("peak_ps", &MemoryPicture::peak_ps)
      .def_readonly("peak_by_kind", &MemoryPicture::peak_by_kind);
  py::class_<FigureEffect>(module, "FigureEffect", "The step with one figure at its bounds.")
      .def_property_readonly("key", [](const FigureEffect& e) { return e.figure.key; })
      .def_property_readonly("input", [](const FigureEffect& e) { return e.figure.input; })
      .def_property_readonly("percent", [](const FigureEffect& e) { return e.figure.percent; })
      .def_readonly("faster_ps", &FigureEffect::faster_ps)
      .def_readonly("slower_ps", &FigureEffect::slower_ps);
  py::list doings;
  for (int d = 0; d < report::kDoings; ++d) doings.append(report::doing_name(report::Doing(d)));
  module.attr("DOINGS") = py::tuple(doings);
  module.def("picture_step", &report::picture_step, py::arg("run"), py::arg("bins"),
             py::call_guard<py::gil_scoped_release>());
  module.def("picture_memory", &report::picture_memory, py::arg("run"), py::arg("role"),
             py::arg("bins"), py::call_guard<py::gil_scoped_release>());
  module.def("figure_effects", &project::figure_effects, py::arg("run"),
             py::arg("progress").none(true), py::call_guard<py::gil_scoped_release>());
}

}  // namespace trnsim::bind
