// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Names the op when native code reads device memory, which nothing backs: one line on stderr, then
// the signal's usual end. A fault outside of the reservation goes to whoever handled it before.
#pragma once

namespace trnsim::capture {

void install_fault_handler();

}  // namespace trnsim::capture
