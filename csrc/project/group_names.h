// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What the names of process groups say of their ranks, where scripts name them as is usual: all of
// these words stand here.
#pragma once

#include "workload/workload.h"

namespace trnsim::project {

// Its ranks work on the same data: tensor and sequence parallelism, stages of a pipeline. `all`
// words of the name say so, as of "mesh_tp"; else any, as of "dp_tp".
enum class Words { any, all };
bool is_named_for_sharing(const workload::Group& group, Words words);
// The same, and context parallelism, whose ranks have parts of the same samples.
bool is_named_for_parts(const workload::Group& group);
// Nothing but context parallelism: "cp", "mesh_cp".
bool is_named_for_context(const workload::Group& group);
// Each of its ranks has data of its own: dp, ddp, fsdp, data, replicate, shard, and no word of the
// others or of expert parallelism. `Words::all`: "dp" without replicate or shard.
bool is_named_for_data(const workload::Group& group, Words words);

}  // namespace trnsim::project
