// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/network/certificate.h"

#include <algorithm>
#include <unordered_map>

namespace trnsim::simulate {
namespace {

struct LinkLoad {
  int128 load = 0;
  int64_t top = -1;  // M_l
  int128 top_weight = 0;
};

}  // namespace

std::string find_violation(const Problem& problem, const std::vector<int64_t>& rates) {
  TRN_ASSERT(rates.size() == problem.flows.size(), "one rate a flow");
  const auto uses = [&](size_t i) -> const std::vector<fold::LinkUse>& {
    return (*problem.variables)[size_t(problem.flows[i])].uses;
  };
  std::unordered_map<int32_t, LinkLoad> links;
  for (size_t i = 0; i < rates.size(); ++i) {
    if (rates[i] < 0) return "flow " + std::to_string(problem.flows[i]) + " has no rate";
    for (const auto& use : uses(i)) {
      LinkLoad& link = links[use.link];
      link.load += int128(use.weight) * rates[i];
      if (rates[i] > link.top) {
        link.top = rates[i];
        link.top_weight = 0;
      }
      if (rates[i] == link.top) link.top_weight += use.weight;
    }
  }
  for (const auto& [id, link] : links) {
    const int128 capacity = (*problem.capacities)[size_t(id)];
    const bool holds = capacity == 0 ? link.top == 0 : link.load - link.top_weight < capacity;
    if (!holds) return "link " + std::to_string(id) + " was full one level lower";
  }
  for (size_t i = 0; i < rates.size(); ++i) {
    const bool stopped = std::any_of(uses(i).begin(), uses(i).end(), [&](const auto& use) {
      const LinkLoad& link = links[use.link];
      return link.load >= (*problem.capacities)[size_t(use.link)] && link.top == rates[i];
    });
    if (!stopped) return "flow " + std::to_string(problem.flows[i]) + " is stopped by no link";
  }
  return {};
}

}  // namespace trnsim::simulate
