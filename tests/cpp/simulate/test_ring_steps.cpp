// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Collectives in steps against the same ones as fluids: alone, on slow links, with members that
// come late, and crossing one another.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "rings.h"

namespace trnsim::rings {
namespace {

using workload::CallKind;

constexpr CallKind kKinds[] = {CallKind::all_reduce, CallKind::all_gather, CallKind::reduce_scatter,
                               CallKind::barrier};
constexpr int64_t kSizes[] = {1, 7, 1000, 12'345'678, 1 << 24};

machine::Machine in_pods(machine::Machine machine) {
  machine.fabric.pods = 4096;
  machine.fabric.nic_Bps = machine.fabric.port_Bps = Rational::parse("25e9");
  const int64_t ports = machine.chip.architecture == machine::Architecture::gpu ? 8 : 16;
  machine.fabric.tor = {ports, ports, false};
  machine.fabric.leaf = {16, 16, false};
  machine.fabric.spine_ports = 4096;
  machine.fabric.step_ps = 15'000'000;
  return machine;
}

Scene on_group(Scene scene, workload::RankPattern group) {
  scene.group = std::move(group);
  return scene;
}

int64_t steps_of(const lower::Program& program) {
  int64_t steps = 0;
  for (const lower::CallTemplate& call : program.calls) {
    for (const lower::PhaseTemplate& phase : call.phases) steps += phase.steps;
  }
  return steps;
}

// Messages a step, each rounded up to a picosecond of its own.
void expect_as_fluid(const Scene& scene, const std::string& what) {
  const int64_t fluid_ps = makespan(fluid(scene)), step_ps = makespan(stepped(scene));
  EXPECT_GE(step_ps, fluid_ps) << what << " " << scene.bytes;
  EXPECT_LE(step_ps, fluid_ps + steps_of(fluid_program(scene))) << what << " " << scene.bytes;
}

bool is_in_steps(const Scene& scene) {
  const auto program = lower::in_steps(fluid_program(scene), scene.machine, scene.placement);
  return program.calls[0].step_of.has_value();
}

std::map<std::string, Scene> undisturbed() {
  const auto server = lower::testing::trainium(1), ultra = lower::testing::trainium(4);
  const auto hopper = lower::testing::hopper();
  std::map<std::string, Scene> scenes;
  for (const int64_t chips : {2, 4, 16}) {
    scenes["ring of " + std::to_string(chips)] = all_of(server, chips, "ring");
    scenes["switch of " + std::to_string(chips / 2)] =
        all_of(hopper, std::max<int64_t>(2, chips / 2), "ring");
  }
  scenes["ring of 3"] = all_of(hopper, 3, "ring");
  scenes["ring of 64"] = all_of(ultra, 64, "ring");
  scenes["axes"] = all_of(server, 16, "axis_rings");
  scenes["three axes"] = all_of(ultra, 64, "axis_rings");
  scenes["four ranks a chip"] = all_of(server, 16, "ring", 4);
  scenes["axes, four ranks a chip"] = all_of(server, 16, "axis_rings", 4);
  scenes["rows"] = on_group(all_of(server, 16, "ring"), {0, {{1, 4}}, {}});
  scenes["columns"] = on_group(all_of(server, 16, "ring"), {0, {{4, 4}}, {}});
  scenes["pairs"] = on_group(all_of(server, 16, "ring"), {0, {{1, 2}}, {}});
  scenes["planes"] = on_group(all_of(ultra, 64, "axis_rings"), {0, {{4, 4}, {16, 4}}, {}});
  scenes["every second"] = on_group(all_of(hopper, 8, "ring"), {0, {{2, 4}}, {}});
  for (const int64_t chips : {2, 3, 8}) {
    scenes["halving of " + std::to_string(chips)] = all_of(hopper, chips, "rdh");
  }
  for (const int64_t pods : {2, 3, 4}) {
    for (const char* name : {"ring", "hierarchical_ring", "hierarchical_rdh"}) {
      const std::string what = std::string(name) + " of " + std::to_string(pods);
      scenes["servers, " + what] = all_of(in_pods(hopper), 8 * pods, name);
      const Scene torus = all_of(in_pods(server), 16 * pods, name);
      scenes["across, " + what] = on_group(torus, {0, {{16, pods}}, {}});
      scenes["rows across, " + what] = on_group(torus, {0, {{1, 4}, {16, pods}}, {}});
    }
  }
  return scenes;
}

TEST(InSteps, TakesAsLongAsTheFluidWhereNothingDisturbsIt) {
  for (auto [what, scene] : undisturbed()) {
    ASSERT_TRUE(is_in_steps(scene)) << what;
    for (const CallKind kind : kKinds) {
      for (const int64_t bytes : kSizes) {
        scene.kind = kind;
        scene.bytes = bytes;
        expect_as_fluid(scene, what + " " + workload::call_kind_name(kind));
      }
    }
  }
}

// Peers are told from the captured rank, whichever it is.
TEST(InSteps, IsTheSameWhicheverRankIsCaptured) {
  for (auto [what, scene] : undisturbed()) {
    const auto expected = simulate::simulate_step(stepped(scene), {});
    std::vector<int64_t> members;
    for (int64_t i = 0; i < scene.group.size(); ++i) members.push_back(scene.group.rank_at(i));
    for (const size_t at : {size_t(1), members.size() / 2, members.size() - 1}) {
      scene.captured = members[at];
      EXPECT_EQ(simulate::simulate_step(stepped(scene), {}).hash, expected.hash)
          << what << " from rank " << scene.captured;
    }
  }
}

// A ring, one that stays fluid, rings on other groups: each waits for the one before it.
TEST(InSteps, KeepsTheOrderOfAStream) {
  Scene scene = all_of(lower::testing::trainium(1), 16, "ring");
  scene.beside = {{CallKind::all_reduce, 1 << 20, "mesh", scene.group},
                  {CallKind::all_gather, 1 << 22, "ring", {0, {{1, 4}}, {}}},
                  {CallKind::reduce_scatter, 1 << 24, "ring", {0, {{4, 4}}, {}}},
                  {CallKind::all_reduce, 1 << 20, "mesh", scene.group}};
  scene.in_a_row = true;
  scene.computes_ps = 10'000'000;
  expect_as_fluid(scene, "five calls");
  int64_t alone_ps = scene.computes_ps;
  std::vector<Called> calls{scene};
  calls.insert(calls.end(), scene.beside.begin(), scene.beside.end());
  for (const Called& called : calls) {
    Scene alone = scene;
    static_cast<Called&>(alone) = called;
    alone.beside.clear();
    alone.computes_ps = 0;
    alone_ps += makespan(stepped(alone));
  }
  EXPECT_EQ(makespan(stepped(scene)), alone_ps);
}

// Bytes that every link carries.
std::map<int32_t, int64_t> carried(const std::shared_ptr<const fold::System>& system) {
  std::map<int32_t, int64_t> bytes;
  for (const auto& span : simulate::simulate_step(system, {}).calls) {
    for (const int32_t index : system->plan[size_t(span.communicator)][size_t(span.call)]) {
      const fold::Variable& variable = system->variables[size_t(index)];
      for (const fold::LinkUse& use : variable.uses) {
        bytes[use.link] += int64_t(int128(variable.bytes) * use.weight / fold::kWeightOne);
      }
    }
  }
  std::erase_if(bytes, [](const auto& link) { return link.second == 0; });
  return bytes;
}

// But for the weights of a fluid that has one send count more in a pod than between pods: they are
// rounded down to 2^-16, and a message that stays in its pod has but one.
TEST(InSteps, PutsTheSameBytesOnEveryLink) {
  for (auto [what, scene] : undisturbed()) {
    for (const int64_t bytes : kSizes) {
      scene.bytes = bytes;
      const auto as_messages = carried(stepped(scene)), as_fluid = carried(fluid(scene));
      const auto phases = fluid_program(scene).calls.at(0).phases;
      const bool is_rounded = phases.at(0).in_pod_sends != phases.at(0).fabric_sends;
      ASSERT_EQ(as_messages.size(), as_fluid.size()) << what << " " << bytes;
      for (const auto& [link, at] : as_fluid) {
        const int64_t off = is_rounded ? at / fold::kWeightOne + int64_t(phases.size()) : 0;
        EXPECT_NEAR(as_messages.at(link), at, off) << what << " " << bytes << ", link " << link;
      }
    }
  }
}

// The slow link holds up each step: the fluid is as slow, but for hops that only others go.
TEST(InSteps, IsAsSlowAsTheFluidOnASlowLink) {
  const auto server = lower::testing::trainium(1);
  for (const char* factor : {"0.5", "0.1", "0.01"}) {
    for (const char* link : {"x+ 0>1", "x- 1>0", "x+ 1>2", "y+ 0>4"}) {
      for (const char* algorithm : {"ring", "axis_rings"}) {
        for (const int64_t chips : {4, 16}) {
          if (chips == 4 && link[0] == 'y') continue;
          Scene scene = all_of(server, chips, algorithm);
          scene.faults = {{link, Rational::parse(factor)}};
          const int64_t fluid_ps = makespan(fluid(scene)), step_ps = makespan(stepped(scene));
          EXPECT_LE(step_ps, fluid_ps + steps_of(fluid_program(scene))) << link << " " << algorithm;
          EXPECT_GE(step_ps, fluid_ps - 2 * scene.machine.hop_ps) << link << " " << algorithm;
        }
      }
    }
    Scene scene = all_of(lower::testing::hopper(), 8, "ring");
    scene.faults = {{"chip 3", Rational::parse(factor)}};
    expect_as_fluid(scene, std::string("chip 3 at ") + factor);
  }
}

// What goes around a dead link meets what was on the way: bursts at other times make it faster.
TEST(InSteps, IsNeverSlowerAroundADeadLink) {
  for (const char* link : {"x+ 0>1", "x- 1>0", "x+ 1>2", "y+ 0>4"}) {
    for (const char* algorithm : {"ring", "axis_rings"}) {
      Scene scene = all_of(lower::testing::trainium(1), 16, algorithm);
      scene.faults = {{link, {0, 1}}};
      const double ratio = double(makespan(stepped(scene))) / double(makespan(fluid(scene)));
      EXPECT_LE(ratio, 1.0) << link << " " << algorithm;
      EXPECT_GE(ratio, 0.89) << link << " " << algorithm;
    }
  }
}

TEST(InSteps, IsNeverLaterThanTheFluidForLateMembers) {
  std::mt19937_64 random(1);
  const auto server = lower::testing::trainium(1);
  const auto hopper = lower::testing::hopper();
  const Scene rings[] = {all_of(hopper, 8, "ring"), all_of(server, 16, "ring"),
                         all_of(server, 16, "axis_rings"), all_of(hopper, 8, "rdh"),
                         all_of(server, 4, "ring")};
  for (uint64_t i = 0; i < scenes::seeds(400); ++i) {
    Scene scene = rings[random() % std::size(rings)];
    scene.kind = kKinds[random() % std::size(kKinds)];
    scene.bytes = int64_t(1) << random() % 26;
    scene.computes_ps = int64_t(random() % 2) * 50'000'000;
    for (int64_t rank = 0; rank < scene.placement.ranks; ++rank) {
      if (random() % 6 > 0) continue;
      const auto factor = int32_t((1 << 16) + random() % (1 << 16));
      scene.odd_ranks.push_back({rank, factor, int64_t(random() % 100'000'000)});
    }
    const int64_t fluid_ps = makespan(fluid(scene)), step_ps = makespan(stepped(scene));
    EXPECT_LE(step_ps, fluid_ps + steps_of(fluid_program(scene))) << i;
  }
}

// An all-gather of 4 x 37 MB, at 37/45 of a link: 45 MB a step take 100 us, and 1.9 us before them;
// the first takes 14 us more. Rank 1 comes a millisecond late.
TEST(InSteps, GoesOnBetweenThoseThatAreThere) {
  Scene scene = all_of(lower::testing::hopper(), 4, "ring");
  scene.kind = CallKind::all_gather;
  scene.bytes = 4 * 37'000'000;
  scene.odd_ranks = {{1, 1 << 16, 1'000'000'000}};
  const auto timeline = simulate::simulate_step(stepped(scene), {});
  // The k-th message of each rank to the next.
  std::map<int32_t, std::vector<int64_t>> ends_us;
  for (const auto& span : timeline.calls) {
    const auto& pair = timeline.system->communicators[size_t(span.communicator)].members;
    ends_us[pair[0]].push_back(span.end_ps / 100'000);  // in tenths
  }
  const std::vector<int64_t> late{11159, 12178, 13197};
  EXPECT_EQ(ends_us[0], late);  // to rank 1, which is not there
  EXPECT_EQ(ends_us[1], late);
  EXPECT_EQ(ends_us[2], (std::vector<int64_t>{1159, 12178, 13197}));
  EXPECT_EQ(ends_us[3], (std::vector<int64_t>{1159, 2178, 13197}));
  EXPECT_EQ(timeline.makespan_ps, 1'319'700'000);
  EXPECT_EQ(makespan(fluid(scene)), 1'319'700'000);
}

Scene crossing(const machine::Machine& machine, int64_t chips, workload::RankPattern one,
               workload::RankPattern other) {
  Scene scene = on_group(all_of(machine, chips, "ring"), std::move(one));
  scene.beside = {{CallKind::all_reduce, 1 << 24, "ring", std::move(other)}};
  return scene;
}

// Rings that share links, one on each of two streams. Neither way bounds the other: bursts that hit
// a link at different times gain, and steps that find it taken wait with the next link idle.
TEST(InSteps, MayGainOrLoseWhereRingsCross) {
  const auto server = lower::testing::trainium(1);
  const auto ratio = [](const Scene& scene) {
    return double(makespan(stepped(scene))) / double(makespan(fluid(scene)));
  };
  const workload::RankPattern all{0, {{1, 16}}, {}}, columns{0, {{4, 4}}, {}},
      pairs{0, {{1, 2}}, {}}, squares{0, {{1, 2}, {4, 2}}, {}};
  EXPECT_NEAR(ratio(crossing(server, 16, squares, columns)), 0.8148, 1e-4);
  EXPECT_NEAR(ratio(crossing(server, 16, all, columns)), 1.0630, 1e-4);
  EXPECT_NEAR(ratio(crossing(server, 16, all, pairs)), 1.1057, 1e-4);
  const auto hopper = lower::testing::hopper();
  EXPECT_NEAR(ratio(crossing(hopper, 8, {0, {{1, 8}}, {}}, {0, {{2, 4}}, {}})), 1.0227, 1e-4);
}

TEST(InSteps, IsTheSameInTheReferenceAndInBulk) {
  std::mt19937_64 random(2);
  for (auto [what, scene] : undisturbed()) {
    if (scene.placement.ranks > 16 || scene.placement.ranks % 2 > 0) continue;
    scene.bytes = 1 + int64_t(random() % (1 << 22));
    scene.beside = {{CallKind::all_gather, 1 << 20, "", {0, {{1, 2}}, {}}}};
    scene.computes_ps = 10'000'000;
    scene.odd_ranks = {{0, 1 << 17, 0}, {1, 1 << 16, 5'000'000}};
    const auto system = stepped(scene);
    const auto reference = simulate::simulate_step(system, {.engine = simulate::Engine::reference});
    for (const bool is_private : {true, false}) {
      const auto bulk = simulate::simulate_step(system, {.use_private = is_private});
      EXPECT_EQ(bulk.hash, reference.hash) << what;
      EXPECT_EQ(bulk.makespan_ps, reference.makespan_ps) << what;
    }
  }
}

}  // namespace
}  // namespace trnsim::rings
