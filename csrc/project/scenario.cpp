// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/scenario.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "machine/quantity.h"

namespace trnsim::project {
namespace {

struct Parts {
  std::string where;
  Rational value;
  int64_t time_ps = 0;
};

// WHERE=VALUE[@TIME], or nothing.
std::optional<Parts> split(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) return {};
  const size_t at = text.find('@', equals);
  Parts parts{text.substr(0, equals), {}, 0};
  try {
    parts.value = Rational::parse(text.substr(equals + 1, at - equals - 1));
    if (at == std::string::npos) return parts;
    const std::string time = text.substr(at + 1);
    const size_t letter = time.find_first_not_of("0123456789.");
    if (letter == std::string::npos) return {};
    const machine::Unit* unit = machine::find_unit(time.substr(letter));
    if (unit == nullptr || unit->dimension != machine::Dimension::time) return {};
    parts.time_ps = scale_up(1, Rational::parse(time.substr(0, letter)) * unit->factor);
  } catch (const Error&) {
    return {};
  }
  return parts;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string from_when(int64_t time_ps) {
  return time_ps == 0 ? "" : " from " + number(double(time_ps) * 1e-9) + " ms on";
}

void check_chip(const ChipFault& fault, int64_t chips) {
  TRN_CHECK(fault.chip >= 0 && fault.chip < chips, project,
            "no rank is on chip " + std::to_string(fault.chip),
            "the job uses chips 0 to " + std::to_string(chips - 1));
}

void add_chips(const Scenario& scenario, fold::Job& job) {
  std::map<int64_t, fold::OddRank> odd;  // by rank
  for (const ChipFault& fault : scenario.chips) {
    const int64_t first = fault.chip * job.placement.ranks_per_chip;
    check_chip(fault, (job.rank_count - 1) / job.placement.ranks_per_chip + 1);
    const int64_t end = std::min(first + job.placement.ranks_per_chip, job.rank_count);
    for (int64_t rank = first; rank < end; ++rank) {
      fold::OddRank& at = odd[rank];
      at.rank = rank;
      if (fault.time_ps == 0) {
        at.factor = fault.factor;
      } else {
        at.changes.push_back({fault.time_ps, fault.factor});
      }
    }
  }
  for (auto& [rank, at] : odd) {
    std::stable_sort(at.changes.begin(), at.changes.end(),
                     [](const auto& a, const auto& b) { return a.time_ps < b.time_ps; });
    job.odd_ranks.push_back(std::move(at));
  }
}

// Rates after each time, as a topology with everything up to then has them.
void add_changing_links(const Scenario& scenario, fold::Job& job) {
  std::vector<TimedLinkFault> later;
  machine::Conditions conditions = conditions_of(scenario);
  for (const TimedLinkFault& at : scenario.links) {
    if (at.time_ps > 0) later.push_back(at);
  }
  std::stable_sort(later.begin(), later.end(),
                   [](const auto& a, const auto& b) { return a.time_ps < b.time_ps; });
  std::map<int32_t, std::vector<fold::RateChange>> changes;
  std::map<int32_t, Rational> before = job.topology.faults();
  for (size_t i = 0; i < later.size(); ++i) {
    conditions.faults.push_back(later[i].fault);
    if (i + 1 < later.size() && later[i + 1].time_ps == later[i].time_ps) continue;
    const auto topology = machine::make_topology(job.machine, job.placement.chips, conditions);
    for (const auto& [link, factor] : topology->faults()) {
      const auto known = before.find(link);
      if (known != before.end() && known->second == factor) continue;
      changes[link].push_back({later[i].time_ps, topology->link(link).rate});
    }
    before = topology->faults();
  }
  for (auto& [link, list] : changes) job.changing_links.emplace_back(link, std::move(list));
}

ChipFault parse_slow_chip(const std::string& text) {
  const std::string hint = "write CHIP=FACTOR or CHIP=FACTOR@TIME, such as 17=1.25 or 17=1.25@3ms";
  const std::optional<Parts> parts = split(text);
  TRN_CHECK(parts && parts->where.find_first_not_of("0123456789") == std::string::npos &&
                parts->where.size() < 10,
            project, "'" + text + "' is no slow chip", hint);
  TRN_CHECK(!(parts->value < Rational{1, 1}) && !(Rational{kMostFactor, 1} < parts->value), project,
            "slow chip '" + text + "' has a factor that is not from 1 to 1000", hint);
  const Rational factor = parts->value * Rational{1 << 16, 1};
  return {std::stoll(parts->where), int32_t(scale_up(1, factor)), parts->time_ps};
}

TimedLinkFault parse_fault(const std::string& text) {
  const std::string hint =
      "write LINK=SHARE or LINK=SHARE@TIME with the share of its bandwidth that is left, such as "
      "'x+ 0>1=0' or 'nic up 5=0.5@10ms'";
  const std::optional<Parts> parts = split(text);
  TRN_CHECK(parts, project, "'" + text + "' is no fault", hint);
  TRN_CHECK(!(parts->value < Rational{0, 1}) && !(Rational{1, 1} < parts->value), project,
            "fault '" + text + "' has a share that is not from 0 to 1", hint);
  return {{parts->where, parts->value}, parts->time_ps};
}

}  // namespace

Scenario parse_scenario(const std::vector<std::string>& slow_chips,
                        const std::vector<std::string>& faults) {
  Scenario scenario;
  std::map<std::pair<std::string, int64_t>, std::string> given;
  const auto note = [&](const std::string& where, int64_t time_ps, const std::string& text) {
    const auto [first, is_new] = given.emplace(std::pair(where, time_ps), text);
    TRN_CHECK(is_new, project, "'" + first->second + "' and '" + text + "' are of the same time",
              "keep one of them, or write @TIME after one");
  };
  for (const std::string& text : slow_chips) {
    const ChipFault& fault = scenario.chips.emplace_back(parse_slow_chip(text));
    note(std::to_string(fault.chip), fault.time_ps, text);
  }
  given.clear();
  for (const std::string& text : faults) {
    const TimedLinkFault& at = scenario.links.emplace_back(parse_fault(text));
    note(at.fault.where, at.time_ps, text);
  }
  return scenario;
}

void check_scenario(const Scenario& scenario, const machine::Machine& machine, int64_t chips) {
  for (const ChipFault& fault : scenario.chips) check_chip(fault, chips);
  if (scenario.links.empty()) return;
  machine::Conditions conditions;
  for (const TimedLinkFault& at : scenario.links) conditions.faults.push_back(at.fault);
  machine::make_topology(machine, chips, conditions);
}

machine::Conditions conditions_of(const Scenario& scenario) {
  machine::Conditions conditions;
  conditions.pod_places = scenario.pod_places;
  conditions.seed = scenario.hash_seed;
  for (const TimedLinkFault& at : scenario.links) {
    if (at.time_ps == 0) conditions.faults.push_back(at.fault);
  }
  return conditions;
}

void add_scenario(const Scenario& scenario, fold::Job& job) {
  add_chips(scenario, job);
  add_changing_links(scenario, job);
}

std::vector<std::string> describe(const Scenario& scenario) {
  std::vector<std::string> lines;
  for (const ChipFault& fault : scenario.chips) {
    lines.push_back("engines of chip " + std::to_string(fault.chip) + " take " +
                    number(double(fault.factor) / (1 << 16)) + " times as long" +
                    from_when(fault.time_ps));
  }
  for (const TimedLinkFault& at : scenario.links) {
    const double share = double(at.fault.factor.numerator) / double(at.fault.factor.denominator);
    lines.push_back(at.fault.where +
                    (share == 0 ? " is dead" : " has " + number(share) + " of its bandwidth") +
                    from_when(at.time_ps));
  }
  return lines;
}

}  // namespace trnsim::project
