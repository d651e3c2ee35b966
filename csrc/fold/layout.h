// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Layout: a job's communicators by place in a block. Private to fold/.
//
// A job of `count` blocks of `size` ranks, in which the rank at place p of a block plays the role
// of p, and every communicator is inside a block (and has its like in every other), or holds the
// same places of all blocks. A block is consecutive ranks, or, in a pipeline whose stages are many
// pods each, as many consecutive ranks of every stage. With one block of all ranks it is just the
// job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fold/expand.h"
#include "fold/job.h"

namespace trnsim::fold {

// `count` blocks that take turns: `width` items each, and again until there are no more.
struct Stripes {
  int64_t width = 0, count = 0;
  int64_t block_of(int64_t item) const { return item % (width * count) / width; }
  // Ascending with the items of a block.
  int64_t place_of(int64_t item) const { return item / (width * count) * width + item % width; }
  int64_t at(int64_t block, int64_t place) const {
    return (place / width * count + block) * width + place % width;
  }
};

struct Tile {
  int32_t slot = 0;  // of the role that forms it
  bool is_message = false;
  bool is_across = false;        // of all blocks: members are ranks; otherwise places in a block
  std::vector<int32_t> members;  // in group order; of a message {sender, receiver}
  std::string name;              // empty for a message: it is named by its ranks
  std::vector<int32_t> calls;    // templates of its first member's role that have phases on it
};

// Tiles that one group, or one call template of messages, brings.
struct Family {
  int32_t first = 0, count = 0;  // tiles
  bool is_across = false;
};

struct Layout {
  int64_t size = 0, count = 0;
  Stripes ranks;
  std::vector<int32_t> role_of;  // by place
  std::vector<Tile> tiles;
  std::vector<Family> families;
  std::vector<std::vector<int32_t>> tile_of_slot, tile_of_message;  // by place, as in Rank

  std::vector<int32_t> ranks_of(const Tile& tile, int64_t block) const;
  int64_t rank_of(const Tile& tile, size_t member, int64_t block) const {
    const int32_t at = tile.members[member];
    return tile.is_across ? at : ranks.at(block, at);
  }
  int32_t place_of(const Tile& tile, size_t member) const {
    const int32_t at = tile.members[member];
    return tile.is_across ? int32_t(ranks.place_of(at)) : at;
  }
};

// By rank. Throws SimulateError unless each rank plays one role.
std::vector<int32_t> roles_of_ranks(const Job& job);
// Throws SimulateError unless what is odd or changes is there.
void check_odd(const Job& job);

// Nothing when the job has no such blocks; throws SimulateError when one block is all ranks and
// groups do not tile their roles.
std::optional<Layout> lay_out(const Job& job, const std::vector<int32_t>& role_of_rank,
                              const Stripes& ranks);
// All in one block.
Layout lay_out_whole(const Job& job, const std::vector<int32_t>& role_of_rank);

// Blocks of whole pods, the smallest that the job has: of consecutive ones, or else of as many in
// the ranks of each role. Nothing when it has none.
std::optional<Layout> find_blocks(const Job& job, const std::vector<int32_t>& role_of_rank);

}  // namespace trnsim::fold
