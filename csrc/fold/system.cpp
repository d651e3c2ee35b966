// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/system.h"

#include <algorithm>
#include <unordered_map>

#include "workload/messages.h"

namespace trnsim::fold {

int32_t communicator_of(const System& system, int32_t rank, int32_t call) {
  const Rank& at = system.ranks[size_t(rank)];
  const lower::CallTemplate& called = system.roles[size_t(at.role)]->calls[size_t(call)];
  return is_message(called.kind) ? at.communicator_of_message[size_t(call)]
                                 : at.communicator_of_slot[size_t(called.group)];
}

int32_t factor_at(const Rank& rank, int64_t time_ps) {
  int32_t factor = rank.factor;
  for (const FactorChange& change : rank.changes) {
    if (change.time_ps <= time_ps) factor = change.factor;
  }
  return factor;
}

bool has_interference(const System& system) { return system.speeds != machine::kFullSpeeds; }

int32_t slowed_speed(const System& system, lower::QueueKind kind) {
  constexpr int kFirst = int(lower::QueueKind::tensor);
  static_assert(int(lower::QueueKind::dma) - kFirst + 1 == int(machine::kEngines.size()));
  const int engine = int(kind) - kFirst;
  return engine >= 0 && engine < int(system.speeds.size()) ? system.speeds[size_t(engine)]
                                                           : machine::kFullSpeed;
}

Chips chips_of(const System& system) {
  Chips chips;
  std::unordered_map<int32_t, int32_t> known;
  for (size_t rank = 0; rank < system.ranks.size(); ++rank) {
    const auto [found, is_new] =
        known.try_emplace(system.ranks[rank].chip, int32_t(chips.ranks.size()));
    if (is_new) chips.ranks.emplace_back();
    chips.of_rank.push_back(found->second);
    chips.ranks[size_t(found->second)].push_back(int32_t(rank));
  }
  return chips;
}

void mark_private(System& system) {
  constexpr int32_t kNobody = -1, kSeveral = -2;
  std::vector<int32_t> user(system.links.size(), kNobody);
  for (const Variable& variable : system.variables) {
    for (const LinkUse& use : variable.uses) {
      int32_t& at = user[size_t(use.link)];
      at = at == kNobody || at == variable.communicator ? variable.communicator : kSeveral;
    }
  }
  const auto alone = [&](int32_t index) {
    const Variable& variable = system.variables[size_t(index)];
    return std::all_of(variable.uses.begin(), variable.uses.end(), [&](const LinkUse& use) {
      return user[size_t(use.link)] == variable.communicator &&
             system.links[size_t(use.link)].changes.empty();
    });
  };
  for (const auto& calls : system.plan) {
    for (const auto& phases : calls) {
      const bool is_private = std::all_of(phases.begin(), phases.end(), alone);
      for (const int32_t index : phases) system.variables[size_t(index)].is_private = is_private;
    }
  }
}

namespace {

void check(bool holds, const std::string& what) {
  TRN_CHECK(holds, simulate, "malformed System: " + what);
}

void check_length(int128 length_ps, const std::string& what) {
  TRN_CHECK(length_ps < kLongestPs, simulate, what + " takes more than 26 days",
            "simulate a shorter step");
}

bool in_range(int64_t index, size_t size) { return index >= 0 && size_t(index) < size; }

void check_changes(const Rank& rank) {
  int64_t last_ps = -1;
  for (const FactorChange& change : rank.changes) {
    TRN_CHECK(change.time_ps > last_ps && change.factor >= 0, simulate,
              "chip " + std::to_string(rank.chip) + " changes to factor " +
                  std::to_string(change.factor) + " at " + std::to_string(change.time_ps) + " ps",
              "give each time once, in order, and no factor below 0");
    last_ps = change.time_ps;
  }
}

void check_ranks(const System& system) {
  for (const Rank& rank : system.ranks) {
    check(in_range(rank.role, system.roles.size()), "a rank's role");
    check(rank.factor >= 0 && rank.start_ps >= 0 && rank.count > 0, "a rank's factor or start");
    check_changes(rank);
    for (const auto& table : {rank.communicator_of_slot, rank.communicator_of_message}) {
      for (const int32_t communicator : table) {
        check(communicator == -1 || in_range(communicator, system.communicators.size()),
              "a rank's communicator");
      }
    }
    const lower::Program& program = *system.roles[size_t(rank.role)];
    for (size_t call = 0; call < program.calls.size(); ++call) {
      const auto& called = program.calls[call];
      check(is_message(called.kind) ? call < rank.communicator_of_message.size()
                                    : in_range(called.group, rank.communicator_of_slot.size()),
            "a rank does not say on which communicator it calls");
    }
  }
}

// What a rank of the role takes at most between two ends of calls.
int128 longest_ps(const System& system, const lower::Program& program, int32_t factor) {
  int128 total = 0;
  for (const lower::Task& task : program.tasks) {
    const int32_t speed = slowed_speed(system, program.queues[size_t(task.queue)].kind);
    total += int128(task.duration_ps) * std::max(factor, 1 << 16) / speed;
  }
  for (const lower::Dep& dep : program.deps) total += dep.lag_ps;
  return total;
}

void check_lengths(const System& system) {
  std::vector<int32_t> factors(system.roles.size(), 0);
  for (const Rank& rank : system.ranks) {
    int32_t& factor = factors[size_t(rank.role)];
    factor = std::max(factor, rank.factor);
    for (const FactorChange& change : rank.changes) factor = std::max(factor, change.factor);
    check_length(rank.start_ps, "the start of chip " + std::to_string(rank.chip));
  }
  for (size_t role = 0; role < factors.size(); ++role) {
    const lower::Program& program = *system.roles[role];
    check_length(longest_ps(system, program, factors[role]),
                 "what role " + program.role + " computes");
  }
  for (const Variable& variable : system.variables) {
    check_length(variable.latency_ps, "the latency of a transfer");
  }
}

void check_link(const LinkInfo& link) {
  check(link.rate >= 0, "link " + link.name);
  int64_t last_ps = -1;
  for (const RateChange& change : link.changes) {
    TRN_CHECK(change.rate >= 0, simulate, "link " + link.name + " changes to a rate below 0",
              "use 0 for a link that dies");
    TRN_CHECK(change.time_ps > last_ps, simulate,
              "changes of link " + link.name + " do not ascend in time from 0 on",
              "give each time once, in order");
    last_ps = change.time_ps;
  }
}

void check_rank(const System& system, int64_t rank) {
  TRN_CHECK(in_range(rank, system.ranks.size()), simulate,
            "there is no rank " + std::to_string(rank),
            "ranks go from 0 to " + std::to_string(system.ranks.size() - 1));
}

void check_count(const System& system, size_t rank) {
  const int64_t count = system.ranks[rank].count;
  TRN_CHECK(count == 1, simulate,
            "rank " + std::to_string(rank) + " of a folded System stands for " +
                std::to_string(count) + " ranks of the job, and a change would be of them all",
            "change one that is not folded (trnsim.project with fold=False, trnsim.fold.place)");
}

}  // namespace

void check_unfolded(const System& system) {
  for (size_t rank = 0; rank < system.ranks.size(); ++rank) check_count(system, rank);
}

std::shared_ptr<System> with_rank(const System& system, int64_t rank, int32_t factor,
                                  int64_t start_ps) {
  check_rank(system, rank);
  check_count(system, size_t(rank));
  auto result = std::make_shared<System>(system);
  result->ranks[size_t(rank)].factor = factor;
  result->ranks[size_t(rank)].start_ps = start_ps;
  return result;
}

std::shared_ptr<System> with_factor_changes(const System& system, int64_t rank,
                                            const std::vector<FactorChange>& changes) {
  check_rank(system, rank);
  check_count(system, size_t(rank));
  auto result = std::make_shared<System>(system);
  result->ranks[size_t(rank)].changes = changes;
  check_changes(result->ranks[size_t(rank)]);
  return result;
}

std::shared_ptr<System> with_link_changes(const System& system, int64_t link,
                                          const std::vector<RateChange>& changes) {
  TRN_CHECK(in_range(link, system.links.size()), simulate,
            "there is no link " + std::to_string(link),
            "links go from 0 to " + std::to_string(system.links.size() - 1));
  check_unfolded(system);
  auto result = std::make_shared<System>(system);
  result->links[size_t(link)].changes = changes;
  check_link(result->links[size_t(link)]);
  mark_private(*result);
  return result;
}

void check_system(const System& system) {
  for (const auto& role : system.roles) {
    check(role != nullptr, "a role without a Program");
    lower::check_program(*role);
  }
  for (const int32_t speed : system.speeds) {
    check(speed > 0 && speed <= machine::kFullSpeed, "the speed of an engine");
  }
  check_ranks(system);
  check_lengths(system);
  for (const Communicator& communicator : system.communicators) {
    check(!communicator.members.empty(), "a communicator without members");
    for (const int32_t rank : communicator.members) {
      check(in_range(rank, system.ranks.size()), "a communicator's member");
    }
  }
  for (const LinkInfo& link : system.links) check_link(link);
  for (const Variable& variable : system.variables) {
    check(in_range(variable.communicator, system.communicators.size()),
          "a variable's communicator");
    check(variable.bytes >= 0 && variable.latency_ps >= 0, "a variable's bytes or latency");
    check(variable.bytes == 0 || !variable.uses.empty(), "a transfer without a link");
    for (const LinkUse& use : variable.uses) {
      check(in_range(use.link, system.links.size()) && use.weight > 0, "a variable's link");
    }
  }
  check(system.plan.size() == system.communicators.size(), "the plan's size");
  for (const auto& calls : system.plan) {
    for (const auto& phases : calls) {
      for (const int32_t index : phases) {
        check(in_range(index, system.variables.size()), "the plan's variable");
      }
    }
  }
}

}  // namespace trnsim::fold
