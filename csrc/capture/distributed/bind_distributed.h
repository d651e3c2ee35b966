// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace trnsim::capture::distributed {

// Submodule `distributed` (the backend, its store), and what the Python hooks ask of the recorder.
void bind_distributed(pybind11::module_& module);

}  // namespace trnsim::capture::distributed
