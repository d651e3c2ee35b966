// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace trnsim::capture {

void bind_capture(pybind11::module_& module);
void bind_ops(pybind11::module_& module);

}  // namespace trnsim::capture
