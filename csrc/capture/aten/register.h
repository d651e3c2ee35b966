// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

namespace trnsim::capture {

// Gives every aten op its kernel on the device. Once, after torch's import.
void register_kernels();

}  // namespace trnsim::capture
