// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Messages that nothing is computed beside. In a step, stack.link_factor above 1 stands for what
// the stack hides under the products that a message is for; alone, nothing hides it.
#pragma once

#include "machine/machine.h"

namespace trnsim::machine {

// The machine with no more of the links inside of a pod than their line rate: a factor may make up
// for what the library's algorithms leave of them, and no more.
Machine at_line_rate(const Machine& machine);

}  // namespace trnsim::machine
