// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which steps are alike. Of several ranks, they are those with the same number among the whole
// ones; of one rank, a step may hold what later ones do not, which markers of the kind `setup` say.
#pragma once

#include <cstdint>
#include <vector>

#include "workload/workload.h"

namespace trnsim::workload {

// Values of a setup marker. Between the two of the inference, the stages of a pipeline run forward
// and backward once, only to know the shapes of their tensors: that is outside of the step.
inline constexpr int64_t kSetupOfBuckets = 0;  // DDP lays its buckets anew
inline constexpr int64_t kInferenceBegins = 1, kInferenceEnds = 2;

int64_t count_whole(const std::vector<Step>& steps);

// The number of a step of `steps` among the whole ones; -1 when it is none of them.
int64_t index_among_whole(const std::vector<Step>& steps, const Step& step);

}  // namespace trnsim::workload
