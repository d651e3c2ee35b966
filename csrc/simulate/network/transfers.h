// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Transfers: the flows in the network now, what is left of each, and the next thing to happen.
//
// A call begins at T and goes through its phases. A phase's flow enters at T + L and holds no
// bandwidth before; it ends at t0 + ceil(remaining / rate); the next phase starts then. Remaining
// is exact, int128 in (1/1024 B/s x 1 ps), so bringing a flow up to date at one more instant
// changes nothing. Events at one time form one batch and need no order: between them no time
// passes. A solve touches the flows whose rate it changes, and no others. A link whose rate
// changes in mid-run is a change of capacity at that time; weights stay as they are.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "simulate/network/event_queue.h"
#include "simulate/network/solver.h"

namespace trnsim::simulate {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct PhaseTimes {
  std::vector<int64_t> entry_ps, end_ps;
};

class Transfers {
 public:
  // certify: prove the whole allocation at every solve.
  Transfers(const fold::System& system, std::unique_ptr<Solver> solver, bool certify);

  // Call `instance` starts at `start_ps` and has at least one phase.
  void begin(int64_t instance, const std::vector<int32_t>& phases, int64_t start_ps);
  // Time of the next entry, end, or change of a link while flows are in the network; else kNever.
  int64_t next_ps();
  // Handles everything at exactly `now_ps`; appends the calls that end.
  void process(int64_t now_ps, std::vector<int64_t>& ended);
  // New rates, if flows came or went since the last solve.
  void solve(int64_t now_ps);

  // From now on, tells of every flow that enters or leaves the network.
  void watch_flows() { watches_ = true; }
  struct Move {
    int32_t communicator = 0;
    bool enters = false;
  };
  // Those since the last call, in order.
  std::vector<Move> take_moves() { return std::exchange(moves_, {}); }

  // Entry and end of each phase of a call; empty when it never went through the network.
  PhaseTimes take_times(int64_t instance);
  struct Stall {
    int32_t variable = 0, link = 0;
    int64_t since_ps = 0;
  };
  // The first flow that cannot move, and on which link.
  std::optional<Stall> stalled() const;
  int64_t solve_count() const { return solve_count_; }
  int64_t event_count() const { return event_count_; }
  // Solves that looked at the whole network.
  int64_t whole_count() const { return solver_->whole_count(); }

 private:
  struct Event {
    int64_t time_ps;
    int64_t target;    // an instance for an entry, a variable for an end
    uint32_t version;  // of the flow's end; stale when it differs
    bool is_entry;
  };
  struct Flow {
    int128 remaining = 0;
    int64_t since_ps = 0;  // time at which `remaining` was true
    int64_t rate = 0;      // since then
    int64_t instance = -1;
    uint32_t version = 0;
  };
  struct Call {
    std::vector<int32_t> phases;
    size_t phase = 0;
    PhaseTimes times;
  };

  struct Change {
    int64_t time_ps;
    int32_t link;
    int64_t rate;
  };
  struct IsStale {
    const std::vector<Flow>& flows;
    bool operator()(const Event& event) const {
      return !event.is_entry && event.version != flows[size_t(event.target)].version;
    }
  };

  void change_links(int64_t now_ps);
  void start_phase(int64_t instance, int64_t now_ps, std::vector<int64_t>& ended);
  void enter(int64_t instance, int64_t now_ps, std::vector<int64_t>& ended);
  void end_phase(int64_t instance, int64_t now_ps, std::vector<int64_t>& ended);
  void apply_rate(int32_t variable, int64_t now_ps);

  const fold::System& system_;
  std::unique_ptr<Solver> solver_;
  bool certify_;
  Network network_;
  std::vector<Flow> flows_;  // by variable
  std::vector<Call> calls_;  // by instance
  EventQueue<Event> events_;
  std::vector<Change> changes_;  // of links, ascending in time
  size_t next_change_ = 0;
  std::vector<int32_t> changed_;  // flows with another rate, scratch
  bool watches_ = false;
  std::vector<Move> moves_;
  int64_t solve_count_ = 0, event_count_ = 0;
};

// How long a phase that is alone on its links takes: L + ceil(remaining / rate). kNever where a
// link does not move.
int64_t undisturbed_ps(const fold::System& system, const fold::Variable& variable);
// bytes in the units of `remaining`.
int128 remaining_of(int64_t bytes);

}  // namespace trnsim::simulate
