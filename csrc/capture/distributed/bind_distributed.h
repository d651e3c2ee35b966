// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace trnsim::capture::distributed {

// Submodules `distributed` (the backend, its store) and `recording` (what the Python hooks call).
void bind_distributed(pybind11::module_& module);

}  // namespace trnsim::capture::distributed
