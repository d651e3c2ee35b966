// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The normative lanes: time-driven, one priority queue of moments per run. At each moment every
// queue of the rank it belongs to is looked at until nothing changes; conditions are tested as they
// are written in lanes.h, against the present time. Cost: O((tasks + dependences) log) a rank,
// times the queues.
#pragma once

#include <memory>

#include "simulate/timeline/lanes.h"

namespace trnsim::simulate {

std::unique_ptr<Lanes> make_reference_lanes(const fold::System& system);

}  // namespace trnsim::simulate
