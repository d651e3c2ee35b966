// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Made: the System of some blocks, and what its variables follow from. Private to fold/.
#pragma once

#include <cstdint>
#include <vector>

#include "fold/blocks.h"

namespace trnsim::fold {

// What a variable's bytes, latency and weights on links follow from. A link of the System stands
// for a class of them, and a communicator for a class: so many of its like put so many sends each
// on the link.
struct Load {
  struct On {
    int32_t link = 0;
    int64_t sends = 0, communicators = 1;
  };
  FootprintSize size;
  std::vector<On> on;  // ascending by link; none where there are no bytes
};

struct Made {
  // Without rates, bytes, latencies, weights and speeds.
  System system;
  std::vector<Load> loads;            // some variables share one
  std::vector<int32_t> load_of;       // by variable
  std::vector<int32_t> link_of_made;  // of the topology, by link of the System
  std::vector<int32_t> link_made;     // of the System, by link of the topology; -1: nobody uses it
};

// One block of each class, or every rank of the job when all is one block; with all links, or
// those that are used.
Made make_blocks(const Job& job, const Layout& layout, const Blocks& blocks, Profiles& profiles,
                 bool has_all_links);

// Gives the System, made for a job of the same shape, what it is without. Who runs it checks it.
void complete(const Job& job, const Made& made, System& system);

}  // namespace trnsim::fold
