// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

#include <string>
#include <vector>

namespace trnsim::capture {

// Gives every aten op its kernel on the device. Once, after torch's import.
void register_kernels();

// Puts our kernels in place of a library's own for these ops ("torchvision::nms").
void serve_ops(const std::vector<std::string>& names);

}  // namespace trnsim::capture
