// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/timeline/pieces.h"

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "simulate/timeline/mix.h"

namespace trnsim::simulate {
namespace {

constexpr int64_t kFar_ps = int64_t(1) << 40;  // beyond any 32-bit piece

}  // namespace

PieceCutter::PieceCutter(const LaneTables& tables, const RoleTable& role, const Rows& rows,
                         int32_t max_factor)
    : tables_(tables),
      role_(role),
      max_factor_(max_factor),
      rows_(size_t(rows.count())),
      ended_at_(size_t(role.task_count), kNone),
      next_of_queue_(rows_.size(), kNone),
      next_writer_(rows_.size(), kNone) {}

void PieceCutter::cut(Segment& segment) {
  segment_ = &segment;
  piece_ = Piece();
  const int32_t count = int32_t(segment.ops.size());
  for (int32_t index = 0; index < count; ++index) {
    const Op& op = segment.ops[size_t(index)];
    if (op.ends) ended_at_[size_t(op.task)] = index;
  }
  for (int32_t index = 0; index < count; ++index) {
    const Op& op = segment.ops[size_t(index)];
    const bool far = is_far(op), was_far = piece_.span_ps > kPieceSpan_ps;
    const bool breaks = far != was_far || (!far && reach(op) > kPieceSpan_ps);
    if (index > piece_.begin && breaks) finish(index);
    take(op, reach(op));
  }
  if (count > 0) finish(count);
  for (const Op& op : segment.ops) ended_at_[size_t(op.task)] = kNone;
  for (const Piece& piece : segment.pieces) share_rows(piece);
}

void PieceCutter::share_rows(const Piece& piece) {
  for (int32_t index = piece.end; index-- > piece.begin;) {
    const Op& op = segment_->ops[size_t(index)];
    QuickOp& quick = segment_->quick_ops[size_t(index)];
    const int32_t next = next_of_queue_[size_t(op.free)], writer = next_writer_[size_t(op.end)];
    if (quick.is_quick && op.end != Rows::kNobody && next != kNone &&
        segment_->quick_ops[size_t(next)].is_quick && (writer == kNone || next <= writer)) {
      QuickOp& reader = segment_->quick_ops[size_t(next)];
      for (uint16_t& other : reader.others) other = other == reader.from ? quick.second : other;
      reader.from = quick.second;
      quick.to = std::exchange(quick.second, uint16_t(Rows::kNobody));
    }
    next_of_queue_[size_t(op.free)] = index;
    for (const int32_t row : {op.end, op.start}) next_writer_[size_t(row)] = index;
  }
  for (int32_t index = piece.begin; index < piece.end; ++index) {
    const Op& op = segment_->ops[size_t(index)];
    next_of_queue_[size_t(op.free)] = kNone;
    for (const int32_t row : {op.end, op.start}) next_writer_[size_t(row)] = kNone;
  }
}

int64_t PieceCutter::scaled_ps(const Op& op) const {
  const int128 factor = op.factors == Rows::kOnes ? 1 << 16 : max_factor_;
  const int128 scaled = (op.duration_ps * factor + 32768) >> 16;
  return op.duration_ps >> 32 == 0 && scaled < kFar_ps ? int64_t(scaled) : kFar_ps;
}

// Too far for 32 bits whatever comes before it.
bool PieceCutter::is_far(const Op& op) const {
  if (scaled_ps(op) > kPieceSpan_ps) return true;
  for (int32_t i = 0; i < op.start_terms + op.bounds; ++i) {
    const int64_t lag_ps = segment_->terms[size_t(op.terms_begin + i)].lag_ps;
    if (lag_ps < 0 || lag_ps > kPieceSpan_ps) return true;
  }
  return false;
}

// How far beyond what the piece reads the op's times lie.
int64_t PieceCutter::reach(const Op& op) const {
  if (is_far(op)) return kFar_ps;
  int64_t time_ps = rows_[size_t(op.from)].reach_ps;
  const auto wait = [&](int32_t first, int32_t count) {
    for (int32_t i = first; i < first + count; ++i) {
      const Term& term = segment_->terms[size_t(op.terms_begin + i)];
      time_ps = std::max(time_ps, rows_[size_t(term.row)].reach_ps + term.lag_ps);
    }
  };
  wait(0, op.start_terms);
  if (op.starts) time_ps += scaled_ps(op);
  wait(op.start_terms, op.bounds);
  return time_ps;
}

PieceCutter::Row& PieceCutter::touch(int32_t row) {
  Row& at = rows_[size_t(row)];
  if (!at.is_touched) touched_.push_back(row);
  at.is_touched = true;
  return at;
}

void PieceCutter::read(int32_t row, bool is_anchor) {
  Row& at = touch(row);
  if (at.is_written) return;
  at.is_read = true;
  at.is_anchor |= is_anchor;
}

void PieceCutter::write(int32_t row, int64_t reach_ps, int32_t task) {
  if (row == Rows::kNobody) return;
  Row& at = touch(row);
  at.reach_ps = reach_ps;
  at.is_written = true;
  at.task = task;
}

// A start is never later than the op's end, whose reach stands for both.
void PieceCutter::take(const Op& op, int64_t reach_ps) {
  read(op.from, true);
  for (int32_t i = 0; i < op.start_terms + op.bounds; ++i) {
    const Term& term = segment_->terms[size_t(op.terms_begin + i)];
    read(term.row, term.lag_ps != 0);
  }
  write(op.start, reach_ps, op.task);
  write(op.arrival, reach_ps, kNone);
  write(op.base, reach_ps, kNone);
  piece_.span_ps = std::max(piece_.span_ps, reach_ps);
  if (!op.ends) return;
  write(op.end, reach_ps, op.task);
  write(op.free, reach_ps, kNone);
  const HashWeights weights = hash_weights(op.seed);
  piece_.seeds += op.seed;
  piece_.weights_c += weights.c;
  piece_.weights_ca += weights.c * weights.a;
}

// Whether a task that ends at op `end` or later, or not in this segment, reads the times of task.
bool PieceCutter::is_read_from(int32_t end, int32_t task) const {
  const auto first = tables_.first_reader.begin() + role_.task_begin + task;
  return std::any_of(tables_.readers.begin() + first[0], tables_.readers.begin() + first[1],
                     [&](int32_t reader) {
                       const int32_t at = ended_at_[size_t(reader)];
                       return at == kNone || at >= end;
                     });
}

void PieceCutter::finish(int32_t end) {
  piece_.end = end;
  for (const int32_t number : touched_) {
    Row& row = rows_[size_t(number)];
    if (row.is_read) (row.is_anchor ? piece_.anchors : piece_.others).push_back(number);
    if (row.is_written && (row.task == kNone || is_read_from(end, row.task))) {
      piece_.written.push_back(number);
    }
    row = Row();
  }
  touched_.clear();
  for (auto* rows : {&piece_.anchors, &piece_.others, &piece_.written}) {
    std::sort(rows->begin(), rows->end());
  }
  segment_->pieces.push_back(std::move(piece_));
  piece_ = Piece();
  piece_.begin = end;
}

}  // namespace trnsim::simulate
