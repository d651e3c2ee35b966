// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Roles: the Workloads of a job, their ranks, and the step that is measured in each of them.
#pragma once

#include <cstdint>
#include <vector>

#include "project/projection.h"
#include "project/variants.h"

namespace trnsim::project {

// A script that formed no process group was recorded as a world of one rank, and uses one however
// many chips were asked for. Throws ProjectError when Workloads are not of one job, or the
// placement holds another number of ranks.
Case make_case(const Workloads& workloads, const ProjectOptions& options);

// The same step in every role: whole step `asked` from 0, or with -1 the one that is measured of
// the first role. Throws WorkloadError, with the role, where one did not run so many.
void choose_steps(Case& of, int64_t asked);

// Roles that exchange messages hold a model together, stage by stage: the role numbers of each such
// set.
std::vector<std::vector<size_t>> pipelines_of(const Case& of);

// How many ranks, or whole pipelines of ranks, run alike.
int64_t replicas_of(const Case& of);

// Elements of the parameters of one model: the sum over the stages of a pipeline.
int64_t parameters_of(const Case& of);

}  // namespace trnsim::project
