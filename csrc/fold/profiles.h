// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Profiles: what each tile of a Layout sends over which links, by all its phases. Private to fold/.
//
// A tile's phases have few shapes. Links that get the same sends from each shape are of one kind.
// Tiles that are alike but for a shift of all links (those at several places of the pods are, where
// the fabric's routes allow it) have one profile for them all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fold/expand.h"
#include "fold/histories.h"
#include "fold/layout.h"

namespace trnsim::fold {

// The shapes of the phases that calls have. Phases without bytes send nothing: they have a length.
struct PhaseShapes {
  std::vector<std::pair<Shape, bool>> shapes;        // and whether there are bytes
  std::map<int32_t, std::vector<int32_t>> of_phase;  // index in shapes, by call and phase
};

struct Profile {
  struct Use {
    int32_t link = 0, kind = 0;
    auto operator<=>(const Use&) const = default;
  };
  std::vector<FootprintSize> sizes;  // by shape
  std::vector<Use> uses;             // ascending by link
};

class Profiles {
 public:
  Profiles(const Job& job, const Layout& layout);

  bool leaves_pod(int32_t tile) const { return leaves_pod_[size_t(tile)]; }
  const PhaseShapes& shapes_of(int32_t tile);
  // The tile, this or an earlier one, whose profiles, moved, are those of this one.
  int32_t first_like(int32_t tile) const { return likes_[size_t(tile)].first; }
  // Whether what holds of firsts holds of all that are like them, link for moved link: every first
  // has its like at the same shifts, tiles of two shifts share no link between switches, and no
  // such link is slow or changes. `shifts` are then those of the others.
  bool are_places_alike() const { return !shifts_.empty(); }
  const std::vector<machine::LinkShift>& shifts() const { return shifts_; }
  // Of a tile that is its own first, kept. Of one that is across, `block` is 0.
  const Profile& of(int32_t tile, int32_t block);
  // Not kept.
  Profile trace(int32_t tile, int32_t block);
  // A link of its first's, moved.
  int32_t moved(int32_t tile, int32_t link) const {
    const Like& like = likes_[size_t(tile)];
    return like.shift ? link + (*like.shift)[size_t(job_.topology.tier(link))] : link;
  }
  // Calls visit(use) for what the tile uses: what its first uses, moved.
  template <class Visit>
  void visit(int32_t tile, int32_t block, const Visit& visit);
  // The sends of a kind, by shape: {shape, sends}, ascending.
  const std::vector<std::pair<int32_t, int64_t>>& sends_of(int32_t kind);

 private:
  struct Like {
    int32_t first = 0;
    std::optional<machine::LinkShift> shift = {};
  };
  bool has_many_pods(const Tile& tile) const;
  void find_likes();
  void find_shifts();
  std::optional<machine::LinkShift> shift_between(const Tile& from, const Tile& to) const;
  int32_t chip_of(const Tile& tile, size_t member, int64_t block = 0) const {
    return int32_t(job_.placement.chip_of(layout_.rank_of(tile, member, block)));
  }

  const Job& job_;
  const Layout& layout_;
  Geometry geometry_;
  Tracer tracer_;
  std::map<std::pair<int32_t, std::vector<int32_t>>, PhaseShapes> shapes_;  // by role and calls
  std::vector<bool> leaves_pod_;                                            // by tile
  std::vector<Like> likes_;                                                 // by tile
  std::vector<std::vector<std::optional<Profile>>> profiles_;               // by tile and block
  std::vector<machine::LinkShift> shifts_;
  Histories kinds_;
  std::vector<int32_t> kind_of_link_;                                  // scratch
  IdSet used_;                                                         // scratch
  std::map<int32_t, std::vector<std::pair<int32_t, int64_t>>> sends_;  // by kind
};

template <class Visit>
void Profiles::visit(int32_t tile, int32_t block, const Visit& visit) {
  for (const Profile::Use& use : of(first_like(tile), block).uses) {
    visit(Profile::Use{moved(tile, use.link), use.kind});
  }
}

}  // namespace trnsim::fold
