// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Layout: a job's communicators by place in a block. Private to fold/.
//
// A job of `count` blocks of `size` consecutive ranks, in which rank b*size + p plays the role of
// place p, and every communicator is inside a block (and has its like in every other), or holds the
// same places of all blocks. With one block of all ranks it is just the job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fold/expand.h"
#include "fold/job.h"

namespace trnsim::fold {

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
  std::vector<int32_t> role_of;  // by place
  std::vector<Tile> tiles;
  std::vector<Family> families;
  std::vector<std::vector<int32_t>> tile_of_slot, tile_of_message;  // by place, as in Rank

  std::vector<int32_t> ranks_of(const Tile& tile, int64_t block) const;
};

// By rank. Throws SimulateError unless each rank plays one role.
std::vector<int32_t> roles_of_ranks(const Job& job);
// Throws SimulateError unless what is odd or changes is there.
void check_odd(const Job& job);

// Nothing when the job has no such blocks; throws SimulateError when block_size is all ranks and
// groups do not tile their roles.
std::optional<Layout> lay_out(const Job& job, const std::vector<int32_t>& role_of_rank,
                              int64_t block_size);

// Blocks of whole pods, the smallest that the job has; nothing when it has none.
std::optional<Layout> find_blocks(const Job& job, const std::vector<int32_t>& role_of_rank);

}  // namespace trnsim::fold
