// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Profile: ranks as torch.profiler's traces show them (Kineto's JSON in the Chrome trace format),
// so that tools for those read a simulated step: one file a rank, with what such tools ask for by
// name (categories, "External id", "stream", "device", "correlation", distributedInfo, pg_config).
//
// The names of categories and calls are Kineto's, whose device is CUDA's. A launch is a cpu_op
// around a cuda_runtime call; what it starts has its number as correlation and External id, as the
// kernels of a CUDA graph have. A queue of the rank is a stream. Copies between HBM and the chip's
// own memory, which Trainium's DMA queue makes, are gpu_memcpy, and a collective is a kernel named
// as NCCL names its own. Times are whole ns, rounded down at both ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "project/projection.h"

namespace trnsim::report {

// Bytes that the profiles of these ranks will take, within a factor of two.
int64_t estimate_profile_bytes(const project::Run& run, const std::vector<int64_t>& ranks);

// Writes FOLDER/rank<R>_trace.json for each rank and returns the bytes written. Throws ReportError
// when a file cannot be written or a rank is not of the run.
int64_t write_profiles(const project::Run& run, const std::vector<int64_t>& ranks,
                       const std::string& folder);

}  // namespace trnsim::report
