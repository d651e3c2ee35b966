// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What the lanes of a role do between two releases, worked out once and replayed for every tile.
//
// In which order tasks start and end between two releases depends on which calls were released,
// never on times (bulk_functors.h). So lanes whose queues have the same heads, with the same calls
// released, do the same list of operations on rows of times: a Segment, from one State to the next.
// A CPU finds it by (role, state, released calls), makes it when it is asked for the first time,
// and replays it (replay.h).
//
// A Segment is cut into pieces, short enough that all times in a piece are 32-bit offsets of one
// base: span_ps bounds how far a piece can take a time beyond the latest time it reads. The bound
// is the piece run once from zero at the largest factor: ends only grow with what they wait for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "simulate/timeline/lane_tables.h"
#include "simulate/timeline/mix.h"

namespace trnsim::simulate {

// Rows of times, by number. The first are constants of the replay.
struct Rows {
  static constexpr int32_t kFactors = 0, kOnes = 3, kMask = 6, kNobody = 7, kFirst = 8;
  int32_t queues = 0, calls = 0, slots = 0;

  int32_t free(int32_t queue) const { return kFirst + queue; }             // end of the last task
  int32_t base(int32_t queue) const { return free(queues) + queue; }       // a started head's end
  int32_t release(int32_t queue) const { return base(queues) + queue; }    // by dense number of
  int32_t arrival(int32_t queue) const { return release(calls) + queue; }  // queues with calls
  int32_t slot(int32_t index) const { return arrival(calls) + index; }
  int32_t count() const { return slot(slots); }
};

struct Term {
  int64_t lag_ps = 0;
  int32_t row = 0;
};

// time = starts ? max(free, terms) + duration : times[from]; then, if it ends, max(time, bounds).
// What is absent reads the queue's own row and writes Rows::kNobody.
struct Op {
  uint64_t seed = 0;
  int64_t duration_ps = 0;
  int32_t from = 0;             // of one that starts: its queue's free row
  int32_t end = Rows::kNobody;  // row of its slot
  int32_t free = 0;             // its queue's row
  int32_t factors = Rows::kOnes;
  int32_t terms_begin = 0;
  uint16_t start_terms = 0, bounds = 0;
  int32_t start = Rows::kNobody;    // row of its start's slot
  int32_t arrival = Rows::kNobody;  // of a call
  int32_t base = Rows::kNobody;     // row of its end but for its bounds, where it only starts
  int32_t task = 0;
  uint8_t starts = 0, ends = 0;
};

// The same again for most operations, in half a cache line: those that start and end, wait for at
// most two terms without lag, keep no start and are short. Where the next operation of the queue
// finds the end in a slot, it reads it there, and one row is written instead of two.
struct QuickOp {
  HashWeights weights;
  uint32_t duration_ps = 0;
  uint16_t from = 0, others[2] = {0, 0}, to = 0, second = Rows::kNobody;
  uint8_t factors = 0;
  uint8_t is_quick : 1 = 0;  // else see the Op
  uint8_t waits : 7 = 0;     // for how many of others
};

struct Piece {
  int32_t begin = 0, end = 0;  // in Segment::ops
  int64_t span_ps = 0;
  std::vector<int32_t> anchors;  // rows read that may not be before the base of 32-bit offsets
  std::vector<int32_t> others;   // rows read that may: they only hold back what an anchor begins
  std::vector<int32_t> written;  // rows that somebody reads afterwards
  // Sums over the ends: of seed, c and c * a (mix.h).
  uint64_t seeds = 0, weights_c = 0, weights_ca = 0;
};

struct Segment {
  std::vector<Op> ops;
  std::vector<QuickOp> quick_ops;  // one for each of ops
  std::vector<Term> terms;
  std::vector<Piece> pieces;
  std::vector<std::pair<int32_t, int32_t>> arrivals;  // (dense number of the queue, task)
  std::vector<int32_t> consumed;                      // dense numbers of queues: releases taken
  int32_t next_state = 0;
};

// Where the queues of a lane stand.
struct LaneState {
  std::vector<int32_t> heads;     // by queue
  std::vector<uint8_t> started;   // by queue
  std::vector<uint8_t> released;  // by dense number: released, but held back by its bounds
  bool operator<(const LaneState& other) const;
};

class PieceCutter;

class Schedule {
 public:
  // max_factor: over all lanes of the role.
  Schedule(const LaneTables& tables, int32_t role, int32_t max_factor);
  ~Schedule();

  int32_t first_state() const { return 0; }
  int32_t find_state(LaneState state, int64_t ended);  // ended: tasks, of one lane
  const LaneState& state(int32_t index) const { return *states_[size_t(index)].state; }
  int64_t ended(int32_t index) const { return states_[size_t(index)].ended; }

  // From `state` when the calls at the heads of `released` (dense numbers, ascending) are released.
  // Null when so many have been made that lanes had better be advanced one by one.
  const Segment* segment(int32_t state, const std::vector<int32_t>& released);

  bool is_full() const { return ops_made_ > ops_allowed_; }  // makes no more

  const Rows& rows() const { return rows_; }

 private:
  struct Known {
    const LaneState* state = nullptr;
    int64_t ended = 0;
    std::vector<std::pair<std::vector<int32_t>, std::unique_ptr<Segment>>> segments;
  };

  std::unique_ptr<Segment> make(int32_t from, const std::vector<int32_t>& released);

  const LaneTables& tables_;
  const RoleTable role_;
  Rows rows_;
  std::unique_ptr<PieceCutter> cutter_;
  int64_t ops_made_ = 0, ops_allowed_;
  std::map<LaneState, int32_t> index_;
  std::vector<Known> states_;
};

}  // namespace trnsim::simulate
