// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What the writers of traces ask of a run: the Program of a rank, where its tasks stand in the
// Timeline, and what tasks and queues are called.
#pragma once

#include <cstdint>
#include <string>

#include "fold/groups.h"
#include "project/projection.h"

namespace trnsim::report {

// Where the tasks of a rank stand in the times of its class.
int64_t first_task(const project::Run& run, int64_t rank);
size_t role_of(const project::Run& run, int64_t rank);
const lower::Program& program_of(const project::Run& run, int64_t rank);
const workload::Workload& workload_of(const project::Run& run, int64_t rank);

// Of all ranks.
fold::JobGroups groups_of(const project::Run& run);

const char* task_kind_name(lower::TaskKind kind);
std::string queue_name(const lower::Queue& queue);
// "aten::mm + aten::gelu", "load aten::mm", "all_reduce (ring)".
std::string slice_name(const lower::Program& program, const lower::Task& task);

// Throws ReportError where a rank is not one of the run's.
void check_rank(const project::Run& run, int64_t rank);

}  // namespace trnsim::report
