// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Python's view of streams, generators and the clock; trnsim/device builds torch.trn on it.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace trnsim::capture::runtime {

void bind_runtime(pybind11::module_& module);
void bind_memory_history(pybind11::module_& module);  // a part of bind_runtime

}  // namespace trnsim::capture::runtime
