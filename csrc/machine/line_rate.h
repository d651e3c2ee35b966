// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Messages that nothing is computed beside. In a step, a stack's factor of links above 1 stands for
// what the stack hides under the products that a message is for; alone, nothing hides it.
#pragma once

#include "machine/machine.h"

namespace trnsim::machine {

// The machine with no more of its links than their line rate: inside of a pod, a factor may make
// up for what the library's algorithms leave of them, and no more; between pods the library is
// taken to leave nothing.
Machine at_line_rate(const Machine& machine);

}  // namespace trnsim::machine
