// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/profiles.h"

#include <gtest/gtest.h>

#include <set>

#include "training.h"

namespace trnsim::fold {
namespace {

TEST(IdSet, GivesEachOnceAscendingAndIsEmptyThen) {
  std::mt19937_64 random(3);
  for (const int64_t size : {1, 63, 64, 65, 4096, 300'000}) {
    IdSet set{size_t(size)};
    for (int round = 0; round < 3; ++round) {
      std::set<int32_t> expected{0, int32_t(size - 1)};
      for (int i = 0; i < 100; ++i) expected.insert(int32_t(random() % uint64_t(size)));
      for (const int32_t id : expected) set.add(id);
      for (const int32_t id : expected) set.add(id);
      std::vector<int32_t> taken;
      set.take([&](int32_t id) { taken.push_back(id); });
      EXPECT_EQ(taken, std::vector<int32_t>(expected.begin(), expected.end()));
    }
    set.take([](int32_t) { ADD_FAILURE() << "it was emptied"; });
  }
}

// What a tile uses by its first's profile is what its own sends use.
TEST(Profiles, OfTilesThatAreAlikeAreMovedCopies) {
  int64_t moved = 0, own = 0, are_alike = 0;
  for (uint64_t seed = 0; seed < scenes::seeds(400); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Training training = random_training(seed);
    const Job job = training.job();
    const auto layout = find_blocks(job, roles_of_ranks(job));
    if (!layout) continue;
    Profiles profiles(job, *layout);
    are_alike += profiles.are_places_alike();
    for (int32_t tile = 0; tile < int32_t(layout->tiles.size()); ++tile) {
      if (layout->tiles[size_t(tile)].calls.empty()) continue;
      const bool is_first = profiles.first_like(tile) == tile;
      (is_first ? own : moved) += 1;
      const int64_t blocks = layout->tiles[size_t(tile)].is_across ? 1 : layout->count;
      for (int32_t block = 0; block < blocks; ++block) {
        const Profile traced = profiles.trace(tile, block);
        std::vector<Profile::Use> uses;
        profiles.visit(tile, block, [&](const Profile::Use& use) { uses.push_back(use); });
        ASSERT_EQ(uses, traced.uses) << "tile " << tile << " block " << block;
        ASSERT_EQ(profiles.of(profiles.first_like(tile), block).sizes, traced.sizes);
      }
    }
  }
  EXPECT_GT(moved, own / 4);
  EXPECT_GT(are_alike * 10, int64_t(scenes::seeds(400)));
}

// The sends of every link, shape by shape, are those of the footprints.
TEST(Profiles, HoldTheSendsOfEachShape) {
  Training training = random_training(1);
  const Job job = training.job();
  const Layout layout = lay_out_whole(job, roles_of_ranks(job));
  Profiles profiles(job, layout);
  const Geometry geometry{job.topology, job.placement,
                          machine::used_torus(job.machine, job.placement.chips)};
  Tracer tracer(geometry);
  int64_t loads = 0;
  for (int32_t tile = 0; tile < int32_t(layout.tiles.size()); ++tile) {
    if (layout.tiles[size_t(tile)].calls.empty()) continue;
    const Profile profile = profiles.trace(tile, 0);
    const PhaseShapes& shapes = profiles.shapes_of(tile);
    std::vector<std::vector<LinkLoad>> of_shape(shapes.shapes.size());
    for (const Profile::Use& use : profile.uses) {
      for (const auto& [shape, sends] : profiles.sends_of(use.kind)) {
        of_shape[size_t(shape)].push_back({use.link, sends});
      }
    }
    for (size_t i = 0; i < of_shape.size(); ++i) {
      const auto& [shape, has_bytes] = shapes.shapes[i];
      const Footprint footprint =
          tracer.trace(shape, layout.ranks_of(layout.tiles[size_t(tile)], 0));
      EXPECT_EQ(of_shape[i], has_bytes ? footprint.loads : std::vector<LinkLoad>());
      EXPECT_EQ(profile.sizes[i], FootprintSize(footprint));
      loads += int64_t(footprint.loads.size());
    }
  }
  EXPECT_GT(loads, 100);
}

}  // namespace
}  // namespace trnsim::fold
