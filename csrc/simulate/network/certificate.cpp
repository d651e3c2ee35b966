// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/network/certificate.h"

#include <algorithm>
#include <unordered_map>

namespace trnsim::simulate {

int64_t closing_level(const Network& network, int32_t link) {
  int128 load = 0;
  int64_t top = 0, top_weight = 0;
  for (const Member& member : network.members(link)) {
    const int64_t rate = network.rate(member.flow);
    load += int128(member.weight) * rate;
    if (rate > top) {
      top = rate;
      top_weight = 0;
    }
    top_weight += rate == top ? member.weight : 0;
  }
  const int128 capacity = network.capacity(link);
  const bool holds = capacity == 0 ? top == 0 : load - top_weight < capacity;
  if (!holds) return -1;
  return load >= capacity ? top : kOpen;
}

std::string find_violation(const Network& network) {
  std::unordered_map<int32_t, int64_t> levels;
  for (const int32_t flow : network.active()) {
    if (network.rate(flow) < 0) return "flow " + std::to_string(flow) + " has no rate";
    for (const Use& use : network.uses(flow)) {
      const auto [found, added] = levels.try_emplace(use.link, 0);
      if (!added) continue;
      found->second = closing_level(network, use.link);
      if (found->second < 0) {
        return "link " + std::to_string(use.link) + " was full one level lower";
      }
    }
  }
  for (const int32_t flow : network.active()) {
    const auto uses = network.uses(flow);
    const bool stopped = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return levels[use.link] == network.rate(flow);
    });
    if (!stopped) return "flow " + std::to_string(flow) + " is stopped by no link";
  }
  return {};
}

}  // namespace trnsim::simulate
