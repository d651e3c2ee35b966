// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Who waits for whom when nothing can happen and tasks are left.
#pragma once

#include <string>

#include "simulate/calls.h"
#include "simulate/network/transfers.h"
#include "simulate/timeline/lanes.h"

namespace trnsim::simulate {

// One line: from the first rank's first blocked queue along the wait-for relation until it names a
// call that is never made or closes a cycle. The same text for both engines.
std::string explain_deadlock(const fold::System& system, const CallTable& calls,
                             const Lanes& lanes);
// One line: the call whose transfer cannot move, the link, and since when.
std::string explain_stall(const fold::System& system, const Transfers::Stall& stall);

}  // namespace trnsim::simulate
