// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/groups.h"

#include "fold/layout.h"

namespace trnsim::fold {

JobGroups groups_of(const Job& job) {
  const Layout layout = lay_out_whole(job, roles_of_ranks(job));
  JobGroups groups;
  groups.of_slot = layout.tile_of_slot;
  for (const Tile& tile : layout.tiles) {
    groups.members.push_back(layout.ranks_of(tile, 0));
    groups.names.push_back(tile.name);
  }
  return groups;
}

}  // namespace trnsim::fold
