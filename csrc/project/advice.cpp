// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What would help: one thing twice as fast, or free, at a time.
#include <algorithm>

#include "project/variants.h"

namespace trnsim::project {
namespace {

const Rational kTwice{2, 1};
const Rational kFree{1'000'000, 1};  // no time is left of it at picosecond resolution

struct Knob {
  const char* what;  // a word of machine::scaled
  const char* text;
  bool is_free;
  int axis;  // needs links on that axis; -1 = always there
};

constexpr Knob kKnobs[] = {
    {"hbm", "twice the HBM bandwidth", false, -1},
    {"dma", "DMA engines twice as fast", false, -1},
    {"tensor", "tensor engine twice as fast", false, -1},
    {"vector", "vector engine twice as fast", false, -1},
    {"scalar", "scalar engine twice as fast", false, -1},
    {"gpsimd", "gpsimd engine twice as fast", false, -1},
    {"link.x", "twice the bandwidth of the links on axis x", false, 0},
    {"link.y", "twice the bandwidth of the links on axis y", false, 1},
    {"link.z", "twice the bandwidth of the links on axis z", false, 2},
    {"link.switch", "twice the bandwidth of the links to the switch", false, 3},
    {"host_link", "twice the bandwidth to the host", false, -1},
    {"launch", "no launch cost", true, -1},
    {"latency", "no latency of collective steps, hops, fill and drain", true, -1},
};

}  // namespace

std::vector<Change> possible_changes(const machine::Machine& machine, int64_t chips_used) {
  const std::vector<std::string> words = machine::scalable(machine);
  const auto can = [&](const std::string& what) {
    return std::find(words.begin(), words.end(), what) != words.end();
  };
  std::array<bool, 5> has_axis{};
  if (chips_used > 1) {
    const auto topology = machine::make_topology(machine, chips_used);
    for (const machine::Link& link : topology->links()) has_axis[size_t(link.axis)] = true;
  }
  std::vector<Change> changes;
  std::vector<std::string> link_words;
  for (const Knob& knob : kKnobs) {
    if (!can(knob.what)) continue;
    if (knob.axis >= 0) {
      if (!has_axis[size_t(knob.axis)]) continue;
      link_words.push_back(knob.what);
    }
    changes.push_back(
        {knob.text, machine::scaled(machine, knob.what, knob.is_free ? kFree : kTwice)});
  }
  if (can("hbm") && can("dma")) {  // as wide as each other: neither helps alone
    changes.push_back({"HBM and DMA engines twice as fast",
                       machine::scaled(machine::scaled(machine, "hbm", kTwice), "dma", kTwice)});
  }
  if (link_words.size() > 1) {
    machine::Machine all = machine;
    for (const std::string& what : link_words) all = machine::scaled(all, what, kTwice);
    changes.push_back({"twice the bandwidth of every link", std::move(all)});
  }
  return changes;
}

}  // namespace trnsim::project
