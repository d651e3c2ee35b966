// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Cuts a Segment into pieces (schedule.h): what each reads and leaves, and how far it takes times.
#pragma once

#include "simulate/timeline/schedule.h"

namespace trnsim::simulate {

// A piece ends where it would go beyond half of what 32 bits hold, so that as much is left for the
// spread of its lanes; an operation that goes beyond it alone stands in a piece with its like.
inline constexpr int64_t kPieceSpan_ps = int64_t(1) << 31;

class PieceCutter {
 public:
  PieceCutter(const LaneTables& tables, const RoleTable& role, const Rows& rows,
              int32_t max_factor);
  void cut(Segment& segment);

 private:
  struct Row {
    int64_t reach_ps = 0;
    int32_t task = kNone;  // that wrote it last, where tasks read it
    bool is_touched = false, is_written = false, is_read = false, is_anchor = false;
  };

  int64_t scaled_ps(const Op& op) const;
  bool is_far(const Op& op) const;
  int64_t reach(const Op& op) const;
  Row& touch(int32_t row);
  void read(int32_t row, bool is_anchor);
  void write(int32_t row, int64_t reach_ps, int32_t task);
  void take(const Op& op, int64_t reach_ps);
  bool is_read_from(int32_t end, int32_t task) const;
  void finish(int32_t end);
  void share_rows(const Piece& piece);

  const LaneTables& tables_;
  const RoleTable& role_;
  int32_t max_factor_;
  Segment* segment_ = nullptr;
  Piece piece_;
  std::vector<Row> rows_;
  std::vector<int32_t> touched_;
  std::vector<int32_t> ended_at_;  // op, by task of this segment
  // Of a piece, from its end: the next op of the queue with this free row, and that writes this
  // row.
  std::vector<int32_t> next_of_queue_, next_writer_;
};

}  // namespace trnsim::simulate
