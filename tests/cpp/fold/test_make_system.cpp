// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "base/error.h"
#include "fold/expand.h"
#include "fold/system.h"

namespace trnsim::fold {
namespace {

using lower::Pattern;
using lower::PhaseTemplate;
using workload::CallKind;
using workload::RankPattern;
using Members = std::vector<int32_t>;

constexpr int64_t kGBps = 1'000'000'000 * int64_t(1024);

// X and Y links of 4 GB/s, Z links of 1 GB/s; servers of one plane of 4 x 4.
machine::Machine torus() {
  machine::Machine machine;
  machine.name = "test torus";
  machine.server.chips = 16;
  machine.torus = {4, 4, 4};
  machine.torus_axis_Bps = {Rational{4'000'000'000, 1}, {4'000'000'000, 1}, {1'000'000'000, 1}};
  machine.chip.ranks_per_chip_allowed = {1, 4};
  return machine;
}

struct Job {
  machine::Machine machine = torus();
  lower::Program program;
  int64_t chips = 16, ranks_per_chip = 1, used_ranks = -1;

  int32_t add_group(const std::string& name, const RankPattern& ranks) {
    program.groups.push_back({name, ranks});
    return int32_t(program.groups.size()) - 1;
  }
  int32_t add_call(CallKind kind, int32_t group, const std::vector<PhaseTemplate>& phases,
                   int32_t peer = -1) {
    lower::CallTemplate call;
    call.kind = kind;
    call.group = group;
    call.peer = peer;
    call.phases = phases;
    program.calls.push_back(call);
    return int32_t(program.calls.size()) - 1;
  }
  System place() const {
    machine::Placement placement;
    placement.chips = chips;
    placement.ranks_per_chip = ranks_per_chip;
    placement.ranks = chips * ranks_per_chip;
    const auto topology = machine::make_topology(machine, chips);
    return make_system(std::make_shared<lower::Program>(program), machine, *topology, placement,
                       used_ranks < 0 ? placement.ranks : used_ranks);
  }
};

RankPattern strided(int64_t start, int64_t stride, int64_t count) {
  return {start, {{stride, count}}, {}};
}

PhaseTemplate phase_of(Pattern pattern, int64_t bytes) {
  PhaseTemplate phase;
  phase.pattern = pattern;
  phase.bytes = bytes;
  return phase;
}

std::string error_of(const Job& job) {
  try {
    job.place();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Groups, TheCapturedRanksGroupIsTranslatedToAllRanks) {
  Job job;
  const int32_t tp = job.add_group("tp", strided(0, 1, 4));
  const int32_t dp = job.add_group("dp", strided(0, 4, 4));
  job.add_call(CallKind::all_reduce, tp, {});
  job.add_call(CallKind::all_reduce, dp, {});
  const System system = job.place();
  ASSERT_EQ(system.communicators.size(), 8u);
  EXPECT_EQ(system.communicators[1].members, Members({4, 5, 6, 7}));
  EXPECT_EQ(system.communicators[6].members, Members({2, 6, 10, 14}));
  EXPECT_EQ(system.ranks[6].communicator_of_slot, Members({1, 6}));
}

TEST(Groups, AGroupOverTwoAxesLeavesTheThird) {
  // Ranks 0, 1 and 8, 9: the family has starts 0, 2, 4, 6.
  Job job;
  job.add_call(CallKind::all_reduce, job.add_group("", RankPattern{0, {{1, 2}, {8, 2}}, {}}), {});
  const System system = job.place();
  ASSERT_EQ(system.communicators.size(), 4u);
  EXPECT_EQ(system.communicators[1].members, Members({2, 3, 10, 11}));
  EXPECT_EQ(system.communicators[1].name, "group 0");
}

TEST(Groups, ListedRanksKeepTheirOrder) {
  Job job;
  job.add_call(CallKind::all_reduce, job.add_group("odd", RankPattern{0, {}, {3, 0, 2, 1}}), {});
  EXPECT_EQ(job.place().communicators[1].members, Members({7, 4, 6, 5}));
}

TEST(Groups, OneThatDoesNotTileTheRanksIsRefused) {
  Job job;
  job.add_call(CallKind::all_reduce, job.add_group("three", strided(0, 1, 3)), {});
  EXPECT_EQ(error_of(job),
            "group 'three' of ranks 0..2 does not tile the 16 ranks: use groups of one shape that "
            "together hold every rank once");
}

TEST(Groups, OneThatNobodyCallsOnMayBeAnything) {
  Job job;
  job.add_group("three", strided(0, 1, 3));
  EXPECT_TRUE(job.place().communicators.empty());
}

TEST(Groups, AScriptWithoutGroupsUsesOneRank) {
  Job job;
  job.used_ranks = 1;
  EXPECT_EQ(job.place().ranks.size(), 1u);
  job.used_ranks = 17;
  EXPECT_NE(error_of(job), "");
}

TEST(Variables, ARingLoadsEachOfItsLinksOnce) {
  // Four chips of the first X row: 0>1>2>3>0, 4 links, 100 bytes each.
  Job job;
  const int32_t group = job.add_group("x", strided(0, 1, 4));
  PhaseTemplate phase = phase_of(Pattern::ring, 100);
  phase.steps = 3;
  phase.step_ps = 1000;
  phase.hop_ps = 10;
  phase.fixed_ps = 7;
  job.add_call(CallKind::all_gather, group, {phase});
  const System system = job.place();
  const Variable& variable = system.variables[size_t(system.plan[0][0][0])];
  EXPECT_EQ(variable.bytes, 100);
  EXPECT_EQ(variable.latency_ps, 3 * 1000 + 1 * 10 + 7);
  ASSERT_EQ(variable.uses.size(), 4u);
  for (const LinkUse& use : variable.uses) {
    EXPECT_EQ(use.weight, kWeightOne);
    EXPECT_EQ(system.links[size_t(use.link)].name.substr(0, 2), "x+");
    EXPECT_EQ(system.links[size_t(use.link)].rate, 4 * kGBps);
  }
  EXPECT_TRUE(variable.is_private);
}

TEST(Variables, TheCriticalLinkHasWeightOneAndOthersRoundDown) {
  // One root sends 8 bytes to each other chip of a Z column of four: 1 and 3 are next to it, 2 is
  // two hops away over chip 1, so link 0>1 carries 2 sends, 0>3 and 1>2 one.
  Job job;
  job.chips = 64;
  const int32_t group = job.add_group("z", strided(0, 16, 4));
  job.add_call(CallKind::broadcast, group, {phase_of(Pattern::one_to_all, 8)}, 0);
  const System system = job.place();
  const Variable& variable = system.variables[size_t(system.plan[0][0][0])];
  EXPECT_EQ(variable.bytes, 16);
  std::vector<int64_t> weights;
  for (const LinkUse& use : variable.uses) weights.push_back(use.weight);
  std::sort(weights.begin(), weights.end());
  EXPECT_EQ(weights, std::vector<int64_t>({32768, 32768, 65536}));
}

TEST(Variables, ASlowLinkIsCriticalThoughItCarriesLess) {
  // From 0 to the box {0, 1} x {Z 0, 1}: X, at 4 GB/s, carries what goes to 1 and 17, and Z, at
  // 1 GB/s, what goes to 16 or, after X, to 17.
  Job job;
  job.chips = 32;
  const int32_t group = job.add_group("xz", RankPattern{0, {{1, 2}, {16, 2}}, {}});
  job.add_call(CallKind::broadcast, group, {phase_of(Pattern::one_to_all, 5)}, 0);
  const System system = job.place();
  const Variable& variable = system.variables[size_t(system.plan[0][0][0])];
  EXPECT_EQ(variable.bytes, 5);
  int slow = 0, fast = 0;
  for (const LinkUse& use : variable.uses) {
    const bool is_slow = system.links[size_t(use.link)].tier == machine::Tier::z;
    EXPECT_EQ(use.weight, is_slow ? kWeightOne : 2 * kWeightOne);
    (is_slow ? slow : fast) += 1;
  }
  EXPECT_EQ(slow, 2);
  EXPECT_EQ(fast, 1);
}

TEST(Variables, RanksOfOneChipUseNoLinks) {
  Job job;
  job.chips = 1;
  job.ranks_per_chip = 4;
  PhaseTemplate phase = phase_of(Pattern::ring, 100);
  phase.steps = 3;
  phase.step_ps = 10;
  job.add_call(CallKind::all_reduce, job.add_group("tp", strided(0, 1, 4)), {phase});
  const System system = job.place();
  EXPECT_EQ(system.variables[0].bytes, 0);
  EXPECT_TRUE(system.variables[0].uses.empty());
  EXPECT_EQ(system.variables[0].latency_ps, 30);
}

TEST(Variables, AxesSpreadLoadsALinkOnceHoweverManyRanksItsChipHas) {
  for (const int64_t ranks_per_chip : {1, 4}) {
    Job job;
    job.ranks_per_chip = ranks_per_chip;
    PhaseTemplate phase = phase_of(Pattern::axes_spread, 50);
    phase.axes_mask = 3;
    const int32_t group = job.add_group("world", strided(0, 1, 16 * ranks_per_chip));
    job.add_call(CallKind::all_gather, group, {phase});
    const System system = job.place();
    EXPECT_EQ(system.variables[0].bytes, 50);
    EXPECT_EQ(system.variables[0].uses.size(), 64u);  // 16 chips, two ways, two axes
  }
}

TEST(Variables, AxisRingsCountEveryMemberOfAChip) {
  for (const int64_t ranks_per_chip : {1, 4}) {
    Job job;
    job.ranks_per_chip = ranks_per_chip;
    PhaseTemplate phase = phase_of(Pattern::axis_ring, 50);
    phase.axis = 1;
    const int32_t group = job.add_group("world", strided(0, 1, 16 * ranks_per_chip));
    job.add_call(CallKind::reduce_scatter, group, {phase});
    const System system = job.place();
    EXPECT_EQ(system.variables[0].bytes, 50 * ranks_per_chip);
    EXPECT_EQ(system.variables[0].uses.size(), 32u);  // Y links of 16 chips, two ways
    for (const LinkUse& use : system.variables[0].uses) {
      EXPECT_EQ(system.links[size_t(use.link)].tier, machine::Tier::y);
    }
  }
}

machine::Fabric two_pods() {
  machine::Fabric fabric;
  fabric.pods = 2;
  fabric.nic_Bps = fabric.port_Bps = Rational{1'000'000'000, 1};
  fabric.tor = fabric.leaf = {32, 32, true};
  fabric.spine_ports = 64;
  return fabric;
}

TEST(Variables, AxisRingsStayInTheirPods) {
  Job job;
  job.machine.fabric = two_pods();
  job.chips = 128;
  PhaseTemplate phase = phase_of(Pattern::axis_ring, 50);
  phase.axis = 2;
  job.add_call(CallKind::reduce_scatter, job.add_group("world", strided(0, 1, 128)), {phase});
  const System system = job.place();
  EXPECT_EQ(system.variables[0].bytes, 50);
  EXPECT_EQ(system.variables[0].uses.size(), 256u);  // Z links of 128 chips, two ways
  for (const LinkUse& use : system.variables[0].uses) {
    EXPECT_EQ(system.links[size_t(use.link)].tier, machine::Tier::z);
  }
}

TEST(Variables, ARingOverTwoPodsPassesTheFabricTwice) {
  Job job;
  job.machine.fabric = two_pods();
  job.chips = 128;
  job.add_call(CallKind::all_gather, job.add_group("world", strided(0, 1, 128)),
               {phase_of(Pattern::ring, 5)});
  const System system = job.place();
  std::vector<std::string> names;
  for (const LinkUse& use : system.variables[0].uses) {
    const LinkInfo& link = system.links[size_t(use.link)];
    if (link.tier > machine::Tier::w) names.push_back(link.name);
  }
  // 63 > 64 and 127 > 0: ToRs of 32 chips, so ToR 1 to 2 and 3 to 0
  EXPECT_EQ(names, (std::vector<std::string>{"nic down 0", "nic up 63", "nic down 64", "nic up 127",
                                             "leaf 0>tor 0", "tor 1>leaf 0", "leaf 0>tor 2",
                                             "tor 3>leaf 0"}));
}

TEST(Variables, WeightsAreThoseOfTheHealthyLinks) {
  // The sends of TheCriticalLinkHasWeightOneAndOthersRoundDown with one of the links that carry a
  // send each at a quarter of its rate: the link with two is still what others are compared with.
  Job job;
  const int32_t group = job.add_group("z", strided(0, 16, 4));
  job.add_call(CallKind::broadcast, group, {phase_of(Pattern::one_to_all, 8)}, 0);
  machine::Placement placement;
  placement.chips = placement.ranks = 64;
  const auto topology = machine::make_topology(job.machine, 64, {{{"z+ 16>32", {1, 4}}}, 0});
  const System system = make_system(std::make_shared<lower::Program>(job.program), job.machine,
                                    *topology, placement, 64);
  const Variable& variable = system.variables[0];
  EXPECT_EQ(variable.bytes, 16);
  std::vector<int64_t> weights;
  int slow = 0;
  for (const LinkUse& use : variable.uses) {
    weights.push_back(use.weight);
    slow += system.links[size_t(use.link)].rate * 4 == kGBps;
  }
  std::sort(weights.begin(), weights.end());
  EXPECT_EQ(weights, std::vector<int64_t>({32768, 32768, 65536}));
  EXPECT_EQ(slow, 1);
}

TEST(Variables, AGroupOfOneHasNone) {
  Job job;
  job.add_call(CallKind::all_reduce, job.add_group("one", strided(0, 1, 1)),
               {phase_of(Pattern::ring, 100)});
  EXPECT_TRUE(job.place().variables.empty());
}

TEST(Variables, GroupsThatShareLinksAreNotPrivate) {
  // Ranks 0, 2 of a chip pair and 1, 3: two data-parallel groups over the same link.
  Job job;
  job.chips = 2;
  job.ranks_per_chip = 4;
  job.add_call(CallKind::all_reduce, job.add_group("dp", strided(0, 4, 2)),
               {phase_of(Pattern::ring, 100)});
  for (const Variable& variable : job.place().variables) EXPECT_FALSE(variable.is_private);
}

TEST(Messages, EveryRankSendsAsManyPlacesOn) {
  Job job;
  const int32_t world = job.add_group("world", strided(0, 1, 16));
  const auto phase = phase_of(Pattern::message, 100);
  const int32_t send = job.add_call(CallKind::send, world, {phase}, 1);
  const int32_t recv = job.add_call(CallKind::recv, world, {phase}, 15);
  const System system = job.place();
  EXPECT_EQ(system.communicators.size(), 1u + 16u);
  for (int32_t rank = 0; rank < 16; ++rank) {
    const int32_t next = (rank + 1) % 16;
    const int32_t sent = communicator_of(system, rank, send);
    EXPECT_EQ(sent, communicator_of(system, next, recv));
    EXPECT_EQ(system.communicators[size_t(sent)].members, Members({rank, next}));
    ASSERT_EQ(system.plan[size_t(sent)][size_t(send)].size(), 1u);
    EXPECT_TRUE(system.plan[size_t(sent)][size_t(recv)].empty());
  }
}

}  // namespace
}  // namespace trnsim::fold
