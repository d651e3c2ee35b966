// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Piece: one network of one kind (a pod's torus, hypercube or switch; the fabric), with chips,
// switches and links numbered from 0. Topology puts pieces together. Private to machine/.
#pragma once

#include <memory>

#include "machine/topology.h"

namespace trnsim::machine {

// Which links of a piece work.
struct Alive {
  const std::vector<bool>& dead;  // by link of the whole topology; empty when all work
  int64_t offset = 0;             // of the piece's link 0
  bool operator()(int64_t link) const { return dead.empty() || !dead[size_t(offset + link)]; }
};

class Piece {
 public:
  virtual ~Piece() = default;
  int64_t chip_count() const { return chip_count_; }
  int64_t link_count() const { return link_count_; }
  int64_t switch_count() const { return switch_count_; }
  virtual Link link(int32_t id) const = 0;
  virtual Tier tier(int32_t id) const = 0;    // link(id).tier, at less cost
  virtual int64_t rate(Tier tier) const = 0;  // of its links without faults
  // What its name begins with: "x+", "up"; empty between switches.
  virtual const char* link_label(int32_t id) const = 0;
  // Of a fabric; the switch of a pod is named after the pod.
  virtual std::string switch_name(int32_t index) const;
  // Appends the links of a regular route over links that work; false, with nothing appended, when
  // there is none.
  virtual bool route(int32_t from_chip, int32_t to_chip, const Alive& alive,
                     std::vector<int32_t>& links) const = 0;
  virtual void links_from(int32_t node, std::vector<int32_t>& links) const = 0;
  virtual std::vector<Tier> tiers() const = 0;

  // Of a fabric: the plane of a link, -1 for a chip's own, and that of the routes to a chip; and
  // Topology::shift_between where both planes work.
  virtual int64_t plane_of(int32_t /*link*/) const { return -1; }
  virtual int64_t plane_to(int32_t /*chip*/) const { return -1; }
  virtual std::optional<LinkShift> shift_between(int32_t /*from_chip*/, int32_t /*to_chip*/,
                                                 const Alive&) const {
    return {};
  }

 protected:
  int64_t chip_count_ = 0, link_count_ = 0, switch_count_ = 0;
};

// The pieces of the first `chips` chips; `chips` is legal.
std::unique_ptr<Piece> make_torus(const Machine& machine, int64_t chips);
std::unique_ptr<Piece> make_hypercube(const Machine& machine, int64_t chips);
std::unique_ptr<Piece> make_switch(const Machine& machine, int64_t chips);
std::unique_ptr<Piece> make_clos(const Machine& machine, int64_t chips, uint64_t seed,
                                 const std::vector<int64_t>& pod_places);
// The Clos as what spraying makes of it (Paths::sprayed).
std::unique_ptr<Piece> make_sprayed(const Machine& machine, int64_t chips,
                                    const std::vector<int64_t>& pod_places);

// A rate in 1/1024 B/s, rounded down.
int64_t link_rate(Rational bandwidth_Bps);

}  // namespace trnsim::machine
