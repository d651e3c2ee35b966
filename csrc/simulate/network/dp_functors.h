// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The data-parallel rounds, as functors over raw pointers that a CPU thread and a GPU thread run
// alike. Each writes its own link or flow only and reads what another functor wrote before, so
// there are no atomics, and sums of integers come out the same in any order.
//
// A round: every open link says its share; every rising flow takes the lowest of its links; a link
// where no rising flow has less than the share is a local bottleneck, whatever happens elsewhere,
// since shares never fall; its flows freeze; every open link takes out what froze on it. Rounds are
// the depth of the longest chain of bottlenecks, not the number of levels.
#pragma once

#include <cstdint>

#include "simulate/network/exact.h"

namespace trnsim::simulate {

struct DpView {
  // By flow. Uses of flow f: [first_use[f], first_use[f + 1]).
  const int32_t* first_use = nullptr;
  const int32_t* use_link = nullptr;
  const int64_t* use_weight = nullptr;
  int64_t* rate = nullptr;    // kNoRate while it rises
  int64_t* lowest = nullptr;  // share among its links
  int32_t* round = nullptr;   // in which it froze
  // By link. Members of link l: [first_member[l], first_member[l + 1]).
  const int32_t* first_member = nullptr;
  const int32_t* member_flow = nullptr;
  const int64_t* member_weight = nullptr;
  int128* rest = nullptr;         // capacity less the load of frozen flows
  int64_t* rising = nullptr;      // weight of the flows that still rise
  int64_t* top_frozen = nullptr;  // largest rate frozen on it
  int64_t* share = nullptr;
  uint8_t* is_local = nullptr;
};

struct ShareOfLink {
  DpView view;
  TRN_HOST_DEVICE void operator()(int32_t link) const {
    const int128 rest = view.rest[link];
    const int64_t even = rest > 0 ? ceil_quotient(rest, view.rising[link]) : 0;
    view.share[link] = even > view.top_frozen[link] ? even : view.top_frozen[link];
  }
};

struct LowestOfFlow {
  DpView view;
  TRN_HOST_DEVICE void operator()(int32_t flow) const {
    int64_t lowest = kMostRate;
    for (int32_t i = view.first_use[flow]; i < view.first_use[flow + 1]; ++i) {
      const int64_t share = view.share[view.use_link[i]];
      if (share < lowest) lowest = share;
    }
    view.lowest[flow] = lowest;
  }
};

struct IsLocalBottleneck {
  DpView view;
  TRN_HOST_DEVICE void operator()(int32_t link) const {
    uint8_t is_local = 1;
    for (int32_t i = view.first_member[link]; i < view.first_member[link + 1]; ++i) {
      const int32_t flow = view.member_flow[i];
      if (view.rate[flow] < 0 && view.lowest[flow] < view.share[link]) is_local = 0;
    }
    view.is_local[link] = is_local;
  }
};

struct FreezeFlow {
  DpView view;
  int32_t round;
  TRN_HOST_DEVICE void operator()(int32_t flow) const {
    for (int32_t i = view.first_use[flow]; i < view.first_use[flow + 1]; ++i) {
      if (!view.is_local[view.use_link[i]]) continue;
      view.rate[flow] = view.lowest[flow];
      view.round[flow] = round;
      return;
    }
  }
};

struct TakeOutFrozen {
  DpView view;
  int32_t round;
  TRN_HOST_DEVICE void operator()(int32_t link) const {
    for (int32_t i = view.first_member[link]; i < view.first_member[link + 1]; ++i) {
      const int32_t flow = view.member_flow[i];
      if (view.round[flow] != round) continue;
      const int64_t rate = view.rate[flow];
      view.rest[link] -= int128(view.member_weight[i]) * rate;
      view.rising[link] -= view.member_weight[i];
      if (rate > view.top_frozen[link]) view.top_frozen[link] = rate;
    }
  }
};

struct HasFrozen {
  DpView view;
  TRN_HOST_DEVICE bool operator()(int32_t flow) const { return view.rate[flow] >= 0; }
};

struct HasClosed {
  DpView view;
  TRN_HOST_DEVICE bool operator()(int32_t link) const { return view.rising[link] == 0; }
};

}  // namespace trnsim::simulate
