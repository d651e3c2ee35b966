// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>

#include "machine/topology.h"

namespace trnsim::machine {
namespace {

int64_t check_ranks_per_chip(const Machine& machine, int64_t ranks_per_chip) {
  const std::vector<int64_t>& allowed = machine.chip.ranks_per_chip_allowed;
  if (ranks_per_chip == 0) return allowed.front();
  if (std::find(allowed.begin(), allowed.end(), ranks_per_chip) != allowed.end()) {
    return ranks_per_chip;
  }
  std::string list;
  for (const int64_t ranks : allowed) list += (list.empty() ? "" : ", ") + std::to_string(ranks);
  throw Error(ErrorKind::machine,
              machine.name + " does not take " + std::to_string(ranks_per_chip) + " ranks per chip",
              allowed.size() == 1 ? "use " + list : "use one of " + list);
}

}  // namespace

Placement make_placement(const Machine& machine, int64_t chips, int64_t ranks,
                         int64_t ranks_per_chip) {
  TRN_CHECK(chips >= 0 && ranks >= 0, machine,
            std::to_string(chips < 0 ? chips : ranks) + (chips < 0 ? " chips" : " ranks") +
                " were asked for",
            "use at least 1");
  TRN_CHECK(chips != 0 || ranks != 0, machine, "neither chips nor ranks were given",
            "give one of them, at least 1");
  Placement placement;
  placement.ranks_per_chip = check_ranks_per_chip(machine, ranks_per_chip);
  const std::string per_chip = std::to_string(placement.ranks_per_chip) + " ranks per chip";
  if (chips == 0) {
    const int64_t more = ceil_div(ranks, placement.ranks_per_chip);
    TRN_CHECK(ranks % placement.ranks_per_chip == 0, machine,
              std::to_string(ranks) + " ranks do not fill whole chips at " + per_chip,
              "use " + std::to_string(more * placement.ranks_per_chip) + " ranks");
    chips = more;
  }
  check_chip_count(machine, chips);
  placement.chips = chips;
  placement.ranks = chips * placement.ranks_per_chip;
  TRN_CHECK(ranks == 0 || ranks == placement.ranks, machine,
            std::to_string(ranks) + " ranks on " + std::to_string(chips) + " chips at " + per_chip +
                " contradict each other",
            "leave one out, or use " + std::to_string(placement.ranks) + " ranks");
  placement.ranks_per_server = std::min(chips, machine.server.chips) * placement.ranks_per_chip;
  return placement;
}

int64_t rank_memory_bytes(const Machine& machine, int64_t ranks_per_chip) {
  return (machine.chip.hbm.total_bytes - machine.chip.hbm.reserved_bytes) /
         check_ranks_per_chip(machine, ranks_per_chip);
}

}  // namespace trnsim::machine
