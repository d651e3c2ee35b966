// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A lazy heap: shares never fall, so a link stands in it once, under a share that may be out of
// date, and is put back deeper when it comes up too early. Freezing a flow touches no heap.
#include <algorithm>

#include "simulate/network/exact.h"
#include "simulate/network/solver.h"

namespace trnsim::simulate {
namespace {

struct Rest {
  int128 rest = 0;         // capacity less the load of frozen flows; below 0 by rounding
  int64_t rising = 0;      // weight of the flows that still rise
  int64_t top_frozen = 0;  // largest rate frozen on it

  int64_t share() const { return std::max(top_frozen, rest > 0 ? ceil_quotient(rest, rising) : 0); }
};

struct Waiting {
  int64_t share;
  int32_t link;
  bool operator<(const Waiting& other) const { return share < other.share; }
};

class Heap final : public WholeSolver {
 public:
  const std::vector<int64_t>& allocate(const Network& network) override {
    links_.resize(network.link_count());
    frozen_.resize(network.flow_count());
    start(network);
    while (!heap_.empty()) {
      Waiting& lowest = heap_.front();
      const Rest& link = links_[size_t(lowest.link)];
      const int64_t share = link.rising == 0 ? lowest.share : link.share();
      if (share > lowest.share) {
        lowest.share = share;
        sink(0);
        continue;
      }
      if (link.rising > 0) close(network, lowest.link, share);
      heap_.front() = heap_.back();
      heap_.pop_back();
      sink(0);
    }
    rates_.clear();
    for (const int32_t flow : network.active()) rates_.push_back(frozen_[size_t(flow)]);
    return rates_;
  }

 private:
  void start(const Network& network) {
    heap_.clear();
    for (const int32_t flow : network.active()) {
      frozen_[size_t(flow)] = kNoRate;
      for (const Use& use : network.uses(flow)) {
        Rest& link = links_[size_t(use.link)];
        if (link.rising == 0) {
          link = {network.capacity(use.link), 0, 0};
          heap_.push_back({0, use.link});
        }
        link.rising += use.weight;
      }
    }
    for (Waiting& waiting : heap_) waiting.share = links_[size_t(waiting.link)].share();
    for (size_t i = heap_.size() / 2; i-- > 0;) sink(i);
  }

  // When all flows are frozen every link's `rising` is 0 again, as start() needs it.
  void close(const Network& network, int32_t closing, int64_t level) {
    for (const Member& member : network.members(closing)) {
      int64_t& rate = frozen_[size_t(member.flow)];
      if (rate != kNoRate) continue;
      rate = level;
      for (const Use& use : network.uses(member.flow)) {
        Rest& link = links_[size_t(use.link)];
        link.rest -= int128(use.weight) * level;
        link.rising -= use.weight;
        link.top_frozen = level;  // levels ascend
      }
    }
  }

  void sink(size_t at) {
    if (at >= heap_.size()) return;
    const Waiting waiting = heap_[at];
    for (size_t child; (child = 2 * at + 1) < heap_.size(); at = child) {
      child += child + 1 < heap_.size() && heap_[child + 1] < heap_[child];
      if (!(heap_[child] < waiting)) break;
      heap_[at] = heap_[child];
    }
    heap_[at] = waiting;
  }

  std::vector<Rest> links_;      // by link; of use only while a flow on it rises
  std::vector<int64_t> frozen_;  // by flow
  std::vector<Waiting> heap_;
  std::vector<int64_t> rates_;
};

}  // namespace

std::unique_ptr<WholeSolver> make_heap_solver() { return std::make_unique<Heap>(); }

}  // namespace trnsim::simulate
