// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/side_by_side.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace trnsim::fold {
namespace {

// How far the numbers of one System are moved.
struct Offsets {
  int64_t rank = 0, chip = 0, communicator = 0, link = 0, variable = 0;

  void pass(const System& system) {
    int32_t chips = 0;
    for (const Rank& rank : system.ranks) chips = std::max(chips, rank.chip + 1);
    rank += int64_t(system.ranks.size());
    chip += chips;
    communicator += int64_t(system.communicators.size());
    link += int64_t(system.links.size());
    variable += int64_t(system.variables.size());
    for (const int64_t count : {rank, chip, communicator, link, variable}) {
      TRN_CHECK(count <= std::numeric_limits<int32_t>::max(), simulate,
                "scenarios with more than 2^31 links or ranks in all", "simulate fewer at once");
    }
  }
};

void move(int32_t& number, int64_t offset) {
  if (number >= 0) number += int32_t(offset);
}
void move(std::vector<int32_t>& numbers, int64_t offset) {
  for (int32_t& number : numbers) move(number, offset);
}

void append(const System& system, const Offsets& by, System& to) {
  to.links.insert(to.links.end(), system.links.begin(), system.links.end());
  for (Rank rank : system.ranks) {
    move(rank.chip, by.chip);
    move(rank.communicator_of_slot, by.communicator);
    move(rank.communicator_of_message, by.communicator);
    to.ranks.push_back(std::move(rank));
  }
  for (Communicator communicator : system.communicators) {
    move(communicator.members, by.rank);
    to.communicators.push_back(std::move(communicator));
  }
  for (Variable variable : system.variables) {
    move(variable.communicator, by.communicator);
    for (LinkUse& use : variable.uses) move(use.link, by.link);
    to.variables.push_back(std::move(variable));
  }
  for (std::vector<std::vector<int32_t>> calls : system.plan) {
    for (std::vector<int32_t>& phases : calls) move(phases, by.variable);
    to.plan.push_back(std::move(calls));
  }
}

}  // namespace

SideBySide place_side_by_side(const std::vector<std::shared_ptr<const System>>& systems) {
  TRN_CHECK(!systems.empty(), simulate, "no System to place", "give one or more");
  const System& first = *systems.front();
  auto whole = std::make_shared<System>();
  whole->speeds = first.speeds;
  whole->roles = first.roles;
  SideBySide result;
  Offsets offsets;
  for (const auto& system : systems) {
    TRN_CHECK(system->roles == first.roles && system->speeds == first.speeds, simulate,
              "Systems of different Programs", "place those of one Program side by side");
    result.first_rank.push_back(int64_t(whole->ranks.size()));
    append(*system, offsets, *whole);
    offsets.pass(*system);
  }
  result.first_rank.push_back(int64_t(whole->ranks.size()));
  result.system = std::move(whole);
  return result;
}

}  // namespace trnsim::fold
