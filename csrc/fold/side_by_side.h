// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fold/system.h"

namespace trnsim::fold {

// Systems that have nothing to do with each other, as one: each keeps its own chips, links and
// communicators under numbers of its own, one System after the other. What happens to a rank is
// what happens to it alone. Roles are shared, and must be the same objects in all, as in Systems
// that with_jitter, with_rank and the like made of one; so must the speeds be.
struct SideBySide {
  std::shared_ptr<const System> system;
  std::vector<int64_t> first_rank;  // of each; size count + 1
};
SideBySide place_side_by_side(const std::vector<std::shared_ptr<const System>>& systems);

}  // namespace trnsim::fold
