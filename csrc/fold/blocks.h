// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Blocks: which blocks of a Layout are alike, and which links above them. Private to fold/.
//
// Links belong to the block of their chip; those between switches are above. Colour refinement in
// which a block moves as one: blocks are alike when nothing in them is odd and every communicator
// that leaves a pod puts the same sends on the same places of them and, where it is inside, sees
// the same set of classes of links above; links above are alike when they have one tier and fault
// and get the same sends from each. So blocks and links that are alike are so at any rates. Classes
// are numbered by whole histories of exact values, so no hash decides. Pods are copies of one
// another, so what stays in a pod tells blocks apart only by faults.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fold/profiles.h"

namespace trnsim::fold {

struct Blocks {
  std::vector<int32_t> class_of;        // by block
  std::vector<int32_t> representative;  // by class: its lowest block
  std::vector<int32_t> lowest_like;     // by link: of a link above, the lowest of its class
};

// The block that a link belongs to; -1 for a link above. Links of pods come first, then those
// between chips and switches of the fabric, then those above.
class LinkOwners {
 public:
  LinkOwners(const Job& job, const Layout& layout);
  struct Place {
    int32_t block = -1;
    int64_t place = 0;  // the same for links alike in each block
  };
  Place of(int32_t link) const;
  bool is_above(int32_t link) const { return link >= above_from_; }
  // The link of a block at the same place so many blocks on.
  int32_t moved(int32_t link, int64_t blocks) const;

 private:
  int64_t chip_of(int64_t link) const;  // -1 for a link above

  const machine::Topology& topology_;
  int64_t fabric_from_, above_from_;
  Stripes pod_links_, fabric_links_;  // of pods, and between chips and switches of the fabric
};

// All in one block.
Blocks one_block();
// Nothing when a communicator inside a block uses links of another.
std::optional<Blocks> class_blocks(const Job& job, const Layout& layout, Profiles& profiles);

}  // namespace trnsim::fold
