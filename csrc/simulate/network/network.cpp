// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/network/network.h"

namespace trnsim::simulate {

Network::Network(std::vector<int128> capacities, const std::vector<fold::Variable>& variables)
    : capacities_(std::move(capacities)),
      rates_(variables.size(), 0),
      first_use_(1, 0),
      member_count_(capacities_.size(), 0),
      place_in_active_(variables.size(), -1),
      is_changed_(capacities_.size(), 0) {
  constexpr int128 kMostWeight = int128(1) << 62;  // sums of a link's weights are int64
  std::vector<int128> weights(capacities_.size(), 0);
  first_member_.assign(capacities_.size() + 1, 0);
  for (const fold::Variable& variable : variables) {
    for (const fold::LinkUse& use : variable.uses) {
      uses_.push_back({use.link, -1, use.weight});
      weights[size_t(use.link)] += use.weight;
      ++first_member_[size_t(use.link) + 1];
      TRN_CHECK(weights[size_t(use.link)] < kMostWeight, simulate,
                "the weights on link " + std::to_string(use.link) + " sum to 2^62 or more",
                "simulate fewer ranks");
    }
    TRN_CHECK(uses_.size() < size_t(std::numeric_limits<int32_t>::max()), simulate,
              "the transfers use links 2^31 times or more", "simulate fewer ranks");
    first_use_.push_back(int32_t(uses_.size()));
  }
  for (size_t link = 0; link < capacities_.size(); ++link) {
    first_member_[link + 1] += first_member_[link];
  }
  members_.resize(uses_.size());
}

void Network::touch(int32_t link) {
  if (is_changed_[size_t(link)]) return;
  is_changed_[size_t(link)] = 1;
  changed_links_.push_back(link);
}

void Network::enter(int32_t flow) {
  TRN_ASSERT(!is_active(flow), "a flow enters once");
  place_in_active_[size_t(flow)] = int32_t(active_.size());
  active_.push_back(flow);
  entered_.push_back(flow);
  rates_[size_t(flow)] = 0;
  for (int32_t i = first_use_[size_t(flow)]; i < first_use_[size_t(flow) + 1]; ++i) {
    Use& use = uses_[size_t(i)];
    use.place = member_count_[size_t(use.link)]++;
    members_[size_t(first_member_[size_t(use.link)] + use.place)] = {flow, i, use.weight};
    touch(use.link);
    ++active_uses_;
  }
}

void Network::leave(int32_t flow) {
  TRN_ASSERT(is_active(flow), "a flow leaves once");
  const int32_t place = place_in_active_[size_t(flow)], last_flow = active_.back();
  active_[size_t(place)] = last_flow;
  place_in_active_[size_t(last_flow)] = place;
  active_.pop_back();
  place_in_active_[size_t(flow)] = -1;
  left_.push_back({flow, rates_[size_t(flow)]});
  rates_[size_t(flow)] = 0;
  for (int32_t i = first_use_[size_t(flow)]; i < first_use_[size_t(flow) + 1]; ++i) {
    Use& use = uses_[size_t(i)];
    const int32_t first = first_member_[size_t(use.link)];
    const Member last = members_[size_t(first + --member_count_[size_t(use.link)])];
    members_[size_t(first + use.place)] = last;
    uses_[size_t(last.use)].place = use.place;
    touch(use.link);
    --active_uses_;
  }
}

void Network::set_capacity(int32_t link, int128 capacity) {
  if (capacities_[size_t(link)] == capacity) return;
  capacities_[size_t(link)] = capacity;
  touch(link);
}

void Network::forget_changes() {
  for (const int32_t link : changed_links_) is_changed_[size_t(link)] = 0;
  changed_links_.clear();
  entered_.clear();
  left_.clear();
}

}  // namespace trnsim::simulate
