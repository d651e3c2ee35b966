// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Blast radius: what goes with a box of switches of the fabric that dies. A box of one switch is a
// 1U server of its own; a chassis, or a rack on one power feed, is a box of many.
#pragma once

#include <string>
#include <vector>

#include "machine/machine.h"

namespace trnsim::machine {

// Of the worst of the tier's boxes: that which most chips notice.
struct BlastRadius {
  std::string tier;             // "tor", "leaf" or "spine"
  int64_t switches = 0;         // of the tier, that the job's chips can use
  int64_t box = 1, boxes = 0;   // switches of a box (the last box may have fewer); boxes
  int64_t chips_cut = 0;        // whose NIC has no way left to chips under other edge switches
  int64_t chips_slowed = 0;     // others that lose paths
  Rational left_sprayed{1, 1};  // of the paths of a chip that is slowed: packets use all of them
  // With one path for a pair of chips, what is left to a pair on the switch that takes over from
  // dead neighbours, beside the pairs that were there.
  Rational left_ecmp{1, 1};
  int64_t pods_hit = 0;          // with chips that are cut
  Rational pod_nics_left{1, 1};  // of the NICs of such a pod, at least
};

// One for each tier in use, from the edge up. Throws MachineError where `chips` chips use no
// fabric, and for a box of none.
std::vector<BlastRadius> blast_radius(const Machine& machine, int64_t chips, int64_t box);

}  // namespace trnsim::machine
