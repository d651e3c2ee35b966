// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Trace: a run as Perfetto shows it. A process is a rank and its chip; its threads are the host,
// the engines, the DMA queue and the collective streams; one more process holds the links that
// leave or enter those chips, as counters of load in percent of the link. The memory counter is the
// sum of live tensors of the captured rank of a role, at the start of the op that each allocation
// stands before.
//
// The load of a link is constant over a phase of a transfer: its bytes there over the phase's time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "project/projection.h"

namespace trnsim::report {

// Bytes that the trace of these ranks will take, within a factor of two: before anything is
// written.
int64_t estimate_trace_bytes(const project::Run& run, const std::vector<int64_t>& ranks);

// Returns the bytes written. Throws ReportError when the path cannot be written or a rank is not of
// the run.
int64_t write_trace(const project::Run& run, const std::vector<int64_t>& ranks,
                    const std::string& path);

// A step of a counter: `value` holds from time_ps on.
struct CounterStep {
  int64_t time_ps = 0;
  double value = 0;
};
// Live bytes of a role's captured rank over the step.
std::vector<CounterStep> memory_over_time(const project::Run& run, size_t role);
// Load of each link, 0 to 1, by link id; empty for links that carried nothing.
std::vector<std::vector<CounterStep>> link_load(const simulate::Timeline& timeline);

// The tasks of some ranks as columns, codes into the lists of names.
struct TaskColumns {
  std::vector<int32_t> rank, queue, kind, name, module;
  std::vector<int64_t> start_ps, end_ps;
  std::vector<std::string> queues, kinds, names, modules;
};
TaskColumns task_columns(const project::Run& run, const std::vector<int64_t>& ranks);

}  // namespace trnsim::report
