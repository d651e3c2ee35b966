// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Bulk lanes: every lane of the job advanced at once, to its next call, on Thrust's CPP, OMP,
// TBB or CUDA system. Equal to reference.h to the last picosecond; bulk_functors.h holds the
// functor.
#pragma once

#include <memory>
#include <string>

#include "simulate/timeline/lanes.h"

namespace trnsim::simulate {

// GPUs that CUDA sees; 0 without a driver and in builds without CUDA.
int cuda_device_count();

// What options.backend becomes here, for a run of so many ranks and tasks in all. Never automatic;
// cuda becomes one of a CPU's where there is no GPU. Appends the reason to `why` where there is
// one. Throws SimulateError when TRNSIM_DEVICE is neither cuda nor cpu.
Backend choose_backend(Backend asked, int64_t ranks, int64_t tasks, std::string& why);

// backend: not automatic.
std::unique_ptr<Lanes> make_bulk_lanes(const fold::System& system, Backend backend,
                                       bool keep_times);

// Whether this build has TBB.
bool has_tbb();

// One a backend; the last needs a GPU.
std::unique_ptr<Lanes> make_cpp_lanes(const fold::System& system, bool keep_times);
std::unique_ptr<Lanes> make_omp_lanes(const fold::System& system, bool keep_times);
std::unique_ptr<Lanes> make_tbb_lanes(const fold::System& system, bool keep_times);
std::unique_ptr<Lanes> make_cuda_lanes(const fold::System& system, bool keep_times);

}  // namespace trnsim::simulate
