// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The rounds of dp_functors.h over thrust::device_vector, once for each device system: the includer
// sets THRUST_DEVICE_SYSTEM and TRNSIM_BULK_TARGET, the namespace. Active flows and their links get
// dense numbers; a round goes over what is still open only.
#pragma once

#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/remove.h>
#include <thrust/sequence.h>

#include <vector>

#include "simulate/network/dp_functors.h"
#include "simulate/network/solver.h"
#include "simulate/systems/device.h"

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

class Dp final : public WholeSolver {
 public:
  const std::vector<int64_t>& allocate(const Network& network) override {
    number_flows(network);
    list_members(network);
    upload();
    const DpView view = this->view();
    for (int32_t round = 0; !open_flows_.empty(); ++round) {
      each(open_links_, ShareOfLink{view});
      each(open_flows_, LowestOfFlow{view});
      each(open_links_, IsLocalBottleneck{view});
      each(open_flows_, FreezeFlow{view, round});
      each(open_links_, TakeOutFrozen{view, round});
      drop(open_flows_, HasFrozen{view});
      drop(open_links_, HasClosed{view});
    }
    save(rate_, result_);
    return result_;
  }

 private:
  // 20,000: below that, waking the threads of an OpenMP team costs more than a round does.
  static constexpr size_t kSerial = 20'000;

  template <typename Work>
  static void each(Device<int32_t>& indices, const Work& work) {
    int32_t* const begin = raw(indices);
    if (kHostMemory && indices.size() < kSerial) {
      thrust::for_each(thrust::host, begin, begin + indices.size(), work);
    } else {
      thrust::for_each(thrust::device, begin, begin + indices.size(), work);
    }
  }
  template <typename Predicate>
  static void drop(Device<int32_t>& indices, const Predicate& predicate) {
    int32_t *const begin = raw(indices), *const end = begin + indices.size();
    const int32_t* const last = kHostMemory && indices.size() < kSerial
                                    ? thrust::remove_if(thrust::host, begin, end, predicate)
                                    : thrust::remove_if(thrust::device, begin, end, predicate);
    indices.resize(size_t(last - begin));
  }
  void number_flows(const Network& network) {
    dense_.resize(network.link_count(), -1);
    for (const int32_t link : links_) dense_[size_t(link)] = -1;
    links_.clear();
    uses_.first.assign(1, 0);
    uses_.other.clear();
    uses_.weight.clear();
    for (const int32_t flow : network.active()) {
      for (const Use& use : network.uses(flow)) {
        int32_t& link = dense_[size_t(use.link)];
        if (link < 0) {
          link = int32_t(links_.size());
          links_.push_back(use.link);
        }
        uses_.other.push_back(link);
        uses_.weight.push_back(use.weight);
      }
      uses_.first.push_back(int32_t(uses_.other.size()));
    }
  }

  void list_members(const Network& network) {
    const size_t count = uses_.other.size();
    members_.first.assign(links_.size() + 1, 0);
    for (const int32_t link : uses_.other) ++members_.first[size_t(link) + 1];
    for (size_t i = 0; i < links_.size(); ++i) members_.first[i + 1] += members_.first[i];
    members_.other.resize(count);
    members_.weight.resize(count);
    std::vector<int32_t> filled = members_.first;
    weights_.assign(links_.size(), 0);
    for (size_t flow = 0; flow + 1 < uses_.first.size(); ++flow) {
      for (int32_t i = uses_.first[flow]; i < uses_.first[flow + 1]; ++i) {
        const auto link = size_t(uses_.other[size_t(i)]);
        const auto at = size_t(filled[link]++);
        members_.other[at] = int32_t(flow);
        members_.weight[at] = uses_.weight[size_t(i)];
        weights_[link] += uses_.weight[size_t(i)];
      }
    }
    capacities_.clear();
    for (const int32_t link : links_) capacities_.push_back(network.capacity(link));
  }

  void upload() {
    load(first_use_, uses_.first);
    load(use_link_, uses_.other);
    load(use_weight_, uses_.weight);
    load(first_member_, members_.first);
    load(member_flow_, members_.other);
    load(member_weight_, members_.weight);
    load(rest_, capacities_);
    load(rising_, weights_);
    const size_t flows = uses_.first.size() - 1, links = links_.size();
    rate_.assign(flows, kNoRate);
    lowest_.resize(flows);
    round_.assign(flows, -1);
    top_frozen_.assign(links, 0);
    share_.resize(links);
    is_local_.resize(links);
    open_flows_.resize(flows);
    open_links_.resize(links);
    thrust::sequence(open_flows_.begin(), open_flows_.end());
    thrust::sequence(open_links_.begin(), open_links_.end());
  }

  DpView view() {
    DpView view;
    view.first_use = raw(first_use_);
    view.use_link = raw(use_link_);
    view.use_weight = raw(use_weight_);
    view.rate = raw(rate_);
    view.lowest = raw(lowest_);
    view.round = raw(round_);
    view.first_member = raw(first_member_);
    view.member_flow = raw(member_flow_);
    view.member_weight = raw(member_weight_);
    view.rest = raw(rest_);
    view.rising = raw(rising_);
    view.top_frozen = raw(top_frozen_);
    view.share = raw(share_);
    view.is_local = raw(is_local_);
    return view;
  }

  struct Lists {
    std::vector<int32_t> first, other;
    std::vector<int64_t> weight;
  };
  std::vector<int32_t> dense_;  // number of a link among those in use, -1 of others
  std::vector<int32_t> links_;  // in use
  Lists uses_, members_;
  std::vector<int64_t> weights_;  // of all flows on a link
  std::vector<int128> capacities_;
  std::vector<int64_t> result_;

  Device<int32_t> first_use_, use_link_, first_member_, member_flow_, round_;
  Device<int32_t> open_flows_, open_links_;
  Device<int64_t> use_weight_, member_weight_, rate_, lowest_, rising_, top_frozen_, share_;
  Device<int128> rest_;
  Device<uint8_t> is_local_;
};

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
