// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Scenario: what is not as it should be in a run. Chips that compute slower, links that are slow or
// dead, from the start or from a time on. Links that are dead from the start are routed around; one
// that dies later keeps what is on it, and a run that waits for it ends with its name.
#pragma once

#include <string>
#include <vector>

#include "fold/job.h"

namespace trnsim::project {

constexpr int64_t kMostFactor = 1000;  // of a slow chip

struct ChipFault {
  int64_t chip = 0;
  int32_t factor = 1 << 16;  // engines take factor / 2^16 times as long; memory and host do not
  int64_t time_ps = 0;       // from then on
};

struct TimedLinkFault {
  machine::LinkFault fault;
  int64_t time_ps = 0;
};

struct Scenario {
  std::vector<ChipFault> chips;
  std::vector<TimedLinkFault> links;
  std::vector<int64_t> pod_places = {};  // machine::Conditions::pod_places
  uint64_t hash_seed = 0;                // machine::Conditions::seed; what it gives is healthy
  bool is_healthy() const { return chips.empty() && links.empty() && pod_places.empty(); }
};

// "17=1.25" or "17=1.25@3ms": chip 17 computes 1.25 times as long, from 3 ms on. "x+ 0>1=0" or
// "nic up 5=0.5@10ms": what is left of a link's bandwidth; machine::LinkFault says what is a link.
// Throws ProjectError, also for a chip or a link that is given twice for the same time.
Scenario parse_scenario(const std::vector<std::string>& slow_chips,
                        const std::vector<std::string>& faults);

// Throws what add_scenario would on a job of so many chips that uses them all, before there is one.
void check_scenario(const Scenario& scenario, const machine::Machine& machine, int64_t chips);

// What holds from the start, for the job's topology.
machine::Conditions conditions_of(const Scenario& scenario);

// Adds the chips, and the links that change later, to the job, whose topology has the conditions.
// Throws MachineError for a link that is not there and ProjectError for a chip that no rank uses.
void add_scenario(const Scenario& scenario, fold::Job& job);

// "engines of chip 5 take 1.25 times as long", "x+ 0>1 is dead from 3 ms on"
std::vector<std::string> describe(const Scenario& scenario);

}  // namespace trnsim::project
