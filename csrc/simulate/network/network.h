// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Network: links, the flows that are active on them now, and the flows' rates.
//
// The allocation, in whole numbers. Flow f has rate r_f and weight w_lf on link l of
// capacity C_l.
//   H_l(u) = sum over flows on l of w_lf * min(r_f, u)   the load of l if all stopped at level u
//   b_l    = the smallest whole u with H_l(u) >= C_l     the level at which l closes
//   r_f    = the smallest b_l over the links of f
// In words: all rates rise together, one unit at a time; a link closes at the first level where its
// load reaches its capacity, and everything on it stops there. Unique, whatever the order: if r and
// r' both satisfy it, let s be the smallest value at which they differ, r_f = s < r'_f. Up to s
// they agree everywhere, so the link that stopped f at s in r stops it in r' too.
//
// Each link lists its active flows only, and the network remembers what changed since the last
// solve, so that a solver need not look at anything else. Entering and leaving cost O(links of the
// flow).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "fold/system.h"

namespace trnsim::simulate {

inline constexpr int64_t kNoRate = -1;  // not decided yet

// A flow's use of a link.
struct Use {
  int32_t link = 0;
  int32_t place = -1;  // among the link's members, while the flow is active
  int64_t weight = 0;
};

// An active flow on a link.
struct Member {
  int32_t flow = 0;
  int32_t use = 0;  // its Use, of all uses
  int64_t weight = 0;
};

// A flow that left, and the rate that it had.
struct Departure {
  int32_t flow = 0;
  int64_t rate = 0;
};

class Network {
 public:
  // capacities: by link, rate * 2^16. Flow i is variables[i]; none is active.
  Network(std::vector<int128> capacities, const std::vector<fold::Variable>& variables);

  void enter(int32_t flow);
  void leave(int32_t flow);  // its rate becomes 0
  void set_capacity(int32_t link, int128 capacity);
  void set_rate(int32_t flow, int64_t rate) { rates_[size_t(flow)] = rate; }

  int128 capacity(int32_t link) const { return capacities_[size_t(link)]; }
  int64_t rate(int32_t flow) const { return rates_[size_t(flow)]; }
  const std::vector<int32_t>& active() const { return active_; }  // in no order
  std::span<const Use> uses(int32_t flow) const {
    const int32_t begin = first_use_[size_t(flow)];
    return {uses_.data() + begin, size_t(first_use_[size_t(flow) + 1] - begin)};
  }
  std::span<const Member> members(int32_t link) const {
    return {members_.data() + first_member_[size_t(link)], size_t(member_count_[size_t(link)])};
  }
  size_t link_count() const { return capacities_.size(); }
  size_t flow_count() const { return rates_.size(); }
  int64_t active_uses() const { return active_uses_; }  // of all active flows

  // Since the last forget_changes(): links whose members or capacity are others, flows that came
  // (some of which may have left again), and flows that left.
  const std::vector<int32_t>& changed_links() const { return changed_links_; }
  const std::vector<int32_t>& entered() const { return entered_; }
  const std::vector<Departure>& left() const { return left_; }
  bool is_active(int32_t flow) const { return place_in_active_[size_t(flow)] >= 0; }
  bool has_changed() const { return !changed_links_.empty(); }
  void forget_changes();

 private:
  void touch(int32_t link);

  std::vector<int128> capacities_;     // by link
  std::vector<int64_t> rates_;         // by flow
  std::vector<int32_t> first_use_;     // of flow f in uses_; size flows + 1
  std::vector<Use> uses_;              //
  std::vector<int32_t> first_member_;  // of link l in members_: room for every flow on it
  std::vector<int32_t> member_count_;  // active ones
  std::vector<Member> members_;
  std::vector<int32_t> active_, place_in_active_;
  int64_t active_uses_ = 0;
  std::vector<int32_t> changed_links_, entered_;
  std::vector<Departure> left_;
  std::vector<uint8_t> is_changed_;  // by link
};

}  // namespace trnsim::simulate
