// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "workload/whole_steps.h"

#include <algorithm>

namespace trnsim::workload {

int64_t count_whole(const std::vector<Step>& steps) {
  return std::count_if(steps.begin(), steps.end(), [](const Step& step) { return step.whole; });
}

int64_t index_among_whole(const std::vector<Step>& steps, const Step& step) {
  int64_t index = 0;
  for (const Step& each : steps) {
    if (each.begin == step.begin) return each.whole ? index : -1;
    index += each.whole;
  }
  return -1;
}

}  // namespace trnsim::workload
