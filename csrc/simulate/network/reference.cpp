// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Slow and obvious: the definition of network.h read aloud.
#include <algorithm>
#include <map>

#include "simulate/network/solver.h"

namespace trnsim::simulate {
namespace {

struct OnLink {
  size_t flow;  // position in network.active()
  int64_t weight;
};
using Links = std::map<int32_t, std::vector<OnLink>>;

// H_l(u). A flow without a rate yet still rises: min(r, u) = u.
int128 load_at(const std::vector<OnLink>& link, const std::vector<int64_t>& rates, int128 level) {
  int128 load = 0;
  for (const OnLink& on : link) {
    const int64_t rate = rates[on.flow];
    load += on.weight * (rate == kNoRate ? level : std::min<int128>(rate, level));
  }
  return load;
}

// b_l: the smallest u with H_l(u) >= C, given that some flow of the link still rises.
int128 closing_level(const std::vector<OnLink>& link, const std::vector<int64_t>& rates,
                     int128 capacity) {
  int128 low = -1, high = capacity;  // H(high) >= capacity, as a rising flow weighs at least 1
  while (high - low > 1) {
    const int128 middle = low + (high - low) / 2;
    (load_at(link, rates, middle) >= capacity ? high : low) = middle;
  }
  return high;
}

bool rises(const std::vector<OnLink>& link, const std::vector<int64_t>& rates) {
  return std::any_of(link.begin(), link.end(),
                     [&](const OnLink& on) { return rates[on.flow] == kNoRate; });
}

class Reference final : public WholeSolver {
 public:
  const std::vector<int64_t>& allocate(const Network& network) override {
    Links links;
    for (size_t flow = 0; flow < network.active().size(); ++flow) {
      for (const Use& use : network.uses(network.active()[flow])) {
        links[use.link].push_back({flow, use.weight});
      }
    }
    rates_.assign(network.active().size(), kNoRate);
    while (close_lowest(network, links)) {
    }
    return rates_;
  }

 private:
  // The lowest level at which a link closes stops every rising flow on the links that close there.
  bool close_lowest(const Network& network, const Links& links) {
    int128 lowest = -1;
    std::vector<int32_t> closing;
    for (const auto& [link, on] : links) {
      if (!rises(on, rates_)) continue;
      const int128 level = closing_level(on, rates_, network.capacity(link));
      if (lowest < 0 || level < lowest) {
        lowest = level;
        closing.clear();
      }
      if (level == lowest) closing.push_back(link);
    }
    for (const int32_t link : closing) {
      for (const OnLink& on : links.at(link)) {
        if (rates_[on.flow] == kNoRate) rates_[on.flow] = int64_t(lowest);
      }
    }
    return !closing.empty();
  }

  std::vector<int64_t> rates_;
};

}  // namespace

std::unique_ptr<WholeSolver> make_reference_solver() { return std::make_unique<Reference>(); }

}  // namespace trnsim::simulate
