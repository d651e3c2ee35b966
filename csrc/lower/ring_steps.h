// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Collectives in step mode: a call without a root whose every phase goes between fixed neighbours
// becomes messages between them, for validation and for stragglers. All else stays as it is.
//
// A phase of s steps sends its bytes to the next member in s parts, the first ones larger by a byte
// where they do not divide; ring_both and axis_ring send as much to the member before. Send k waits
// for send and receive k-1. The first message carries the phase's latency but for the steps, each
// its own. The first messages of a phase wait for all that its member sent and received in the
// phase before, those of the first phase for what the call waited for and for the call before it on
// its queue: a member begins when it and its neighbours are there. What waited for the call, the
// next one on its queue too, waits for this member's last messages alone.
//
// Messages have tags that no script has, and queues of their own, so they never meet a script's or
// stand behind one.
//
// A role's peers are told by their distance in a group, so who sends to whom must be the same seen
// from every rank. A phase that does not send round its whole group (rings on an axis, in a pod,
// across pods, pairs) gets a new group: the captured rank's part, if all other parts are that one
// moved along.
#pragma once

#include "lower/program.h"

namespace trnsim::lower {

// The tag of what goes to the next member; of what goes to the one before it is one more.
inline constexpr int32_t kStepTag = INT32_MIN;

// How many calls became messages, and which stay, is among the guesses.
Program in_steps(const Program& program, const machine::Machine& machine,
                 const machine::Placement& placement);

}  // namespace trnsim::lower
