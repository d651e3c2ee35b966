// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

#include <pybind11/pybind11.h>

namespace trnsim::bind {

void bind_collective(pybind11::module_& module);
void bind_disturbed(pybind11::module_& module);
void bind_errors(pybind11::module_& module);
void bind_fold(pybind11::module_& module);
void bind_goodput(pybind11::module_& module);
void bind_lower(pybind11::module_& module);
void bind_machine(pybind11::module_& module);
void bind_report(pybind11::module_& module);
void bind_simulate(pybind11::module_& module);
void bind_project(pybind11::module_& module);
void bind_traces(pybind11::module_& module);
void bind_workload(pybind11::module_& module);

}  // namespace trnsim::bind
