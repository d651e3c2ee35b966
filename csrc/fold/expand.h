// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// From a phase of a call template to its variable: who sends to whom, over which links.
//
// Every send of a phase carries the same `bytes` (an uneven one so many times, on a link of a pod
// or of the fabric as often as the phase says), so a link's load is
// a count of sends. A footprint is these counts: phases of one shape share it, whatever their bytes
// and the rates of links. The link with the largest count/rate is critical (ties: the smallest
// count; rates without faults, one for each tier). Its weight is 2^16, and progress is bytes on it;
// another link's weight is floor(2^16 count / critical count), at least 1. Cost: one route per
// send.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "fold/id_set.h"
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
  int64_t in_pod_sends = 1, fabric_sends = 1;
  auto operator<=>(const Shape&) const = default;
};
Shape shape_of(const lower::PhaseTemplate& phase, int64_t root);

// What, with the rates of links, the bytes and the latency of a variable follow from.
struct FootprintSize {
  std::array<int64_t, machine::kTiers> most_sends = {};  // over one link of the tier
  int64_t hops = 0;                                      // the longest route
  bool operator==(const FootprintSize&) const = default;
};

struct LinkLoad {
  int32_t link = 0;
  int64_t sends = 0;
  bool operator==(const LinkLoad&) const = default;
};

struct Footprint : FootprintSize {
  std::vector<LinkLoad> loads;  // ascending by link
  bool operator==(const Footprint&) const = default;
};

// By tier, without faults.
using TierRates = std::array<int64_t, machine::kTiers>;
TierRates rates_of(const machine::Topology& topology);

// Sends over the critical link; 0 where no link is used.
int64_t critical_sends(const FootprintSize& size, const TierRates& rates);
// Of a link with so many sends.
int64_t weight_of(int64_t sends, int64_t critical_sends);

// Traces footprints one after the other, with one table of all links. What follows from the members
// alone is kept until others are given.
class Tracer {
 public:
  explicit Tracer(const Geometry& geometry);
  Footprint trace(const Shape& shape, const std::vector<int32_t>& members);

 private:
  using Chips = std::vector<int32_t>;  // of members, in group order

  void look_at(const std::vector<int32_t>& members);
  // The members that a scope joins, set by set.
  const std::vector<Chips>& split(lower::Scope scope);
  std::vector<Chips> by_pod() const;
  void count(int32_t link, int64_t sends = 1);
  void send(int32_t from_chip, int32_t to_chip, int64_t sends = 1);
  void trace_joined(const Shape& shape, const Chips& chips);
  void trace_ring(bool both, const Chips& chips);
  void trace_trees(bool up, const Chips& chips);
  void trace_axes(int8_t axis, bool all);
  void trace_uneven(const std::vector<int64_t>& parts, bool is_back);
  void trace_rails(const std::vector<int64_t>& parts);
  void count_neighbour(int32_t link);
  void trace_spread(uint8_t axes_mask);
  Footprint finish(const Shape& shape);

  const Geometry& geometry_;
  std::vector<int32_t> members_;  // looked at
  Chips chips_;                   // theirs
  std::map<lower::Scope, std::vector<Chips>> splits_;
  std::vector<int64_t> counts_;  // by link
  IdSet counted_;                // links with a count
  int64_t counted_size_ = 0;
  std::vector<int32_t> route_;
  int64_t hops_ = 0;
};

// Bytes and latency of the phase; communicator, call, phase index and uses are the caller's: none
// where bytes is 0.
Variable size_phase(const lower::PhaseTemplate& phase, int64_t hops, int64_t critical_sends);

}  // namespace trnsim::fold
