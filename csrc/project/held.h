// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Held: memory that the script has freed while a copy to the host still reads it.
//
// PyTorch's allocator keeps a block that was given to another stream (Tensor.record_stream) until
// that stream has passed what it held when the block was freed; it looks at each allocation. The
// trace of a Workload has frees where the script makes them. Here those of blocks that a copy to
// the host on such a stream reads move to the first allocation that is asked for after the copy's
// end: by the host, where it launches kernels one by one, else when the op begins for which it is.
#pragma once

#include "lower/program.h"
#include "simulate/timeline.h"
#include "workload/workload.h"

namespace trnsim::project {

// `first_task`: of the Timeline, of a rank of the Workload's role. Nothing changes in a Workload
// without such blocks. O(records + tasks + allocations).
void hold_for_copies(workload::Workload& workload, const lower::Program& program,
                     const simulate::Timeline& timeline, int64_t first_task);

}  // namespace trnsim::project
