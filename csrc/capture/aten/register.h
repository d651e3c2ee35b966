// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

#include <string>

namespace trnsim::capture {

// Gives every aten op its kernel on the device. Once, after torch's import.
void register_kernels();

// Makes an op of another library ("mylib::op", or "mylib::op.overload") one record, also where it
// is composed of others. A kernel that it has for the device stays unless `replace`. Whether ours
// is in place now; throws a CaptureError where there is no such op.
bool serve_op(const std::string& name, bool replace);

}  // namespace trnsim::capture
