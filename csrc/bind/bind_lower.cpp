// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Program for Python: tasks as columns of numpy arrays, ops and calls as dictionaries.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bind/bind.h"
#include "lower/collectives.h"
#include "lower/cost.h"
#include "lower/print.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using namespace lower;

py::dict op_dict(const Op& op) {
  py::dict out;
  out["name"] = op.name;
  out["rule"] = op.rule;
  out["rule_class"] = rule_class_name(op.rule_class);
  out["records"] = op.records;
  out["module"] = op.module;
  out["phase"] = workload::phase_name(op.phase);
  out["dtype"] = op.dtype;
  out["model_flops"] = double(op.model_flops);
  out["model_flops_causal"] = double(op.model_flops_causal);
  out["read_bytes"] = op.read_bytes;
  out["write_bytes"] = op.write_bytes;
  out["bound"] = queue_kind_name(op.bound);
  out["bound_ps"] = op.bound_ps;
  out["floor_ps"] = op.floor_ps;
  return out;
}

py::list ops(const Program& program) {
  py::list out;
  for (const Op& op : program.ops) out.append(op_dict(op));
  return out;
}

py::dict call_dict(const CallTemplate& call) {
  py::list phases;
  for (const PhaseTemplate& phase : call.phases) {
    py::dict one;
    one["pattern"] = pattern_name(phase.pattern);
    one["bytes"] = phase.bytes;
    one["steps"] = phase.steps;
    one["step_ps"] = phase.step_ps;
    one["hop_ps"] = phase.hop_ps;
    one["fixed_ps"] = phase.fixed_ps;
    phases.append(one);
  }
  py::dict out;
  out["kind"] = workload::call_kind_name(call.kind);
  out["group"] = call.group;
  out["bytes"] = call.bytes;
  out["peer"] = call.peer;
  out["algorithm"] = call.algorithm;
  out["phases"] = phases;
  out["record"] = call.record;
  return out;
}

py::list calls(const Program& program) {
  py::list out;
  for (const CallTemplate& call : program.calls) out.append(call_dict(call));
  return out;
}

template <typename Field>
py::array_t<int64_t> column(const Program& program, Field field) {
  py::array_t<int64_t> out{py::ssize_t(program.tasks.size())};
  auto values = out.mutable_unchecked<1>();
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    values(py::ssize_t(i)) = int64_t(field(program.tasks[i]));
  }
  return out;
}

py::dict tasks(const Program& program) {
  py::dict out;
  out["duration_ps"] = column(program, [](const Task& t) { return t.duration_ps; });
  out["queue"] = column(program, [](const Task& t) { return t.queue; });
  out["op"] = column(program, [](const Task& t) { return t.op; });
  out["call"] = column(program, [](const Task& t) { return t.call; });
  py::list kinds;
  for (const Task& task : program.tasks) kinds.append(task_kind_name(task.kind));
  out["kind"] = kinds;
  return out;
}

py::list queues(const Program& program) {
  py::list out;
  for (const Queue& queue : program.queues) {
    out.append(py::make_tuple(queue_kind_name(queue.kind), queue.index));
  }
  return out;
}

py::list coverage_rows(const Program& program) {
  const std::vector<RuleShare> shares = coverage(program);
  int64_t total_ps = 0;
  for (const RuleShare& share : shares) total_ps += share.bound_ps;
  py::list out;
  for (const RuleShare& share : shares) {
    py::dict row;
    row["rule"] = share.rule;
    row["rule_class"] = rule_class_name(share.rule_class);
    row["op_count"] = share.op_count;
    row["share"] = total_ps ? double(share.bound_ps) / double(total_ps) : 0.0;
    out.append(row);
  }
  return out;
}

std::string text(const Program& program) {
  std::string out = "Program of " + program.role + ": " + std::to_string(program.ops.size()) +
                    " ops, " + std::to_string(program.tasks.size()) + " tasks\n";
  for (size_t i = 0; i < program.tasks.size(); ++i) out += print_task(program, i) + "\n";
  return out;
}

py::list rules() {
  py::list out;
  for (const auto& [op, rule] : registry().rules()) {
    py::dict row;
    row["op"] = op;
    row["family"] = rule.family;
    row["source"] = rule.source;
    out.append(row);
  }
  return out;
}

py::list guesses(const Program& program) {
  py::list out;
  for (const Guess& guess : program.guesses) {
    py::dict row;
    row["name"] = guess.name;
    row["value"] = guess.value;
    row["effect"] = guess.effect;
    out.append(row);
  }
  return out;
}

}  // namespace

void bind_lower(py::module_& module) {
  py::class_<Program, std::shared_ptr<Program>>(
      module, "Program", "One step of one role as engine tasks and transfers, for one machine.")
      .def_readonly("role", &Program::role)
      .def_readonly("peak_dtype", &Program::peak_dtype)
      .def_readonly("hidden_host_ops", &Program::hidden_host_ops)
      .def_property_readonly("ops", &ops)
      .def_property_readonly("calls", &calls)
      .def_property_readonly("tasks", &tasks)
      .def_property_readonly("queues", &queues)
      .def_property_readonly("guesses", &guesses)
      .def("coverage", &coverage_rows)
      .def("check", &check_program)
      .def("__len__", [](const Program& program) { return program.tasks.size(); })
      .def("__str__", &text);
  module.def(
      "lower_step",
      [](const workload::Workload& workload, const workload::Step& step,
         const machine::Machine& machine, const machine::Placement& placement,
         const std::string& stack, const std::string& algorithm, bool step_mode) {
        return std::make_shared<Program>(
            lower_step(workload, step, machine, placement, {stack, algorithm, step_mode}));
      },
      py::arg("workload"), py::arg("step"), py::arg("machine"), py::arg("placement"),
      py::arg("stack") = "", py::arg("algorithm") = "", py::arg("step_mode") = false,
      py::call_guard<py::gil_scoped_release>());
  module.def("cost_rules", &rules);
}

}  // namespace trnsim::bind
