// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// From a phase of a call template to its variable: who sends to whom, over which links.
//
// Every send of a phase carries the same `bytes` (an uneven one so many times), so a link's load is
// a count of sends. The link
// with the largest count/capacity is critical (ties: the smallest count; capacities without
// faults). Its weight is 2^16, and progress is bytes on it; another link's weight is floor(2^16
// count / critical count), at least 1. None of that depends on the bytes, so phases of one shape
// share a footprint. Cost: one route per send.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "fold/job.h"

namespace trnsim::fold {

struct Geometry {
  const machine::Topology& topology;
  const machine::Placement& placement;
  std::array<int64_t, 3> extents;  // of the used torus, in one pod
};

// Of a phase, what decides the links.
struct Shape {
  lower::Pattern pattern = lower::Pattern::none;
  lower::Scope scope = lower::Scope::group;
  int8_t axis = 0;
  uint8_t axes_mask = 0;
  int64_t distance = 0;
  int64_t root = 0;  // index in members, for one_to_all and all_to_one
  std::vector<int64_t> parts = {};
  auto operator<=>(const Shape&) const = default;
};
Shape shape_of(const lower::PhaseTemplate& phase, int64_t root);

struct Footprint : FootprintSize {
  std::vector<LinkUse> uses;  // ascending by link
  bool operator==(const Footprint&) const = default;
};

// Traces footprints one after the other, with one table of all links.
class Tracer {
 public:
  explicit Tracer(const Geometry& geometry);
  Footprint trace(const Shape& shape, const std::vector<int32_t>& members);

 private:
  // The members that a scope joins, set by set.
  std::vector<std::vector<int32_t>> split(lower::Scope scope,
                                          const std::vector<int32_t>& members) const;
  int32_t chip_of(int32_t rank) const { return int32_t(geometry_.placement.chip_of(rank)); }
  void count(int32_t link, int64_t sends = 1);
  void send_chip(int32_t from, int32_t to, int64_t sends = 1);
  void send(int32_t from_rank, int32_t to_rank, int64_t sends = 1) {
    send_chip(chip_of(from_rank), chip_of(to_rank), sends);
  }
  void trace_joined(const Shape& shape, const std::vector<int32_t>& members);
  void trace_ring(bool both, const std::vector<int32_t>& members);
  void trace_trees(bool up, const std::vector<int32_t>& members);
  void trace_axes(int8_t axis, bool all, const std::vector<int32_t>& members);
  void trace_uneven(const std::vector<int64_t>& parts, const std::vector<int32_t>& members);
  void trace_multicast(const std::vector<int32_t>& members);
  void count_neighbour(int32_t link);
  void trace_spread(uint8_t axes_mask, const std::vector<int32_t>& members);
  Footprint trace_message(int32_t from_rank, int32_t to_rank);
  void order_touched();
  Footprint finish();

  const Geometry& geometry_;
  std::vector<int64_t> counts_;   // by link
  std::vector<int32_t> touched_;  // links with a count
  std::vector<int32_t> route_;
  int64_t hops_ = 0;
};

// Bytes and latency of the phase; communicator, call, phase index and uses are the caller's: none
// where bytes is 0.
Variable size_phase(const lower::PhaseTemplate& phase, const FootprintSize& footprint);

}  // namespace trnsim::fold
