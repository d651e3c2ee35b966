// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// trnsim._core: everything but capture, without torch. One bind_<room>.cpp a room, no logic.
#include "bind/bind.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The simulator's core: machines, workloads, lowering, simulation, projection.";
  trnsim::bind::bind_errors(module);
  trnsim::bind::bind_machine(module);
  trnsim::bind::bind_workload(module);
  trnsim::bind::bind_lower(module);
  trnsim::bind::bind_fold(module);
  trnsim::bind::bind_simulate(module);
  trnsim::bind::bind_project(module);
  trnsim::bind::bind_disturbed(module);
  trnsim::bind::bind_report(module);
  trnsim::bind::bind_traces(module);
  trnsim::bind::bind_collective(module);
  trnsim::bind::bind_goodput(module);
}
