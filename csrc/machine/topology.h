// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Topology: the directed links of the chips in use, and the links of a route. Placement: where a
// rank sits.
//
// Chip id = (z*Y + y)*X + x. Routes go by dimension order X, Y, Z, each axis the shorter way round;
// a tie at half a ring goes + from even and - from odd coordinates. The first N chips are used:
// within a server, whole servers or whole pods, and absent neighbours leave a line without wrap. A
// ring of two has one link in each direction between its chips, not two.
//
// Where chips are absent, a route uses present chips only: an axis goes the other way round if the
// preferred way is broken; if the order X, Y, Z meets an absent chip both ways, the next order in
// XZY, YXZ, YZX, ZXY, ZYX is tried. One of them always goes through (torus.cpp says why).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "machine/machine.h"

namespace trnsim::machine {

struct Link {
  int32_t from_chip = 0, to_chip = 0;  // -1 = the switch
  int8_t axis = 0;                     // 0, 1, 2 = X, Y, Z of a torus; 3, 4 = switch up, down
  int64_t rate = 0;                    // 1/1024 B/s
  std::string name;                    // "x+ 0>1", "up 3"
};

class Topology {
 public:
  virtual ~Topology() = default;
  int64_t chip_count() const { return chip_count_; }
  const std::vector<Link>& links() const { return links_; }
  // Appends the link ids of the route; nothing when from == to.
  virtual void route(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const = 0;
  int64_t hops(int32_t from_chip, int32_t to_chip) const;
  // Links that leave `chip` along `axis` (torus: one or two; switch: its up link).
  std::vector<int32_t> links_from(int32_t chip, int8_t axis) const;

 protected:
  int64_t chip_count_ = 0;
  std::vector<Link> links_;
};

// The first `chips` chips of the machine. Throws MachineError with the nearest legal counts.
std::unique_ptr<Topology> make_topology(const Machine& machine, int64_t chips);
// All chip counts that make_topology takes, ascending.
std::vector<int64_t> legal_chip_counts(const Machine& machine);
// Extents of the box that the first `chips` chips span, {1,1,1} for a switch.
std::array<int64_t, 3> used_torus(const Machine& machine, int64_t chips);
// Whether the box is full, so that every line along an axis has all its chips.
bool fills_used_torus(const Machine& machine, int64_t chips);
// Whether lines along the axis close to rings: the whole extent is used and there is more than one.
bool axis_wraps(const Machine& machine, int64_t chips, int axis);

struct Placement {
  int64_t chips = 0, ranks_per_chip = 1, ranks = 0;
  int64_t ranks_per_server = 0;
  int64_t chip_of(int64_t rank) const { return rank / ranks_per_chip; }
};
// At most one of chips and ranks may be 0 (then it follows from the other); ranks_per_chip 0 is the
// chip's default. Throws MachineError on contradictions, and on ranks_per_chip that the chip does
// not allow.
Placement make_placement(const Machine& machine, int64_t chips, int64_t ranks,
                         int64_t ranks_per_chip);
// (total - reserved) / ranks_per_chip
int64_t rank_memory_bytes(const Machine& machine, int64_t ranks_per_chip);

}  // namespace trnsim::machine
