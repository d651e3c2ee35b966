// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which ranks run slowed: those whose chip has a member of a call whose flow is in the network.
//
// Flows that come and go at one time are counted first, and only then is each chip's speed before
// compared with its speed after. So it does not matter in which order things happen at one time,
// and a chip that one flow leaves as the next enters meets no change.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/network/transfers.h"

namespace trnsim::simulate {

class Interference {
 public:
  explicit Interference(const fold::System& system);
  // Of all that moved at one time: the ranks that are slowed from then on, and those that no longer
  // are.
  void take(const std::vector<Transfers::Move>& moves);
  const std::vector<int32_t>& slowed() const { return slowed_; }
  const std::vector<int32_t>& freed() const { return freed_; }

 private:
  const fold::System& system_;
  fold::Chips chips_;
  std::vector<int64_t> flows_;    // by chip: in the network, once for each member on it
  std::vector<uint8_t> is_slow_;  // by chip
  std::vector<int32_t> touched_;  // chips, scratch
  std::vector<int32_t> slowed_, freed_;
};

}  // namespace trnsim::simulate
