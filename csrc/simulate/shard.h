// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// One run on several processes: each has the lanes of its own ranks and the whole network.
//
// A call that needs no event (private, or without bytes) and whose members are all of one process
// is met and ended there, and no other process hears of it. For every other call the processes tell
// each other how many of its members arrived, the first and the last: from then on all of them do
// the same with it, so the network is the same everywhere and needs no message of its own. Between
// two exchanges a process runs as far as it can. The result is one process's, to the last digit,
// whatever the ranks are divided by; dividing between pods makes the fewest calls cross. With
// interference, where every flow's entry and end is an event on its members, it is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "simulate/timeline/lanes.h"

namespace trnsim::simulate {

// How the processes talk.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Everybody's `mine`, one after the other, the same everywhere. Throws SimulateError when one of
  // the processes has gone.
  virtual std::vector<int64_t> all_gather(const std::vector<int64_t>& mine) = 0;
};

// Lanes of the ranks from options.first_rank to options.end_rank, under their numbers in the job.
// `system` is the whole; releases of other ranks are passed over.
std::unique_ptr<Lanes> make_shard_lanes(const fold::System& system, Backend backend,
                                        const SimulateOptions& options);

// What a process tells of one call's members: how many arrived, the first and the last time.
struct ArrivalNews {
  int64_t instance = 0, members = 0, first_ps = 0, last_ps = 0;
};
// Everybody's news, in the same order everywhere.
std::vector<ArrivalNews> share_news(Exchange& exchange, const std::vector<ArrivalNews>& mine);

}  // namespace trnsim::simulate
