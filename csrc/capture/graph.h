// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A captured graph of work (a CUDA graph): a range of the recording, which replays repeat.
//
// The capture's own run stays in the recording. A replay uses the memory of the capture: what is
// still alive keeps its storage and is written again, what was freed during the capture is
// allocated and freed again. No values are computed: what a replay writes is unknown afterwards.
#pragma once

#include <cstdint>

namespace trnsim::capture {

// A place in a recording; recording 0 = none was running.
struct GraphMark {
  int32_t recording = 0;
  int64_t records = 0, allocations = 0;
};

// Between the two, records belong to a region kCapturedGraph.
GraphMark begin_graph();
GraphMark end_graph();
void replay_graph(const GraphMark& begin, const GraphMark& end);

}  // namespace trnsim::capture
