// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/interference.h"

namespace trnsim::simulate {

Interference::Interference(const fold::System& system)
    : system_(system),
      chips_(fold::chips_of(system)),
      flows_(chips_.ranks.size(), 0),
      is_slow_(chips_.ranks.size(), 0) {}

void Interference::take(const std::vector<Transfers::Move>& moves) {
  touched_.clear();
  slowed_.clear();
  freed_.clear();
  for (const Transfers::Move& move : moves) {
    for (const int32_t rank : system_.communicators[size_t(move.communicator)].members) {
      const int32_t chip = chips_.of_rank[size_t(rank)];
      flows_[size_t(chip)] += move.enters ? 1 : -1;
      touched_.push_back(chip);
    }
  }
  for (const int32_t chip : touched_) {
    const bool is_slow = flows_[size_t(chip)] > 0;
    if (is_slow == (is_slow_[size_t(chip)] != 0)) continue;
    is_slow_[size_t(chip)] = is_slow;
    std::vector<int32_t>& changed = is_slow ? slowed_ : freed_;
    const auto& ranks = chips_.ranks[size_t(chip)];
    changed.insert(changed.end(), ranks.begin(), ranks.end());
  }
}

}  // namespace trnsim::simulate
