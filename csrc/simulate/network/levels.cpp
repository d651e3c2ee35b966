// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>

#include "simulate/network/problem.h"

namespace trnsim::simulate {
namespace {

struct Link {
  int128 rest = 0;         // capacity less the load of frozen flows; may pass below 0 by rounding
  int128 rising = 0;       // weight of the flows that still rise
  int64_t top_frozen = 0;  // largest rate frozen on it
  int32_t begin = 0, end = 0;  // its flows, in members

  int128 share() const {
    const int128 even = rest > 0 ? ceil_div(rest, rising) : 0;
    return std::max<int128>(top_frozen, even);
  }
};

class Levels {
 public:
  explicit Levels(const Problem& problem)
      : problem_(problem), rates_(problem.flows.size(), kNoRate) {
    std::vector<int32_t> touched;
    for (const int32_t flow : problem.flows) {
      for (const auto& use : uses(flow)) touched.push_back(use.link);
    }
    std::sort(touched.begin(), touched.end());
    link_ids_ = touched;
    link_ids_.erase(std::unique(link_ids_.begin(), link_ids_.end()), link_ids_.end());
    links_.resize(link_ids_.size());
    fill(touched.size());
  }

  std::vector<int64_t> solve() {
    std::vector<int32_t> open(links_.size());
    for (size_t i = 0; i < open.size(); ++i) open[i] = int32_t(i);
    while (!open.empty()) {
      int128 lowest = -1;
      for (const int32_t link : open) {
        const int128 share = links_[size_t(link)].share();
        if (lowest < 0 || share < lowest) lowest = share;
      }
      // Shares never fall when a flow frozen at or below them is taken out, so the links at the
      // lowest share are known before any is closed.
      closing_.clear();
      for (const int32_t link : open) {
        if (links_[size_t(link)].share() == lowest) closing_.push_back(link);
      }
      for (const int32_t link : closing_) close(links_[size_t(link)], int64_t(lowest));
      std::erase_if(open, [&](int32_t link) { return links_[size_t(link)].rising == 0; });
    }
    return rates_;
  }

 private:
  const std::vector<fold::LinkUse>& uses(int32_t flow) const {
    return (*problem_.variables)[size_t(flow)].uses;
  }
  size_t dense(int32_t link) const {
    return size_t(std::lower_bound(link_ids_.begin(), link_ids_.end(), link) - link_ids_.begin());
  }

  void fill(size_t use_count) {
    dense_.reserve(use_count);
    for (const int32_t flow : problem_.flows) {
      first_use_.push_back(int32_t(dense_.size()));
      for (const auto& use : uses(flow)) {
        const size_t link = dense(use.link);
        dense_.push_back(int32_t(link));
        links_[link].rising += use.weight;
        ++links_[link].end;
      }
    }
    int32_t begin = 0;
    for (size_t i = 0; i < links_.size(); ++i) {
      links_[i].rest = (*problem_.capacities)[size_t(link_ids_[i])];
      links_[i].begin = begin;
      begin += links_[i].end;
      links_[i].end = links_[i].begin;
    }
    members_.resize(use_count);
    for (size_t position = 0; position < problem_.flows.size(); ++position) {
      const size_t count = uses(problem_.flows[position]).size();
      for (size_t i = 0; i < count; ++i) {
        Link& link = links_[size_t(dense_[size_t(first_use_[position]) + i])];
        members_[size_t(link.end++)] = int32_t(position);
      }
    }
  }

  void close(Link& closing, int64_t level) {
    for (int32_t i = closing.begin; i < closing.end; ++i) {
      const size_t position = size_t(members_[size_t(i)]);
      if (rates_[position] != kNoRate) continue;
      rates_[position] = level;
      const auto& flow_uses = uses(problem_.flows[position]);
      for (size_t use = 0; use < flow_uses.size(); ++use) {
        Link& link = links_[size_t(dense_[size_t(first_use_[position]) + use])];
        link.rest -= int128(flow_uses[use].weight) * level;
        link.rising -= flow_uses[use].weight;
        link.top_frozen = std::max(link.top_frozen, level);
      }
    }
  }

  const Problem& problem_;
  std::vector<int64_t> rates_;
  std::vector<int32_t> link_ids_;   // ascending; dense index -> link
  std::vector<Link> links_;         // by dense index
  std::vector<int32_t> first_use_;  // of each flow, in dense_
  std::vector<int32_t> dense_;      // dense link of each use
  std::vector<int32_t> members_;    // positions of flows, by link
  std::vector<int32_t> closing_;
};

}  // namespace

std::vector<int64_t> solve_levels(const Problem& problem) { return Levels(problem).solve(); }

}  // namespace trnsim::simulate
