// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Writes a longer step out of segments of a captured one: the micro-batches of a pipeline.
//
// A captured step holds the actions of a few micro-batches, one after another: a forward, a
// backward, a message. Each action is a segment. The composed Workload has, in place of all of
// them, the segments in the order that a schedule gives, each for a micro-batch:
//
//   captured   before  F0 B0  F1 B1  F2 B2  after
//   composed   before  F0 F1' F1'' B0 F1''' B1' ... B2  after
//
// A storage that a segment of micro-batch t makes, and that segments of the same t use and free, is
// another storage in each micro-batch that is written out; so are calls, events and autograd's
// sequence numbers. What was there before keeps its identity, and its versions count on. A storage
// of a micro-batch that segments of another one (or what comes after) use is the one that was made
// last, and when those free it, all of them are freed. Allocations are replayed where their
// segment is, so that the peak of memory is the schedule's.
#pragma once

#include <cstdint>
#include <vector>

#include "workload/workload.h"

namespace trnsim::workload {

// Records [begin, end) and allocation events [allocations_begin, allocations_end) of a captured
// action. Segments lie one after another without a gap.
struct Segment {
  int64_t begin = 0, allocations_begin = 0;
  int64_t end = 0, allocations_end = 0;
  int32_t micro_batch = 0;  // whose it is, of those that were captured
};

// One action of the schedule.
struct Placed {
  int32_t segment = 0;
  int32_t micro_batch = 0;  // of those that are written out
};

// Throws WorkloadError when segments leave gaps, or the schedule names one that is not there.
// O(records and uses of the result).
Workload compose(const Workload& captured, const std::vector<Segment>& segments,
                 const std::vector<Placed>& schedule);

// The same Workload as another rank's, `by` ranks further on: the peers of its messages and its
// groups move along, but for those that the other rank is in too.
Workload moved(const Workload& workload, int64_t by);

}  // namespace trnsim::workload
