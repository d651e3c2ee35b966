// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/network/transfers.h"

#include <algorithm>

#include "simulate/network/certificate.h"
#include "simulate/network/exact.h"

namespace trnsim::simulate {

int128 remaining_of(int64_t bytes) { return int128(bytes) * kRateUnitsPerBps * kPsPerSecond; }

namespace {

std::vector<int128> capacities_of(const fold::System& system) {
  std::vector<int128> capacities;
  for (const fold::LinkInfo& link : system.links) {
    capacities.push_back(int128(link.rate) * fold::kWeightOne);
  }
  return capacities;
}

}  // namespace

Transfers::Transfers(const fold::System& system, std::unique_ptr<Solver> solver, bool certify)
    : system_(system),
      solver_(std::move(solver)),
      certify_(certify),
      network_(capacities_of(system), system.variables),
      flows_(system.variables.size()) {
  for (size_t link = 0; link < system.links.size(); ++link) {
    for (const fold::RateChange& change : system.links[link].changes) {
      changes_.push_back({change.time_ps, int32_t(link), change.rate});
    }
  }
  std::sort(changes_.begin(), changes_.end(),
            [](const Change& a, const Change& b) { return a.time_ps < b.time_ps; });
}

void Transfers::begin(int64_t instance, const std::vector<int32_t>& phases, int64_t start_ps) {
  TRN_ASSERT(!phases.empty(), "a call without phases ends where it starts");
  if (calls_.size() <= size_t(instance)) calls_.resize(size_t(instance) + 1);
  calls_[size_t(instance)].phases = phases;
  std::vector<int64_t> ended;
  start_phase(instance, start_ps, ended);
}

void Transfers::start_phase(int64_t instance, int64_t now_ps, std::vector<int64_t>& ended) {
  Call& call = calls_[size_t(instance)];
  if (call.phase == call.phases.size()) {
    ended.push_back(instance);
    return;
  }
  const fold::Variable& variable = system_.variables[size_t(call.phases[call.phase])];
  const int64_t entry = now_ps + variable.latency_ps;
  call.times.entry_ps.push_back(entry);
  events_.push({entry, instance, 0, true}, IsStale{flows_});
}

void Transfers::enter(int64_t instance, int64_t now_ps, std::vector<int64_t>& ended) {
  const Call& call = calls_[size_t(instance)];
  const int32_t index = call.phases[call.phase];
  const fold::Variable& variable = system_.variables[size_t(index)];
  if (variable.bytes == 0) {
    end_phase(instance, now_ps, ended);
    return;
  }
  Flow& flow = flows_[size_t(index)];
  TRN_ASSERT(flow.instance < 0, "one call at a time on a communicator");
  flow.instance = instance;
  flow.remaining = remaining_of(variable.bytes);
  flow.since_ps = now_ps;
  flow.rate = 0;
  network_.enter(index);
  if (watches_) moves_.push_back({variable.communicator, true});
}

void Transfers::end_phase(int64_t instance, int64_t now_ps, std::vector<int64_t>& ended) {
  Call& call = calls_[size_t(instance)];
  call.times.end_ps.push_back(now_ps);
  ++call.phase;
  start_phase(instance, now_ps, ended);
}

int64_t Transfers::next_ps() {
  const int64_t event_ps = events_.next_ps(IsStale{flows_}, kNever);
  if (network_.active().empty() || next_change_ == changes_.size()) return event_ps;
  return std::min(event_ps, changes_[next_change_].time_ps);
}

// Those before now_ps found nobody in the network.
void Transfers::change_links(int64_t now_ps) {
  for (; next_change_ < changes_.size(); ++next_change_) {
    const Change& change = changes_[next_change_];
    if (change.time_ps > now_ps) break;
    network_.set_capacity(change.link, int128(change.rate) * fold::kWeightOne);
  }
}

void Transfers::process(int64_t now_ps, std::vector<int64_t>& ended) {
  change_links(now_ps);
  for (Event event; events_.pop(now_ps, IsStale{flows_}, event);) {
    ++event_count_;
    if (event.is_entry) {
      enter(event.target, now_ps, ended);
      continue;
    }
    Flow& flow = flows_[size_t(event.target)];
    const int64_t instance = flow.instance;
    flow.instance = -1;
    ++flow.version;
    network_.leave(int32_t(event.target));
    if (watches_) {
      moves_.push_back({system_.variables[size_t(event.target)].communicator, false});
    }
    end_phase(instance, now_ps, ended);
  }
}

void Transfers::apply_rate(int32_t variable, int64_t now_ps) {
  Flow& flow = flows_[size_t(variable)];
  flow.remaining -= int128(flow.rate) * (now_ps - flow.since_ps);
  flow.since_ps = now_ps;
  flow.rate = network_.rate(variable);
  ++flow.version;
  TRN_ASSERT(flow.remaining > 0, "a flow that is done must have ended");
  if (flow.rate == 0) return;
  const int64_t left_ps = ceil_quotient(flow.remaining, flow.rate);
  TRN_CHECK(left_ps < fold::kLongestPs - now_ps, simulate,
            "a transfer would end after more than 26 days", "check the bandwidth of its links");
  events_.push({now_ps + left_ps, variable, flow.version, false}, IsStale{flows_});
}

void Transfers::solve(int64_t now_ps) {
  if (!network_.has_changed()) return;
  changed_.clear();
  solver_->solve(network_, changed_);
  ++solve_count_;
  if (certify_) {
    const std::string violation = find_violation(network_);
    TRN_ASSERT(violation.empty(), violation);
  }
  for (const int32_t variable : changed_) apply_rate(variable, now_ps);
}

std::optional<Transfers::Stall> Transfers::stalled() const {
  std::vector<int32_t> active = network_.active();
  std::sort(active.begin(), active.end());
  for (const int32_t index : active) {
    if (network_.rate(index) != 0) continue;
    for (const fold::LinkUse& use : system_.variables[size_t(index)].uses) {
      if (network_.capacity(use.link) == 0)
        return Stall{index, use.link, flows_[size_t(index)].since_ps};
    }
  }
  return {};
}

PhaseTimes Transfers::take_times(int64_t instance) {
  if (calls_.size() <= size_t(instance)) return {};
  return std::move(calls_[size_t(instance)].times);
}

int64_t undisturbed_ps(const fold::System& system, const fold::Variable& variable) {
  if (variable.bytes == 0) return variable.latency_ps;
  int128 rate = -1;
  for (const fold::LinkUse& use : variable.uses) {
    const int128 capacity = int128(system.links[size_t(use.link)].rate) * fold::kWeightOne;
    const int128 level = ceil_div(capacity, int128(use.weight));
    if (rate < 0 || level < rate) rate = level;
  }
  if (rate <= 0) return kNever;
  const int128 total_ps = variable.latency_ps + ceil_div(remaining_of(variable.bytes), rate);
  return int64_t(std::min<int128>(total_ps, fold::kLongestPs));  // refused when the call ends
}

}  // namespace trnsim::simulate
