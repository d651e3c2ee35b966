// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The order in which a step's records are issued: the script's, but for ops of a side stream that
// stand behind a collective.
//
// Engine queues are in order. An op that waits for a collective (DDP's hooks decompress a bucket as
// soon as it is reduced) would hold back everything that the main stream records after it, as no
// device with streams does. Such ops are put off until somebody needs what they make: a reader or
// writer of their tensors, a wait for an event behind them, a wait of the host, an optimizer, or
// the end. What they depend on has been issued by then, so every version of every tensor is seen as
// the script saw it.
//
// The main stream is the one with most ops. Cost: O(records + uses).
#pragma once

#include <cstdint>
#include <vector>

#include "workload/workload.h"

namespace trnsim::lower {

// Indices of the step's records, each once; those marked in `outside` are left out.
std::vector<int64_t> issue_order(const workload::Workload& workload, const workload::Step& step,
                                 const std::vector<uint8_t>& outside);

}  // namespace trnsim::lower
