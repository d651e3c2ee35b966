// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What rank 0 broadcasts in tensors of the CPU, kept for the ranks that are captured after it:
// their tensor may be memory that nobody wrote. A broadcast is known by its place, which is how the
// group lies from its first rank on and which member the root is, and by how many came before
// there. So a group of ranks 4..7 gets what ranks 0..3 got, as under the uniform-rank reading.
#pragma once

#include <ATen/core/TensorBody.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "workload/workload.h"

namespace trnsim::capture::distributed {

// By place, in order; nothing for one that was too large to keep.
using HostBroadcasts = std::map<std::string, std::vector<std::optional<std::string>>>;

// Begins a capture that knows these, and hands out what it has said itself.
void begin_host_broadcasts(HostBroadcasts known);
HostBroadcasts take_host_broadcasts();

std::string place_of(const workload::RankPattern& ranks, int64_t root);

// The root's next broadcast in a place.
void keep_broadcast(const std::string& place, const std::vector<at::Tensor>& tensors);

// Another member's: false where the values are not known.
bool fill_from_broadcast(const std::string& place, const std::vector<at::Tensor>& tensors);

}  // namespace trnsim::capture::distributed
