// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Blocks: which blocks of a Layout are alike, and which links above them. Private to fold/.
//
// Links belong to the block of their chip; those between switches are above. Colour refinement in
// which a block moves as one: blocks are alike when nothing in them is odd and every communicator
// that leaves a pod puts the same weights on the same places of them and, where it is inside, sees
// the same set of classes of links above; links above are alike when they have one rate and get the
// same sum from each. Classes are numbered by whole histories of exact values, so no hash decides.
// Pods are copies of one another, so what stays in a pod tells blocks apart only by faults.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fold/layout.h"

namespace trnsim::fold {

// Footprints of tiles, each traced once.
class Traces {
 public:
  Traces(const Job& job, const Layout& layout);
  // Of a tile that is across, `block` is 0.
  const Footprint& of(int32_t tile, const Shape& shape, int32_t block);
  // The shape of a phase of one of the tile's calls.
  Shape shape_of_phase(int32_t tile, int32_t call, size_t phase) const;

 private:
  const Layout& layout_;
  const Job& job_;
  Geometry geometry_;
  Tracer tracer_;
  // By block; a list does not move once it is there.
  std::map<std::pair<int32_t, Shape>, std::vector<std::optional<Footprint>>> footprints_;
};

struct Blocks {
  std::vector<int32_t> class_of;        // by block
  std::vector<int32_t> representative;  // by class: its lowest block
  std::vector<int32_t> lowest_like;     // by link: of a link above, the lowest of its class
  std::vector<uint8_t> leaves_pod;      // by tile: crosses pods, so each block has its own
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
  // The link of a block at the same place so many blocks on.
  int32_t moved(int32_t link, int64_t blocks) const;

 private:
  int64_t chip_of(int64_t link) const;  // -1 for a link above

  const machine::Topology& topology_;
  int64_t links_of_block_, fabric_from_, above_from_;
  int64_t fabric_links_of_block_;  // between its chips and switches of the fabric
};

// All in one block.
Blocks one_block(const Layout& layout);
// Nothing when a communicator inside a block uses links of another.
std::optional<Blocks> class_blocks(const Job& job, const Layout& layout, Traces& traces);

}  // namespace trnsim::fold
