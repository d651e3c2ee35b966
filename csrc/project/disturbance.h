// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Disturbances: what goes wrong in a cluster, with chance deciding where. A draw is what one seed
// makes of a disturbance: chips, links, switches and pods of a job, by number.
//
// A dead switch between others may be sprayed around: whoever sent through it spreads packets over
// all that are left, so that of U switches above each of some, d of them dead, every link up to
// them and back stands for (U - d) / U of itself; where the dead ones are leaves under spines, so
// do the links between the leaves of their cluster and the spines. Otherwise (ecmp) each pair of
// chips has one path, and takes the next switch where its own is dead: the neighbour carries twice
// as much. A dead edge switch (a ToR) has nobody beside it: chips take other NICs of their pod.
//
// On a fabric that sprays (Paths::sprayed) the links of a tier are one wide link: of U leaves, d
// dead, what goes up from the edge switches of their cluster and from its leaves stands for
// (U - d) / U of itself; of N spines, d dead, what goes up from every cluster for (N - d) / N.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "machine/topology.h"
#include "project/scenario.h"

namespace trnsim::project {

enum class DisturbanceKind : uint8_t {
  jitter,     // every chip has a factor of its own, normal around 1
  straggler,  // some chips compute slower
  throttle,   // some chips compute slower from some time of the step on
  slow_link,  // some links, one direction each, have a share of their bandwidth left; 0: dead
  dead_chip,  // a chip takes its whole pod out of service
  domain,     // so many pods in a row lose power
  dead_switch,
  hashed_routes,  // ECMP hashes the pairs of chips anew
};

struct Disturbance {
  DisturbanceKind kind = DisturbanceKind::jitter;
  std::string name;        // as written: "slow-link", "dead-link"
  int64_t count = 1;       // chips, links, domains or switches
  std::string amount;      // as written: sigma, factor or share
  std::string tier;        // of the links (empty: any) or switches ("tor", "leaf", "spine")
  int64_t pods = 1;        // of a domain
  int64_t box = 1;         // switches in a row that die together; count is of boxes
  bool is_sprayed = true;  // what used a dead switch spreads over all that are left
};

// What happens at once.
struct DisturbanceSet {
  std::string text;
  std::vector<Disturbance> parts;
};

// "straggler:chips=2,factor=1.1", "jitter:sigma=0.01+slow-link:tier=x,share=0.5". Throws
// ProjectError with the names, or the keys of a name, to choose from.
DisturbanceSet parse_disturbance(const std::string& text);

struct Draw {
  std::vector<std::string> slow_chips, faults;  // as parse_scenario reads them
  std::vector<machine::LinkFault> sprayed;      // links that stand for those of a dead switch, too
  int32_t sigma = 0;                            // of jitter, in 2^-16
  uint64_t hash_seed = 0;                       // of hashed ECMP; 0: the machine's own
  std::vector<int64_t> pods_out;                // ascending
  std::vector<std::string> what;                // in words
};

// Where draws are from: the chips, links and switches of one job.
class Grounds {
 public:
  // step_ps: of the undisturbed step, in which chips begin to throttle.
  Grounds(const machine::Machine& machine, const machine::Topology& topology, int64_t chips_used,
          int64_t step_ps);
  // Throws ProjectError where the job has not as many chips, links, switches or pods of that kind,
  // and for what cannot happen at once.
  void check(const DisturbanceSet& set);
  // Of a set that was checked. Chips and links of one draw are all different.
  Draw draw(const DisturbanceSet& set, uint64_t seed) const;

 private:
  class Drawing;
  const std::vector<int32_t>& links_of(const std::string& tier);
  const std::vector<int32_t>& switches_of(const std::string& tier);
  int64_t domains_of(int64_t pods) const;
  bool is_wide(machine::Tier tier) const;  // its links are many in one
  bool has_wide(const std::string& tier) const;
  int64_t count_of(const Disturbance& part);

  const machine::Machine& machine_;
  const machine::Topology& topology_;
  int64_t chips_, step_ps_;
  std::map<std::string, std::vector<int32_t>> links_;     // by tier
  std::map<std::string, std::vector<int32_t>> switches_;  // nodes, by tier
};

}  // namespace trnsim::project
