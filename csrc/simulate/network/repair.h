// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Repair: from the last solution, only what changed.
//
// Every link remembers the level at which it closed. What came, went or changed moves the closing
// levels of its links; levels are then looked at in ascending order, as when all rates rise
// together, so that everything below the present level u is settled:
//   a link whose load reaches its capacity at u closes: its flows above u come down to u, and the
//     links that stopped them higher up may stay open longer;
//   a link that closed at u before and does not any more lets go of its flows at u that no other
//     link stops there: they rise, and their links may close earlier.
// Either way consequences lie above u, so each link is settled once a level, and links that no
// consequence reaches are never looked at. From its load alone a link knows a level below which it
// cannot close, so the members of a link that stays far from full are not gone through at all. It
// ends with the certificate on every link it touched and every flow they may have let go of.
//
// When much of the network changed at one time, or the repair has cost as much as that, it solves
// the whole network instead, and counts it.
#pragma once

#include "simulate/network/certificate.h"
#include "simulate/network/solver.h"

namespace trnsim::simulate {

struct RepairLimits {
  // Whole solve when the members of changed links that were full, and the links of flows that came,
  // are more than 1/most_changed of all uses.
  int64_t most_changed = 4;
  // Whole solve after looking at most_work times as many members as there are uses, and spare_work.
  int64_t most_work = 1, spare_work = 1024;
};

class Repair final : public Solver {
 public:
  Repair(std::unique_ptr<WholeSolver> whole, const RepairLimits& limits);
  void solve(Network& network, std::vector<int32_t>& changed) override;
  int64_t whole_count() const override { return whole_count_; }
  // Members of links gone through by repairs and their certificates.
  int64_t work_count() const { return work_count_; }
  // Repairs that were given up: out of work, or refused by the certificate.
  int64_t given_up_count() const { return given_up_count_; }

 private:
  struct Settling {
    int64_t level;
    int32_t link;
    bool operator>(const Settling& other) const { return level > other.level; }
  };
  struct Link {
    int128 load = 0;        // of its flows that do not rise
    int64_t rising = 0;     // weight of those that do
    int64_t level = kOpen;  // at which it closed in the last solution, or does by now
    int64_t before = kOpen;
    int64_t queued = kOpen;  // level at which it is to be looked at
    uint64_t pass = 0;       // in which it was last touched
  };
  struct Flow {
    int64_t before = 0;  // rate in the last solution
    uint64_t pass = 0;
  };

  void solve_whole(Network& network);
  bool repair(Network& network);
  void start(Network& network);
  void settle(Network& network, int32_t link, int64_t level);
  void close(Network& network, int32_t link, int64_t level);
  bool reopen(Network& network, int32_t link, int64_t level);
  int64_t earliest_level(const Network& network, int32_t link) const;
  int64_t next_level(const Network& network, int32_t link, int64_t level);
  bool changed_much(const Network& network) const;
  bool is_stopped(const Network& network, int32_t flow, int64_t rate) const;
  bool certify(const Network& network);
  void undo(Network& network);

  Link& touch(int32_t link);
  void queue(int32_t link, int64_t level);
  void set_rate(Network& network, int32_t flow, int64_t rate);

  std::unique_ptr<WholeSolver> whole_;
  RepairLimits limits_;
  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<Settling> heap_;
  std::vector<int32_t> touched_links_, touched_flows_;
  uint64_t pass_ = 0;
  int64_t work_ = 0, most_work_ = 0;
  int64_t whole_count_ = 0, given_up_count_ = 0, work_count_ = 0;
};

}  // namespace trnsim::simulate
