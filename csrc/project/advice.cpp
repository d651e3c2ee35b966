// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What would help: one thing twice as fast, or free, at a time.
#include <algorithm>
#include <string_view>

#include "project/variants.h"

namespace trnsim::project {
namespace {

const Rational kTwice{2, 1};
const Rational kFree{1'000'000, 1};  // no time is left of it at picosecond resolution

struct Knob {
  const char* what;  // a word of machine::scaled
  const char* relieves;
  const char* text;  // null: an engine, by its name
  bool is_free;
  std::vector<machine::Tier> tiers;  // needs links of one of them; none = always there
};

using enum machine::Tier;
const Knob kKnobs[] = {
    {"hbm", "memory", "twice the HBM bandwidth", false, {}},
    {"dma", "memory", "DMA engines twice as fast", false, {}},
    {"tensor", "tensor", nullptr, false, {}},
    {"vector", "vector", nullptr, false, {}},
    {"scalar", "scalar", nullptr, false, {}},
    {"gpsimd", "gpsimd", nullptr, false, {}},
    {"link.x", "links", "twice the bandwidth of the links on axis x", false, {x}},
    {"link.y", "links", "twice the bandwidth of the links on axis y", false, {y}},
    {"link.z", "links", "twice the bandwidth of the links on axis z", false, {z}},
    {"link.switch", "links", "twice the bandwidth of the links to the switch", false, {switch_up}},
    {"link.cube", "links", "twice the bandwidth of the links of the hypercube", false, {x}},
    {"link.nic", "links", "twice the bandwidth of the NICs", false, {nic_up}},
    {"link.fabric", "links", "twice the bandwidth between switches", false, {tor_up, leaf_up}},
    {"host_link", "host link", "twice the bandwidth to the host", false, {}},
    {"launch", "host", "no launch cost", true, {}},
    {"latency", "links", "no latency of collective steps and hops", true, {}},
    {"fill", "memory", "no latency of DMA before and after an op", true, {}},
};

// As wide as each other, or one behind the other: neither helps alone.
struct Pair {
  const char* what[2];
  std::string_view relieves;
  const char* text;
};
const Pair kPairs[] = {
    {{"hbm", "dma"}, "memory", "HBM and DMA engines twice as fast"},
    {{"link.x", "link.y"}, "links", "twice the bandwidth of the links on axes x and y"},
    {{"link.nic", "link.fabric"}, "links", "twice the bandwidth of the NICs and between switches"},
};

// Of those whose two are known; whether one is of links.
bool add_pairs(const machine::Machine& machine, const std::vector<std::string>& known,
               std::vector<Change>& changes) {
  const auto is_known = [&](const char* what) {
    return std::find(known.begin(), known.end(), what) != known.end();
  };
  bool is_of_links = false;
  for (const Pair& pair : kPairs) {
    if (!is_known(pair.what[0]) || !is_known(pair.what[1])) continue;
    const machine::Machine one = machine::scaled(machine, pair.what[0], kTwice);
    changes.push_back(
        {std::string(pair.relieves), pair.text, machine::scaled(one, pair.what[1], kTwice)});
    is_of_links |= pair.relieves == "links";
  }
  return is_of_links;
}

}  // namespace

std::vector<Change> possible_changes(const machine::Machine& machine, int64_t chips_used) {
  const std::vector<std::string> words = machine::scalable(machine);
  const auto can = [&](const std::string& what) {
    return std::find(words.begin(), words.end(), what) != words.end();
  };
  const std::vector<machine::Tier> there =
      machine::make_topology(machine, std::max<int64_t>(1, chips_used))->tiers();
  std::vector<Change> changes;
  std::vector<std::string> known, link_words;
  for (const Knob& knob : kKnobs) {
    if (!can(knob.what)) continue;
    if (!knob.tiers.empty()) {
      const bool has_links = std::find_first_of(there.begin(), there.end(), knob.tiers.begin(),
                                                knob.tiers.end()) != there.end();
      if (!has_links) continue;
      link_words.push_back(knob.what);
    }
    known.push_back(knob.what);
    const std::string text =
        knob.text ? knob.text : machine.engine_name(knob.what) + " twice as fast";
    changes.push_back(
        {knob.relieves, text, machine::scaled(machine, knob.what, knob.is_free ? kFree : kTwice)});
  }
  const bool is_every_link = add_pairs(machine, known, changes) && link_words.size() == 2;
  if (link_words.size() > 1 && !is_every_link) {
    machine::Machine all = machine;
    for (const std::string& what : link_words) all = machine::scaled(all, what, kTwice);
    changes.push_back({"links", "twice the bandwidth of every link", std::move(all)});
  }
  return changes;
}

}  // namespace trnsim::project
