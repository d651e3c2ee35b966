// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// project_step, its result and the trace writer. Nothing is computed here.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/hash.h"
#include "bind/bind.h"
#include "bind/python_exchange.h"
#include "project/projection.h"
#include "project/variants.h"
#include "report/profile.h"
#include "report/trace.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using project::Advice;
using project::Breakdown;
using project::ModuleShare;
using project::OpShare;
using project::Progress;
using project::Projection;
using project::ProjectOptions;
using project::Run;

void bind_parts(py::module_& module) {
  py::class_<Progress, std::shared_ptr<Progress>>(module, "ProjectProgress")
      .def(py::init<>())
      .def_property_readonly("done", [](const Progress& p) { return p.done.load(); })
      .def_property_readonly("total", [](const Progress& p) { return p.total.load(); })
      .def_property_readonly("tasks_ended",
                             [](const Progress& p) { return p.tasks.tasks_ended.load(); })
      .def_property_readonly("tasks_total",
                             [](const Progress& p) { return p.tasks.tasks_total.load(); });
  py::class_<Breakdown>(module, "Breakdown")
      .def_readonly("compute_ps", &Breakdown::compute_ps)
      .def_readonly("exposed_communication_ps", &Breakdown::exposed_communication_ps)
      .def_readonly("bubble_ps", &Breakdown::bubble_ps)
      .def_readonly("host_ps", &Breakdown::host_ps)
      .def_readonly("stall_ps", &Breakdown::stall_ps);
  py::class_<OpShare>(module, "OpShare")
      .def_readonly("name", &OpShare::name)
      .def_readonly("module", &OpShare::module)
      .def_readonly("phase", &OpShare::phase)
      .def_readonly("bound", &OpShare::bound)
      .def_readonly("rule_class", &OpShare::rule_class)
      .def_readonly("count", &OpShare::count)
      .def_readonly("time_ps", &OpShare::time_ps)
      .def_readonly("read_bytes", &OpShare::read_bytes)
      .def_readonly("write_bytes", &OpShare::write_bytes)
      .def_readonly("flops", &OpShare::flops)
      .def_readonly("roofline_fraction", &OpShare::roofline_fraction);
  py::class_<ModuleShare>(module, "ModuleShare")
      .def_readonly("module", &ModuleShare::module)
      .def_readonly("count", &ModuleShare::count)
      .def_readonly("time_ps", &ModuleShare::time_ps)
      .def_readonly("read_bytes", &ModuleShare::read_bytes)
      .def_readonly("write_bytes", &ModuleShare::write_bytes)
      .def_readonly("flops", &ModuleShare::flops);
  py::class_<Advice>(module, "Advice")
      .def_readonly("relieves", &Advice::relieves)
      .def_readonly("change", &Advice::change)
      .def_readonly("step_ps", &Advice::step_ps)
      .def_readonly("gain", &Advice::gain);
  py::class_<Projection::Fallback>(module, "Fallback")
      .def_readonly("name", &Projection::Fallback::name)
      .def_readonly("count", &Projection::Fallback::count)
      .def_readonly("share", &Projection::Fallback::share);
}

std::vector<std::array<std::string, 3>> guesses_of(const Projection& projection) {
  std::vector<std::array<std::string, 3>> rows;
  for (const lower::Guess& g : projection.guesses) rows.push_back({g.name, g.value, g.effect});
  return rows;
}

// (kind of figures, step_ps with all of them at their better bounds, at their worse).
std::vector<std::tuple<std::string, int64_t, int64_t>> inputs_of(const Projection& projection) {
  std::vector<std::tuple<std::string, int64_t, int64_t>> inputs;
  for (const auto& at : projection.inputs) {
    inputs.emplace_back(at.input, at.faster_ps, at.slower_ps);
  }
  return inputs;
}

// Of a step: what it does a second, what it costs, and what it draws.
void bind_costs(py::class_<Projection>& type) {
  type.def_readonly("tokens_per_s", &Projection::tokens_per_s)
      .def_readonly("samples_per_s", &Projection::samples_per_s)
      .def_readonly("cost_usd_per_step", &Projection::cost_usd_per_step)
      .def_readonly("energy_j_per_step", &Projection::energy_j_per_step)
      .def_readonly("energy_network_j_per_step", &Projection::energy_network_j_per_step)
      .def_readonly("energy_site_j_per_step", &Projection::energy_site_j_per_step)
      .def_readonly("carbon_kg_per_step", &Projection::carbon_kg_per_step)
      .def_readonly("price_usd_per_chip_hour", &Projection::price_usd_per_chip_hour)
      .def_readonly("instance_chips", &Projection::instance_chips);
}

void bind_projection(py::module_& module) {
  py::class_<project::RoleFigures>(module, "RoleFigures", "Ranks that run the same thing.")
      .def_readonly("name", &project::RoleFigures::name)
      .def_readonly("ranks", &project::RoleFigures::ranks)
      .def_readonly("rank_count", &project::RoleFigures::rank_count)
      .def_readonly("memory_peak_bytes", &project::RoleFigures::memory_peak_bytes);
  py::class_<Projection> type(module, "Projection");
  bind_costs(type);
  type.def_readonly("machine", &Projection::machine)
      .def_readonly("mode", &Projection::mode)
      .def_readonly("roles", &Projection::roles)
      .def_readonly("memory_role", &Projection::memory_role)
      .def_readonly("chips", &Projection::chips)
      .def_readonly("chips_used", &Projection::chips_used)
      .def_readonly("ranks", &Projection::ranks)
      .def_readonly("ranks_per_chip", &Projection::ranks_per_chip)
      .def_readonly("step_ps", &Projection::step_ps)
      .def_readonly("interval_low_ps", &Projection::interval_low_ps)
      .def_readonly("interval_high_ps", &Projection::interval_high_ps)
      .def_readonly("interval_basis", &Projection::interval_basis)
      .def_property_readonly("inputs", inputs_of,
                             "(kind of figures, step_ps at their better bounds, at their worse).")
      .def_readonly("own_error", &Projection::own_error)
      .def_readonly("breakdown", &Projection::breakdown)
      .def_readonly("engine_busy", &Projection::engine_busy)
      .def_readonly("exposed_by_group_ps", &Projection::exposed_by_group_ps)
      .def_readonly("mfu", &Projection::mfu)
      .def_readonly("mfu_causal", &Projection::mfu_causal)
      .def_readonly("peak_dtype", &Projection::peak_dtype)
      .def_readonly("peak_flops", &Projection::peak_flops)
      .def_readonly("model_flops", &Projection::model_flops)
      .def_readonly("parameters", &Projection::parameters)
      .def_readonly("memory_peak_bytes", &Projection::memory_peak_bytes)
      .def_readonly("memory_capacity_bytes", &Projection::memory_capacity_bytes)
      .def_readonly("memory_reserved_bytes", &Projection::memory_reserved_bytes)
      .def_readonly("memory_by_kind", &Projection::memory_by_kind)
      .def_readonly("memory_is_upper_bound", &Projection::memory_is_upper_bound)
      .def_readonly("fits", &Projection::fits)
      .def_readonly("bottleneck_kind", &Projection::bottleneck_kind)
      .def_readonly("bottleneck", &Projection::bottleneck)
      .def_readonly("bottleneck_share", &Projection::bottleneck_share)
      .def_readonly("advice", &Projection::advice)
      .def_readonly("top_ops", &Projection::top_ops)
      .def_readonly("top_modules", &Projection::top_modules)
      .def_readonly("outside_step_ps", &Projection::outside_step_ps)
      .def_readonly("fallback_ops", &Projection::fallback_ops)
      .def_property_readonly("guesses", guesses_of, "(name, value, effect) of each.")
      .def_readonly("overrides", &Projection::overrides)
      .def_readonly("idle_overrides", &Projection::idle_overrides)
      .def_readonly("faults", &Projection::faults)
      .def_property_readonly("healthy_step_ps",
                             [](const Projection& p) {
                               return p.healthy ? std::optional(p.healthy->step_ps) : std::nullopt;
                             })
      .def_property_readonly("healthy_breakdown",
                             [](const Projection& p) {
                               return p.healthy ? std::optional(p.healthy->breakdown)
                                                : std::nullopt;
                             })
      .def_property_readonly("timeline_hash",
                             [](const Projection& p) { return hex16(p.timeline_hash); })
      .def_property_readonly("workload_hash",
                             [](const Projection& p) { return hex16(p.workload_hash); })
      .def_readonly("seed", &Projection::seed);
}

using WorkloadPointer = std::shared_ptr<workload::Workload>;

std::shared_ptr<Run> run_project(const std::vector<WorkloadPointer>& workloads,
                                 const machine::Machine& machine,
                                 const machine::Placement& placement, int64_t step,
                                 int64_t tokens_per_step, int64_t samples_per_step, int64_t top,
                                 bool advise, bool interval, bool fold, bool step_mode,
                                 const std::vector<std::string>& slow_chips,
                                 const std::vector<std::string>& faults,
                                 std::shared_ptr<Progress> progress, const AllGather& all_gather,
                                 int64_t process, int64_t processes) {
  ProjectOptions options;
  options.placement = placement;
  options.step = step;
  options.tokens_per_step = tokens_per_step;
  options.samples_per_step = samples_per_step;
  options.top = top;
  options.advise = advise;
  options.interval = interval;
  options.fold = fold;
  options.step_mode = step_mode;
  options.scenario = project::parse_scenario(slow_chips, faults);
  options.progress = std::move(progress);
  if (all_gather) {
    options.exchange = std::make_shared<PythonExchange>(all_gather);
    options.process = process;
    options.processes = processes;
  }
  return std::make_shared<Run>(
      project::project_step({workloads.begin(), workloads.end()}, machine, options));
}

py::dict task_columns(const Run& run, const std::vector<int64_t>& ranks) {
  const report::TaskColumns columns = report::task_columns(run, ranks);
  const auto array = [](const auto& values) {
    return py::array_t<typename std::decay_t<decltype(values)>::value_type>(
        py::ssize_t(values.size()), values.data());
  };
  py::dict out;
  out["rank"] = array(columns.rank);
  out["queue"] = array(columns.queue);
  out["kind"] = array(columns.kind);
  out["name"] = array(columns.name);
  out["module"] = array(columns.module);
  out["start_ps"] = array(columns.start_ps);
  out["end_ps"] = array(columns.end_ps);
  out["queues"] = columns.queues;
  out["kinds"] = columns.kinds;
  out["names"] = columns.names;
  out["modules"] = columns.modules;
  return out;
}

void bind_run(py::module_& module) {
  py::class_<Run, std::shared_ptr<Run>>(module, "Run")
      .def_readonly("projection", &Run::projection)
      .def_readonly("machine", &Run::machine)
      .def_property_readonly(
          "workloads",
          [](const Run& run) {
            std::vector<WorkloadPointer> workloads;
            for (const auto& workload : run.workloads) {
              workloads.push_back(std::const_pointer_cast<workload::Workload>(workload));
            }
            return workloads;
          })
      .def_property_readonly(
          "programs",
          [](const Run& run) {
            std::vector<std::shared_ptr<lower::Program>> programs;
            for (const auto& role : run.roles) {
              programs.push_back(std::const_pointer_cast<lower::Program>(role.program));
            }
            return programs;
          },
          "One a role, in the order of the Workloads.")
      .def_property_readonly(
          "timeline",
          [](const Run& run) { return std::const_pointer_cast<simulate::Timeline>(run.timeline); })
      .def_readonly("cohorts", &Run::cohorts)
      .def("task_columns", task_columns, py::arg("ranks"));
}

void bind_files(py::module_& module) {
  module.def("estimate_trace_bytes", &report::estimate_trace_bytes, py::arg("run"),
             py::arg("ranks"));
  module.def("estimate_profile_bytes", &report::estimate_profile_bytes, py::arg("run"),
             py::arg("ranks"));
  module.def("write_profiles", &report::write_profiles, py::arg("run"), py::arg("ranks"),
             py::arg("folder"), py::call_guard<py::gil_scoped_release>());
  module.def("write_trace", &report::write_trace, py::arg("run"), py::arg("ranks"), py::arg("path"),
             py::call_guard<py::gil_scoped_release>());
}

}  // namespace

void bind_project(py::module_& module) {
  bind_parts(module);
  bind_projection(module);
  bind_run(module);
  bind_files(module);
  module.def("project_step", run_project, py::arg("workloads"), py::arg("machine"),
             py::arg("placement"), py::arg("step"), py::arg("tokens_per_step"),
             py::arg("samples_per_step"), py::arg("top"), py::arg("advise"), py::arg("interval"),
             py::arg("fold"), py::arg("step_mode"), py::arg("slow_chips"), py::arg("faults"),
             py::arg("progress"), py::arg("all_gather"), py::arg("process"), py::arg("processes"),
             py::call_guard<py::gil_scoped_release>());
  module.def(
      "step_times",
      [](const std::vector<WorkloadPointer>& workloads,
         const std::vector<machine::Machine>& machines, const machine::Placement& placement) {
        ProjectOptions options;
        options.placement = placement;
        return project::step_times({workloads.begin(), workloads.end()}, machines, options);
      },
      py::arg("workloads"), py::arg("machines"), py::arg("placement"),
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "check_scenario",
      [](const std::vector<std::string>& slow_chips, const std::vector<std::string>& faults,
         const machine::Machine& machine, const machine::Placement& placement) {
        project::check_scenario(project::parse_scenario(slow_chips, faults), machine,
                                placement.chips);
      },
      py::arg("slow_chips"), py::arg("faults"), py::arg("machine"), py::arg("placement"));
  module.def("input_group_of", &project::input_group_of, py::arg("key"));
  module.def(
      "input_groups",
      [](const machine::Machine& machine) {
        std::map<std::string, std::pair<machine::Machine, machine::Machine>> bounds;
        for (project::InputGroup& group : project::input_groups(machine)) {
          bounds.emplace(group.name, std::pair(std::move(group.faster), std::move(group.slower)));
        }
        return bounds;
      },
      py::arg("machine"));
}

}  // namespace trnsim::bind
