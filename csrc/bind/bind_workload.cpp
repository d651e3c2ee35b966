// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "bind/bind.h"
#include "workload/workload.h"

namespace trnsim::bind {

void bind_workload(pybind11::module_& module) {
  pybind11::class_<workload::Workload, std::shared_ptr<workload::Workload>>(module, "Workload");
}

}  // namespace trnsim::bind
