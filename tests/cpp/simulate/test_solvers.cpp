// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Every solver gives the allocation of the definition, on random networks whose flows come and go
// and whose links slow down, die and come back.
#include <gtest/gtest.h>

#include <random>

#include "simulate/network/certificate.h"
#include "simulate/network/repair.h"
#include "simulate/timeline/bulk.h"

namespace trnsim::simulate {
namespace {

using Random = std::mt19937_64;
using Rates = std::vector<int64_t>;

constexpr RepairLimits kNeverWhole{0, 1 << 20, 1024};

std::unique_ptr<Repair> make_repair(const RepairLimits& limits) {
  return std::make_unique<Repair>(make_heap_solver(), limits);
}

// How large the numbers of a network are.
struct Scale {
  int64_t most_capacity;
  int64_t weight_unit;
};
constexpr Scale kScales[] = {
    {20, 1}, {int64_t(1) << 46, 1}, {20, 1 << 16}, {int64_t(1) << 46, 1 << 16}};

struct Case {
  std::vector<int128> capacities;
  std::vector<fold::Variable> variables;
  Scale scale{};

  Case(Random& random, size_t most_links, size_t most_flows) : scale(kScales[random() % 4]) {
    capacities.resize(1 + random() % most_links);
    for (int128& capacity : capacities) capacity = random_capacity(random);
    variables.resize(1 + random() % most_flows);
    const uint64_t sparse = 2 + random() % capacities.size();
    const bool is_weighted = random() % 2 == 0;
    for (fold::Variable& variable : variables) {
      for (size_t link = 0; link < capacities.size(); ++link) {
        if (random() % sparse == 0) add_use(random, variable, int32_t(link), is_weighted);
      }
      if (variable.uses.empty()) {
        add_use(random, variable, int32_t(random() % capacities.size()), is_weighted);
      }
    }
  }
  int128 random_capacity(Random& random) const {
    return int128(1 + random() % uint64_t(scale.most_capacity)) * scale.weight_unit;
  }
  void add_use(Random& random, fold::Variable& variable, int32_t link, bool is_weighted) const {
    int64_t weight =
        is_weighted ? int64_t(1 + random() % 5) * scale.weight_unit : scale.weight_unit;
    if (scale.weight_unit > 1 && random() % 8 == 0) weight = int64_t(1 + random() % weight);
    variable.uses.push_back({link, weight});
  }
};

Rates rates_of(const Network& network) {
  Rates rates;
  for (size_t i = 0; i < network.flow_count(); ++i) rates.push_back(network.rate(int32_t(i)));
  return rates;
}

void flip(Network& network, int32_t flow) {
  network.is_active(flow) ? network.leave(flow) : network.enter(flow);
}

// Some flows come or go, some links get another capacity, a quarter of them 0.
void disturb(Random& random, const Case& of, Network& network) {
  for (uint64_t i = random() % 4; i > 0; --i) {
    flip(network, int32_t(random() % network.flow_count()));
  }
  if (random() % 3 == 0) {
    const auto link = int32_t(random() % network.link_count());
    network.set_capacity(link, random() % 4 == 0 ? int128(0) : of.random_capacity(random));
  }
}

// Solves, and expects `changed` to name exactly the flows whose rates are others.
void solve(Solver& solver, Network& network) {
  const Rates before = rates_of(network);
  std::vector<int32_t> changed;
  solver.solve(network, changed);
  const Rates after = rates_of(network);
  std::vector<bool> is_named(before.size(), false);
  for (const int32_t flow : changed) is_named[size_t(flow)] = true;
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(is_named[i], before[i] != after[i]);
  ASSERT_FALSE(network.has_changed());
}

TEST(Solvers, AgreeOnRandomNetworks) {
  Random random(1);
  const auto reference = make_reference_solver(), heap = make_heap_solver();
  const auto dp = make_dp_solver(Backend::cpp);
  for (int i = 0; i < 20000; ++i) {
    const Case of(random, 7, 10);
    Network network(of.capacities, of.variables);
    for (size_t flow = 0; flow < of.variables.size(); ++flow) {
      if (random() % 5 > 0) network.enter(int32_t(flow));
    }
    const Rates expected = reference->allocate(network);
    ASSERT_EQ(heap->allocate(network), expected) << "network " << i;
    ASSERT_EQ(dp->allocate(network), expected) << "network " << i;
    solve(*make_repair(kNeverWhole), network);
    ASSERT_EQ(reference->allocate(network), expected);
    for (size_t flow = 0; flow < expected.size(); ++flow) {
      ASSERT_EQ(network.rate(network.active()[flow]), expected[flow]) << "network " << i;
    }
    ASSERT_EQ(find_violation(network), "");
  }
}

TEST(Solvers, RepairFollowsEveryChange) {
  Random random(2);
  for (int i = 0; i < 3000; ++i) {
    const Case of(random, 9, 14);
    Network literal(of.capacities, of.variables), network = literal;
    const auto reference = make_reference_solver();
    const auto repair = make_repair(kNeverWhole);
    for (int step = 0; step < 25; ++step) {
      Random same = random;
      disturb(random, of, literal);
      disturb(same, of, network);
      solve(*reference, literal);
      solve(*repair, network);
      ASSERT_EQ(rates_of(network), rates_of(literal)) << "network " << i << " step " << step;
      ASSERT_EQ(find_violation(network), "");
    }
    ASSERT_EQ(repair->given_up_count(), 0);
    ASSERT_EQ(repair->whole_count(), 0);
  }
}

TEST(Solvers, RepairFollowsChangesOfLargeNetworks) {
  Random random(3);
  for (int i = 0; i < 30; ++i) {
    const Case of(random, 120, 300);
    Network whole(of.capacities, of.variables), network = whole;
    const auto heap = make_heap_solver();
    const auto repair = make_repair(kNeverWhole);
    for (int step = 0; step < 200; ++step) {
      Random same = random;
      disturb(random, of, whole);
      disturb(same, of, network);
      solve(*heap, whole);
      solve(*repair, network);
      ASSERT_EQ(rates_of(network), rates_of(whole)) << "network " << i << " step " << step;
    }
    ASSERT_EQ(find_violation(network), "");
    ASSERT_EQ(repair->given_up_count(), 0);
  }
}

TEST(Solvers, RepairGoesOnFromWholeSolvesAndFromOnesItGaveUp) {
  Random random(4);
  int64_t repaired = 0, whole_count = 0, given_up = 0;
  for (int i = 0; i < 300; ++i) {
    const Case of(random, 60, 100);
    Network whole(of.capacities, of.variables), network = whole;
    const auto heap = make_heap_solver();
    // Work for no more than 100 members: large repairs are given up.
    const auto repair = make_repair({4, 0, 100});
    for (int step = 0; step < 60; ++step) {
      Random same = random;
      disturb(random, of, whole);
      disturb(same, of, network);
      solve(*heap, whole);
      solve(*repair, network);
      ASSERT_EQ(rates_of(network), rates_of(whole)) << "network " << i << " step " << step;
    }
    ASSERT_EQ(find_violation(network), "");
    repaired += 60 - repair->whole_count();
    whole_count += repair->whole_count();
    given_up += repair->given_up_count();
  }
  EXPECT_GT(repaired, 1000);
  EXPECT_GT(whole_count - given_up, 1000);
  EXPECT_GT(given_up, 10);
}

TEST(Solvers, DataParallelRoundsAgreeOnLargeNetworksAndOnEveryBackend) {
  Random random(8);
  std::vector<Backend> backends{Backend::cpp, Backend::omp};
  if (has_tbb()) backends.push_back(Backend::tbb);
  if (cuda_device_count() > 0) backends.push_back(Backend::cuda);
  std::vector<std::unique_ptr<WholeSolver>> solvers;
  for (const Backend backend : backends) solvers.push_back(make_dp_solver(backend));
  const auto heap = make_heap_solver();
  // The largest is beyond the size below which one thread does it all.
  for (const size_t most : {60, 60, 300, 300, 1000, 1000, 50'000}) {
    Case of(random, 200, most);
    if (most == 50'000) {
      of.variables.resize(most, of.variables[0]);
      for (auto& variable : of.variables) {
        for (auto& use : variable.uses) use.link = int32_t(random() % of.capacities.size());
      }
    }
    Network network(of.capacities, of.variables);
    for (size_t flow = 0; flow < of.variables.size(); ++flow) network.enter(int32_t(flow));
    for (int step = 0; step < 3; ++step) {
      const Rates expected = heap->allocate(network);
      for (const auto& solver : solvers) ASSERT_EQ(solver->allocate(network), expected);
      for (int i = 0; i < 5; ++i) disturb(random, of, network);
    }
  }
}

TEST(Solvers, ALinkThatIsFarFromFullIsNotGoneThrough) {
  // 2,000 flows, each with a narrow link of its own, over one wide link that never closes.
  constexpr int32_t kFlows = 2000;
  std::vector<int128> capacities(kFlows + 1, 1'000'000'000);
  std::vector<fold::Variable> variables(kFlows);
  for (int32_t flow = 0; flow < kFlows; ++flow) {
    capacities[size_t(flow)] = 100 + flow;
    variables[size_t(flow)].uses = {{flow, 1}, {kFlows, 1}};
  }
  Network network(capacities, variables);
  for (int32_t flow = 0; flow < kFlows; ++flow) network.enter(flow);
  const auto repair = make_repair(RepairLimits{});
  solve(*repair, network);
  ASSERT_EQ(repair->whole_count(), 1);
  for (int32_t flow = 0; flow < 100; ++flow) {
    flip(network, flow);
    solve(*repair, network);
    flip(network, flow);
    solve(*repair, network);
    ASSERT_EQ(network.rate(flow), 100 + flow);
  }
  EXPECT_EQ(repair->whole_count(), 1);
  EXPECT_LT(repair->work_count(), 200 * 5);  // not 200 * 2,000
  // It does close when it must.
  network.set_capacity(kFlows, 2000 * 50);
  solve(*repair, network);
  EXPECT_EQ(network.rate(0), 50);
  EXPECT_EQ(find_violation(network), "");
}

TEST(Solvers, TheCertificateRejectsEveryOtherRate) {
  Random random(5);
  int64_t rejected = 0;
  for (int i = 0; i < 5000; ++i) {
    const Case of(random, 6, 8);
    Network network(of.capacities, of.variables);
    for (size_t flow = 0; flow < of.variables.size(); ++flow) network.enter(int32_t(flow));
    solve(*make_heap_solver(), network);
    ASSERT_EQ(find_violation(network), "");
    // One flow, or several, a little or a lot away from the allocation.
    const Rates right = rates_of(network);
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const auto flow = int32_t(random() % of.variables.size());
      const int64_t rate = network.rate(flow);
      const int64_t by = random() % 2 == 0 ? 1 : int64_t(random() % uint64_t(rate + 2));
      network.set_rate(flow, random() % 2 == 0 ? rate + by : std::max<int64_t>(0, rate - by));
    }
    if (rates_of(network) == right) continue;
    ASSERT_NE(find_violation(network), "") << "network " << i;
    ++rejected;
  }
  EXPECT_GT(rejected, 4000);
}

TEST(Solvers, NamesOfFlowsAndLinksDoNotMatter) {
  Random random(6);
  for (int i = 0; i < 3000; ++i) {
    const Case of(random, 8, 12);
    Case other = of;
    const auto last_link = int32_t(of.capacities.size()) - 1;
    std::reverse(other.capacities.begin(), other.capacities.end());
    std::reverse(other.variables.begin(), other.variables.end());
    for (auto& variable : other.variables) {
      for (auto& use : variable.uses) use.link = last_link - use.link;
      std::reverse(variable.uses.begin(), variable.uses.end());
    }
    Network network(of.capacities, of.variables), renamed(other.capacities, other.variables);
    const auto repair = make_repair(kNeverWhole), repair_renamed = make_repair(kNeverWhole);
    const auto flows = int32_t(of.variables.size());
    for (int step = 0; step < 10; ++step) {
      const auto flow = int32_t(random() % uint64_t(flows));
      flip(network, flow);
      flip(renamed, flows - 1 - flow);
      solve(*repair, network);
      solve(*repair_renamed, renamed);
      Rates rates = rates_of(renamed);
      std::reverse(rates.begin(), rates.end());
      ASSERT_EQ(rates, rates_of(network)) << "network " << i;
    }
  }
}

TEST(Solvers, AWeightIsAMultiplicity) {
  // n equal flows, or one whose weights are n times as large: the same rates for everybody.
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    Case folded(random, 6, 6), expanded = folded;
    expanded.variables.clear();
    Rates expected;
    const Rates multiplicities = [&] {
      Rates counts;
      for (size_t f = 0; f < folded.variables.size(); ++f) counts.push_back(1 + random() % 4);
      return counts;
    }();
    for (size_t f = 0; f < folded.variables.size(); ++f) {
      expanded.variables.insert(expanded.variables.end(), size_t(multiplicities[f]),
                                folded.variables[f]);
      for (auto& use : folded.variables[f].uses) use.weight *= multiplicities[f];
    }
    const auto rates = [](const Case& of) {
      Network network(of.capacities, of.variables);
      for (size_t f = 0; f < of.variables.size(); ++f) network.enter(int32_t(f));
      solve(*make_repair(kNeverWhole), network);
      return rates_of(network);
    };
    const Rates classes = rates(folded);
    for (size_t f = 0; f < classes.size(); ++f) {
      expected.insert(expected.end(), size_t(multiplicities[f]), classes[f]);
    }
    ASSERT_EQ(rates(expanded), expected) << "network " << i;
  }
}

}  // namespace
}  // namespace trnsim::simulate
