// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Cohorts: the ranks, communicators and links of a System that behave the same, one for each class.
//
// A partition of ranks, communicators and links into classes is equitable when
//   ranks of a class          have one role, factor and start, and at each slot, and for each
//                             message, communicators of one class; with interference, the same
//                             *set* of classes of ranks on their chip
//   communicators of a class  have one slot, the same *set* of (class of a member, where it calls
//                             on it), and, for each variable in order, one call template, phase,
//                             latency and size and the same *set* of classes of links
//   links of a class          have one rate, with the same changes in mid-run, and, for each (class
//                             of communicators, variable), the same *sum* of weights
// Then ranks of a class do the same things at the same time. A call starts with the last member and
// ends for all at once, so a set of members is enough; a flow's rate is the least of its links'
// levels, so a set of links is enough; and a link's level comes from H(u) = sum of w min(r, u), in
// which flows of one class have one r, so a sum of weights is enough (simulate/network says why
// that allocation is the only one). A chip is slow while a call of any of its ranks moves bytes, so
// there a set of ranks is enough. With sets and sums alone, folding twice is folding once.
//
// The quotient is a System like any other: the lowest rank, communicator and link of each class,
// counts of ranks, and the sums as weights, never normalised again. With interference its ranks
// stand on the first chip with each set of classes. A rank that exchanges messages with its own
// class is both ends of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fold/system.h"

namespace trnsim::fold {

struct Cohorts {
  std::shared_ptr<const System> system;  // the quotient: rank c stands for the ranks of class c
  // By rank, communicator and link of the System that was folded. Classes are numbered by their
  // lowest member.
  std::vector<int32_t> class_of_rank, class_of_communicator, class_of_link;
};

// The coarsest equitable partition. Where no two ranks are alike, system is the very one given.
// Cost: O(members + uses of links) a round, and as many rounds as it takes for a difference to
// reach everything that it changes. Checked before it returns.
Cohorts fold_system(std::shared_ptr<const System> system);

// Every rank, communicator and link a class of its own, of the very System given.
Cohorts leave_unfolded(std::shared_ptr<const System> system);

// "" when the partition is equitable and the quotient is its quotient, else what differs. Compares
// values, no hashes. Cost: O(members + uses of links).
std::string find_inequity(const System& original, const Cohorts& cohorts);
// Throws Error when there is an inequity.
void check_fold(const System& original, const Cohorts& cohorts);

}  // namespace trnsim::fold
