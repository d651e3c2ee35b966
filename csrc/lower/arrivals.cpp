// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "lower/emit.h"

namespace trnsim::lower {

size_t batch_size(const Emission& emission, size_t index) {
  const auto& units = emission.plan->units;
  const auto batch_of = [&](size_t i) {
    if (units[i].kind != UnitKind::call) return -1;
    return emission.workload->calls[size_t(units[i].call)].batch;
  };
  const int32_t batch = batch_of(index);
  size_t count = 1;
  while (batch >= 0 && index + count < units.size() && batch_of(index + count) == batch) ++count;
  return count;
}

std::vector<int32_t> Arrivals::emit(Builder& builder, const std::vector<Arrival>& together) {
  std::vector<Dep> deps;
  for (const Arrival& arrival : together) {
    deps.insert(deps.end(), arrival.deps.begin(), arrival.deps.end());
    for (const int32_t task : holding_[arrival.queue]) deps.push_back({task});
    if (together.size() > 1) deps.push_back({builder.last_of(arrival.queue)});
  }
  std::vector<int32_t> tasks;
  for (const Arrival& arrival : together) {
    tasks.push_back(builder.call_task(arrival.queue, arrival.call, deps));
  }
  for (const Arrival& arrival : together) {
    holding_[arrival.queue] = together.size() > 1 ? tasks : std::vector<int32_t>{};
  }
  return tasks;
}

}  // namespace trnsim::lower
