// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Max-min allocations as small proofs. Capacities here are plain numbers: the solvers do not care
// about the scale.
#include <gtest/gtest.h>

#include "simulate/network/certificate.h"
#include "simulate/network/solver.h"

namespace trnsim::simulate {
namespace {

// Every flow is active.
struct Net {
  std::vector<int128> capacities;
  std::vector<fold::Variable> variables;

  Net(const std::vector<int64_t>& links, const std::vector<std::vector<fold::LinkUse>>& flows) {
    for (const int64_t link : links) capacities.push_back(link);
    for (const auto& uses : flows) {
      variables.emplace_back();
      variables.back().uses = uses;
    }
  }
  Network network() const {
    Network network(capacities, variables);
    for (size_t i = 0; i < variables.size(); ++i) network.enter(int32_t(i));
    return network;
  }
  std::vector<int64_t> rates() const {
    Network network = this->network();
    const std::vector<int64_t> heap = make_heap_solver()->allocate(network);
    std::vector<int32_t> changed;
    make_reference_solver()->solve(network, changed);
    std::vector<int64_t> reference;
    for (size_t i = 0; i < variables.size(); ++i) reference.push_back(network.rate(int32_t(i)));
    EXPECT_EQ(heap, reference);
    EXPECT_EQ(find_violation(network), "");
    return reference;
  }
};

using Rates = std::vector<int64_t>;

TEST(MaxMin, OneFlowTakesItsLink) { EXPECT_EQ(Net({100}, {{{0, 1}}}).rates(), Rates({100})); }

TEST(MaxMin, TwoFlowsOnOneLinkShareEqually) {
  EXPECT_EQ(Net({100}, {{{0, 1}}, {{0, 1}}}).rates(), Rates({50, 50}));
}

TEST(MaxMin, AShareIsRoundedUpForEverybody) {
  // 3 u >= 100 first at u = 34: nobody gets a remainder, the link is over by 2 < 3 units.
  EXPECT_EQ(Net({100}, {{{0, 1}}, {{0, 1}}, {{0, 1}}}).rates(), Rates({34, 34, 34}));
}

TEST(MaxMin, FiveFlowsOnCapacityThreeAllMove) {
  EXPECT_EQ(Net({3}, {{{0, 1}}, {{0, 1}}, {{0, 1}}, {{0, 1}}, {{0, 1}}}).rates(),
            Rates({1, 1, 1, 1, 1}));
}

TEST(MaxMin, AFlowStoppedElsewhereLeavesItsShare) {
  // Flow 0 on links 0 and 1, flow 1 on link 0: link 1 stops flow 0 at 10, flow 1 gets 100 - 10.
  EXPECT_EQ(Net({100, 10}, {{{0, 1}, {1, 1}}, {{0, 1}}}).rates(), Rates({10, 90}));
}

TEST(MaxMin, TheClassicLineOfThree) {
  // A long flow over both links, a short one on each: all get half.
  EXPECT_EQ(Net({10, 10}, {{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}}}).rates(), Rates({5, 5, 5}));
}

TEST(MaxMin, TheLineOfThreeWithUnequalLinks) {
  // Link 0 closes at 5 and stops the long flow; the short one on link 1 gets 30 - 5.
  EXPECT_EQ(Net({10, 30}, {{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}}}).rates(), Rates({5, 5, 25}));
}

TEST(MaxMin, WeightsCountLoadNotProgress) {
  // H(u) = 3 u + u >= 100 at u = 25.
  EXPECT_EQ(Net({100}, {{{0, 3}}, {{0, 1}}}).rates(), Rates({25, 25}));
}

TEST(MaxMin, AWeightedFlowAloneIsSlowerByItsWeight) {
  EXPECT_EQ(Net({100}, {{{0, 4}}}).rates(), Rates({25}));
  EXPECT_EQ(Net({100}, {{{0, 3}}}).rates(), Rates({34}));  // 3 * 33 = 99 < 100 <= 3 * 34
}

TEST(MaxMin, ADeadLinkStopsItsFlowsAndNobodyElse) {
  EXPECT_EQ(Net({0, 10}, {{{0, 1}, {1, 1}}, {{1, 1}}}).rates(), Rates({0, 10}));
}

TEST(MaxMin, ALinkThatNobodyUsesChangesNothing) {
  EXPECT_EQ(Net({100, 1}, {{{0, 1}}, {{0, 1}}}).rates(), Rates({50, 50}));
}

TEST(MaxMin, NoFlowsHaveNoRates) { EXPECT_EQ(Net({100}, {}).rates(), Rates({})); }

TEST(MaxMin, TwoLinksClosingAtOneLevelStopEverything) {
  EXPECT_EQ(Net({20, 20}, {{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}}}).rates(), Rates({10, 10, 10}));
}

TEST(MaxMin, ALinkWithinARoundingOfFullClosesAtTheSameLevel) {
  // Link 0: 2 u >= 19 at 10. Link 1: 2 u >= 20 at 10. A floor would have split these levels.
  EXPECT_EQ(Net({19, 20}, {{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}}}).rates(), Rates({10, 10, 10}));
}

TEST(MaxMin, AnOvershootNeverLowersLaterLevels) {
  // Link 0 stops flows 0 and 1 at ceil(5/2) = 3. Link 1: 3 + u >= 4 at u = 1, but every rate rises
  // together: at level 3, H_1 = 6 >= 4, at level 2, H_1 = 4 >= 4. So link 1 closes at 2 first.
  EXPECT_EQ(Net({5, 4}, {{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}}}).rates(), Rates({2, 3, 2}));
}

TEST(MaxMin, ThreeLevelsInAChain) {
  // Link 0 of 2: flows 0, 1 at 1. Link 1 of 7: 1 + u >= 7 at 6. Link 2 of 20: 6 + u at 14.
  EXPECT_EQ(Net({2, 7, 20}, {{{0, 1}}, {{0, 1}, {1, 1}}, {{1, 1}, {2, 1}}, {{2, 1}}}).rates(),
            Rates({1, 1, 6, 14}));
}

TEST(MaxMin, ARingIsOneCompetitorOnEachOfItsLinks) {
  // A collective with weight 1 on four links against one flow on one of them.
  EXPECT_EQ(Net({8, 8, 8, 8}, {{{0, 1}, {1, 1}, {2, 1}, {3, 1}}, {{2, 1}}}).rates(), Rates({4, 4}));
}

TEST(MaxMin, AMultiplicityIsAWeight) {
  // Four equal flows on one link, or one of weight four: the same rate.
  EXPECT_EQ(Net({100}, {{{0, 1}}, {{0, 1}}, {{0, 1}}, {{0, 1}}}).rates()[0],
            Net({100}, {{{0, 4}}}).rates()[0]);
}

TEST(MaxMin, CapacitiesBeyondSixtyFourBitsAreExact) {
  // 2 Tbit/s in 1/1024 B/s times 2^16, shared by three of weight 2^16: ceil(C / (3 * 2^16)).
  Net net({0}, {{{0, 65536}}, {{0, 65536}}, {{0, 65536}}});
  net.capacities[0] = int128(250'000'000'000) * 1024 * 65536;
  EXPECT_EQ(net.rates()[0], 85'333'333'333'334);
}

TEST(MaxMin, AWeightOfOnePartIn65536IsStillALoad) {
  EXPECT_EQ(Net({65536}, {{{0, 65536}}, {{0, 1}}}).rates(), Rates({1, 1}));
}

TEST(MaxMinCertificate, RejectsEveryOtherAllocation) {
  const Net net({5, 4}, {{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}}});
  const Rates right = net.rates();
  Network network = net.network();
  int64_t accepted = 0;
  for (int64_t a = 0; a < 7; ++a) {
    for (int64_t b = 0; b < 7; ++b) {
      for (int64_t c = 0; c < 7; ++c) {
        const Rates rates{a, b, c};
        for (int32_t flow = 0; flow < 3; ++flow) network.set_rate(flow, rates[size_t(flow)]);
        const bool holds = find_violation(network).empty();
        EXPECT_EQ(holds, rates == right);
        accepted += holds;
      }
    }
  }
  EXPECT_EQ(accepted, 1);
}

}  // namespace
}  // namespace trnsim::simulate
