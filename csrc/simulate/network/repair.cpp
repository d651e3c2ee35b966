// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/network/repair.h"

#include <algorithm>

#include "simulate/network/exact.h"

namespace trnsim::simulate {
namespace {

constexpr int64_t kRising = kOpen;  // rate of a flow that no link has stopped yet

}  // namespace

Repair::Repair(std::unique_ptr<WholeSolver> whole, const RepairLimits& limits)
    : whole_(std::move(whole)), limits_(limits) {}

void Repair::solve(Network& network, std::vector<int32_t>& changed) {
  links_.resize(network.link_count());
  flows_.resize(network.flow_count());
  touched_links_.clear();
  touched_flows_.clear();
  ++pass_;
  for (const Departure& left : network.left()) {
    for (const Use& use : network.uses(left.flow)) {
      links_[size_t(use.link)].load -= int128(use.weight) * left.rate;
    }
  }
  const bool much = changed_much(network);
  if (much || !repair(network)) {
    if (!much) {
      undo(network);
      ++given_up_count_;
    }
    solve_whole(network);
  }
  for (const int32_t flow : touched_flows_) {
    if (network.rate(flow) != flows_[size_t(flow)].before) changed.push_back(flow);
  }
  network.forget_changes();
}

bool Repair::changed_much(const Network& network) const {
  int64_t uses = 0;
  for (const int32_t link : network.changed_links()) {
    if (links_[size_t(link)].level != kOpen) uses += int64_t(network.members(link).size());
  }
  for (const int32_t flow : network.entered()) uses += int64_t(network.uses(flow).size());
  return limits_.most_changed * uses > network.active_uses();
}

void Repair::solve_whole(Network& network) {
  ++whole_count_;
  for (const int32_t link : network.changed_links()) touch(link);
  const std::vector<int64_t>& rates = whole_->allocate(network);
  for (size_t i = 0; i < rates.size(); ++i) {
    const int32_t flow = network.active()[i];
    for (const Use& use : network.uses(flow)) touch(use.link);
    if (network.rate(flow) != rates[i]) set_rate(network, flow, rates[i]);
  }
  for (const int32_t link : touched_links_) {
    links_[size_t(link)].level = closing_level(network, link);
    TRN_ASSERT(links_[size_t(link)].level >= 0, "a link was full one level lower");
  }
  for (const int32_t flow : network.active()) {
    TRN_ASSERT(is_stopped(network, flow, network.rate(flow)), "a flow is stopped by no link");
  }
}

bool Repair::repair(Network& network) {
  work_ = 0;
  most_work_ = limits_.most_work * network.active_uses() + limits_.spare_work;
  start(network);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Settling next = heap_.back();
    heap_.pop_back();
    Link& link = links_[size_t(next.link)];
    if (link.queued != next.level) continue;
    link.queued = kOpen;
    settle(network, next.link, next.level);
    if (work_ > most_work_) return false;
  }
  const bool holds = certify(network);
  work_count_ += work_;
  return holds;
}

void Repair::start(Network& network) {
  heap_.clear();
  for (const int32_t flow : network.entered()) {
    if (network.is_active(flow)) set_rate(network, flow, kRising);
  }
  for (const int32_t link : network.changed_links()) {
    queue(link, std::min(earliest_level(network, link), touch(link).level));
  }
}

// Everything below `level` is settled.
void Repair::settle(Network& network, int32_t link, int64_t level) {
  const int64_t earliest = earliest_level(network, link);
  if (earliest > level && links_[size_t(link)].level != level) {
    queue(link, std::min(earliest, links_[size_t(link)].level));
    return;
  }
  int64_t next = earliest > level ? earliest : next_level(network, link, level);
  if (next == level) {
    close(network, link, level);
    return;
  }
  if (links_[size_t(link)].level == level && reopen(network, link, level)) {
    next = earliest_level(network, link);
  }
  queue(link, std::min(next, links_[size_t(link)].level));
}

void Repair::close(Network& network, int32_t link, int64_t level) {
  links_[size_t(link)].level = level;
  work_ += int64_t(network.members(link).size());
  for (const Member& member : network.members(link)) {
    if (network.rate(member.flow) <= level) continue;
    set_rate(network, member.flow, level);
    for (const Use& use : network.uses(member.flow)) {
      // A link that was looked at waits at a level that is no higher than it needs.
      const bool is_new = links_[size_t(use.link)].pass != pass_;
      Link& other = touch(use.link);
      if (is_new) queue(use.link, other.level);
    }
  }
}

// The link does not close at `level` any more. Whether a flow was let go.
bool Repair::reopen(Network& network, int32_t link, int64_t level) {
  links_[size_t(link)].level = kOpen;
  work_ += int64_t(network.members(link).size());
  bool any = false;
  for (const Member& member : network.members(link)) {
    if (network.rate(member.flow) != level || is_stopped(network, member.flow, level)) continue;
    set_rate(network, member.flow, kRising);
    any = true;
    for (const Use& use : network.uses(member.flow)) {
      if (use.link != link) queue(use.link, level);
    }
  }
  return any;
}

// A level below which the link does not close: as if its settled flows had their rates from the
// start. kOpen when it never closes. O(1).
int64_t Repair::earliest_level(const Network& network, int32_t index) const {
  const Link& link = links_[size_t(index)];
  const int128 rest = network.capacity(index) - link.load;
  if (rest <= 0) return 0;
  return link.rising == 0 ? kOpen : ceil_quotient(rest, link.rising);
}

// The smallest u >= level with H(u) >= capacity. H is concave and piecewise linear: from a point
// below, its slope there reaches the capacity no later than H does.
int64_t Repair::next_level(const Network& network, int32_t link, int64_t level) {
  const auto members = network.members(link);
  const int128 capacity = network.capacity(link);
  for (;;) {
    int128 load = 0;
    int64_t rising = 0, next = kRising;
    for (const Member& member : members) {
      const int64_t rate = network.rate(member.flow);
      if (rate <= level) {
        load += int128(member.weight) * rate;
      } else {
        rising += member.weight;
        next = std::min(next, rate);
      }
    }
    work_ += int64_t(members.size());
    load += int128(rising) * level;
    if (load >= capacity) return level;
    if (rising == 0) return kOpen;
    const int64_t step = ceil_quotient(capacity - load, rising);
    level = step < kOpen - level ? level + step : kOpen;
    if (level <= next) return level;
  }
}

bool Repair::is_stopped(const Network& network, int32_t flow, int64_t rate) const {
  const auto uses = network.uses(flow);
  return std::any_of(uses.begin(), uses.end(),
                     [&](const Use& use) { return links_[size_t(use.link)].level == rate; });
}

bool Repair::certify(const Network& network) {
  for (const int32_t flow : touched_flows_) {
    for (const Use& use : network.uses(flow)) touch(use.link);
  }
  for (const int32_t index : touched_links_) {
    const Link& link = links_[size_t(index)];
    const bool holds = link.level == kOpen ? link.rising == 0 && link.load < network.capacity(index)
                                           : closing_level(network, index) == link.level;
    if (!holds) return false;
    const auto members = network.members(index);
    if (link.level != kOpen) work_ += int64_t(members.size());
    if (link.level == link.before || link.before == kOpen) continue;
    work_ += int64_t(members.size());
    for (const Member& member : members) {
      if (network.rate(member.flow) != link.before) continue;
      if (!is_stopped(network, member.flow, link.before)) return false;
    }
  }
  return std::all_of(touched_flows_.begin(), touched_flows_.end(), [&](int32_t flow) {
    const int64_t rate = network.rate(flow);
    return rate != kRising && is_stopped(network, flow, rate);
  });
}

void Repair::undo(Network& network) {
  for (const int32_t flow : touched_flows_) set_rate(network, flow, flows_[size_t(flow)].before);
  for (const int32_t link : touched_links_) {
    links_[size_t(link)].level = links_[size_t(link)].before;
    links_[size_t(link)].queued = kOpen;
  }
  touched_flows_.clear();
  touched_links_.clear();
  ++pass_;
}

Repair::Link& Repair::touch(int32_t index) {
  Link& link = links_[size_t(index)];
  if (link.pass != pass_) {
    link.pass = pass_;
    link.before = link.level;
    touched_links_.push_back(index);
  }
  return link;
}

void Repair::queue(int32_t index, int64_t level) {
  Link& link = touch(index);
  if (level >= link.queued) return;
  link.queued = level;
  heap_.push_back({level, index});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void Repair::set_rate(Network& network, int32_t index, int64_t rate) {
  Flow& flow = flows_[size_t(index)];
  if (flow.pass != pass_) {
    flow.pass = pass_;
    flow.before = network.rate(index);
    touched_flows_.push_back(index);
  }
  const int64_t last = network.rate(index);
  if (last == rate) return;
  network.set_rate(index, rate);
  const int64_t more = (rate == kRising ? 0 : rate) - (last == kRising ? 0 : last);
  const int64_t rises = int64_t(rate == kRising) - int64_t(last == kRising);
  for (const Use& use : network.uses(index)) {
    Link& link = links_[size_t(use.link)];
    link.load += int128(use.weight) * more;
    link.rising += use.weight * rises;
  }
}

}  // namespace trnsim::simulate
