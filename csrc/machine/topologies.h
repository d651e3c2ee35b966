// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The kinds of scale-up network, one file each. Private to machine/: others call make_topology.
#pragma once

#include <memory>

#include "machine/topology.h"

namespace trnsim::machine {

// Throws MachineError, with the reason and the nearest legal counts, unless the machine takes
// `chips` chips.
void check_chip_count(const Machine& machine, int64_t chips);

// `chips` is legal.
std::unique_ptr<Topology> make_torus(const Machine& machine, int64_t chips);
std::unique_ptr<Topology> make_switch(const Machine& machine, int64_t chips);

// A rate in 1/1024 B/s, rounded down.
int64_t link_rate(Rational bandwidth_Bps);

}  // namespace trnsim::machine
