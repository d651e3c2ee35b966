// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Events by time, for a clock that only goes forward: a radix heap.
//
// An event stands in the bucket numbered by the highest bit in which its time differs from the
// clock's. When the clock advances, one bucket is dealt out to lower ones. So pushing costs a few
// cycles and an event far away is never sorted; most are out of date before their time comes, since
// each solve moves the ends of the flows whose rates it changes, and are dropped unseen.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace trnsim::simulate {

// Event has time_ps >= 0. is_stale(event) tells whether it does not count any more.
template <typename Event>
class EventQueue {
 public:
  template <typename IsStale>
  void push(const Event& event, const IsStale& is_stale) {
    TRN_ASSERT(event.time_ps >= clock_ps_, "an event lies before network time");
    if (++size_ > most_) drop_stale(is_stale);
    buckets_[bucket_of(event.time_ps)].push_back(event);
    if (has_next_ && event.time_ps < next_.time_ps) next_ = event;
  }

  // Time of the earliest event, `never` when there is none.
  template <typename IsStale>
  int64_t next_ps(const IsStale& is_stale, int64_t never) {
    if (has_next_ && !is_stale(next_)) return next_.time_ps;
    has_next_ = false;
    for (auto& bucket : buckets_) {
      clean(bucket, is_stale);
      if (bucket.empty()) continue;
      const auto earlier = [](const Event& a, const Event& b) { return a.time_ps < b.time_ps; };
      next_ = *std::min_element(bucket.begin(), bucket.end(), earlier);
      has_next_ = true;
      return next_.time_ps;
    }
    return never;
  }

  // Takes an event at exactly now_ps, which no later call may precede; false when there is none.
  template <typename IsStale>
  bool pop(int64_t now_ps, const IsStale& is_stale, Event& event) {
    if (now_ps != clock_ps_) advance(now_ps, is_stale);
    has_next_ = false;
    auto& due = buckets_[0];
    while (!due.empty()) {
      event = due.back();
      due.pop_back();
      --size_;
      if (!is_stale(event)) return true;
    }
    return false;
  }

 private:
  size_t bucket_of(int64_t time_ps) const {
    return size_t(std::bit_width(uint64_t(time_ps ^ clock_ps_)));
  }

  template <typename IsStale>
  void clean(std::vector<Event>& bucket, const IsStale& is_stale) {
    size_ -= std::erase_if(bucket, is_stale);
  }

  template <typename IsStale>
  void drop_stale(const IsStale& is_stale) {
    for (auto& bucket : buckets_) clean(bucket, is_stale);
    most_ = std::max<size_t>(1024, 2 * size_);
  }

  // Buckets below now's hold nothing that counts: it would lie before now.
  template <typename IsStale>
  void advance(int64_t now_ps, const IsStale& is_stale) {
    const size_t last = bucket_of(now_ps);
    clock_ps_ = now_ps;
    for (size_t i = 0; i <= last; ++i) {
      clean(buckets_[i], is_stale);
      moved_.swap(buckets_[i]);
      for (const Event& event : moved_) {
        TRN_ASSERT(event.time_ps >= now_ps, "an event was passed over");
        buckets_[bucket_of(event.time_ps)].push_back(event);
      }
      moved_.clear();
    }
  }

  std::array<std::vector<Event>, 65> buckets_;
  std::vector<Event> moved_;
  int64_t clock_ps_ = 0;
  size_t size_ = 0, most_ = 1024;
  Event next_{};  // the earliest event as last seen, stale or not
  bool has_next_ = false;
};

}  // namespace trnsim::simulate
