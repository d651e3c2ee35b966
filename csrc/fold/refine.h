// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Colour refinement of a System, by hashes, and the quotient of a partition. Private to fold/.
//
// Equal keys have equal hashes, so hashes never split what belongs together. They may leave
// together what differs: that is found by find_inequity, and refined further with another seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fold/cohorts.h"

namespace trnsim::fold {

struct Partition {
  std::vector<int32_t> rank, communicator, link;    // class of each
  int32_t ranks = 0, communicators = 0, links = 0;  // classes
};

// Who calls on each communicator, and where from: a slot, or a call template of messages.
class Callers {
 public:
  struct Caller {
    int32_t rank = 0, place = 0;
  };
  explicit Callers(const System& system);
  // Of one communicator: first its members (place kMember), then those that call on it, by place.
  const Caller* begin(int32_t communicator) const {
    return callers_.data() + first_[size_t(communicator)];
  }
  const Caller* end(int32_t communicator) const {
    return callers_.data() + first_[size_t(communicator) + 1];
  }

  static constexpr int32_t kMember = -1, kMessage = 1 << 30;  // kMessage + call template

 private:
  std::vector<int64_t> first_;
  std::vector<Caller> callers_;
};

// Everything in one class of its kind.
Partition coarsest(const System& system);
// Splits classes until no hash of `hash_bits` bits does any more, or, with stop_early, every rank
// is alone.
void refine(const System& system, const Callers& callers, uint64_t seed, int hash_bits,
            bool stop_early, Partition& partition);
// The quotient, as if the partition were equitable.
Cohorts make_quotient(const System& system, const Callers& callers, const Partition& partition);
// find_inequity with the callers of the original in hand.
std::string find_inequity(const System& original, const Callers& callers, const Cohorts& cohorts);

// fold_system with hashes of fewer bits, for tests of what happens when they collide; and, unless
// stop_early, with a quotient even where no two ranks are alike: of links alone.
Cohorts fold_system(std::shared_ptr<const System> system, int hash_bits, bool stop_early);

}  // namespace trnsim::fold
