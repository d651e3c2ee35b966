// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Bins: equal parts of a step, to the picosecond; the first and last of them tile it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace trnsim::report {

class Bins {
 public:
  Bins(int64_t step_ps, int64_t count) : step_ps_(step_ps), count_(count) {}
  int64_t count() const { return count_; }
  int64_t begin(int64_t bin) const { return int64_t(int128(step_ps_) * bin / count_); }
  int64_t width(int64_t bin) const { return begin(bin + 1) - begin(bin); }
  // The bin of an instant; the last one for the end of the step.
  int64_t of(int64_t time_ps) const {
    int64_t bin = std::clamp<int64_t>(int64_t(int128(time_ps) * count_ / step_ps_), 0, count_ - 1);
    while (bin + 1 < count_ && begin(bin + 1) <= time_ps) ++bin;
    return bin;
  }
  // Calls visit(bin, ps) for each bin that [begin_ps, end_ps) touches, with the time in it.
  template <class Visit>
  void spread(int64_t begin_ps, int64_t end_ps, const Visit& visit) const {
    if (begin_ps >= end_ps) return;
    for (int64_t bin = of(begin_ps); bin < count_ && begin(bin) < end_ps; ++bin) {
      const int64_t from = std::max(begin_ps, begin(bin)), to = std::min(end_ps, begin(bin + 1));
      if (from < to) visit(bin, to - from);
    }
  }

 private:
  int64_t step_ps_, count_;
};

}  // namespace trnsim::report
