// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Bulk lanes of a System with interference: engines that change their speed when flows come and go.
// Equal to reference.h to the last picosecond; timed_functors.h holds the functor.
//
// A lane runs ahead of network time at the speed that it has, to the first call that the network
// has not heard of. What it finds there is provisional, and so is the time of that call: the
// network hears of it at that time, no earlier. When the speed changes, whatever ends later is
// taken back and found again. So network time stops at calls and flows, not at every task.
// Every start and end is kept in memory, whether it is asked for or not: 16 bytes a task and rank.
#pragma once

#include <memory>

#include "simulate/timeline/bulk.h"

namespace trnsim::simulate {

// As make_bulk_lanes.
std::unique_ptr<Lanes> make_timed_lanes(const fold::System& system, Backend backend,
                                        bool keep_times);

// One a backend; the last needs a GPU.
std::unique_ptr<Lanes> make_timed_cpp_lanes(const fold::System& system, bool keep_times);
std::unique_ptr<Lanes> make_timed_omp_lanes(const fold::System& system, bool keep_times);
std::unique_ptr<Lanes> make_timed_tbb_lanes(const fold::System& system, bool keep_times);
std::unique_ptr<Lanes> make_timed_cuda_lanes(const fold::System& system, bool keep_times);

}  // namespace trnsim::simulate
