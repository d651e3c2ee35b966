// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Transfers against a loop that a first-year student would write, and the parts they rest on.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "scenes.h"
#include "simulate/network/exact.h"
#include "simulate/network/repair.h"
#include "simulate/network/transfers.h"

namespace trnsim::simulate {
namespace {

using Random = std::mt19937_64;
using Times = std::vector<int64_t>;
constexpr int64_t kGBps = 1'000'000'000 * int64_t(1024);  // in rate units: 1 byte = 1000 ps

TEST(Exact, ACeilingIsTheSmallestWholeNumberThatReaches) {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const int128 a = (int128(random() >> (random() % 64)) << (random() % 62)) + random() % 3;
    const int64_t b = 1 + int64_t((random() >> 1) >> (random() % 63));
    const int128 expected = (a + b - 1) / b;
    ASSERT_EQ(ceil_quotient(a, b), expected > kMostRate ? kMostRate : int64_t(expected));
  }
  EXPECT_EQ(ceil_quotient(0, 7), 0);
  EXPECT_EQ(ceil_quotient(14, 7), 2);
  EXPECT_EQ(ceil_quotient(15, 7), 3);
}

TEST(EventQueue, GivesEventsInOrderAndDropsStaleOnes) {
  struct Event {
    int64_t time_ps;
    int32_t id;
  };
  Random random(2);
  for (int run = 0; run < 200; ++run) {
    EventQueue<Event> queue;
    std::multimap<int64_t, int32_t> expected;
    std::vector<bool> is_gone;
    const auto is_stale = [&](const Event& event) { return bool(is_gone[size_t(event.id)]); };
    const int64_t spread = int64_t(1) << (random() % 50);
    int64_t now_ps = 0;
    for (int step = 0; step < 300; ++step) {
      for (uint64_t i = random() % (run % 20 == 0 ? 40 : 4); i > 0; --i) {
        const auto id = int32_t(is_gone.size());
        is_gone.push_back(false);
        const int64_t time_ps = now_ps + int64_t(random() % uint64_t(spread));
        queue.push({time_ps, id}, is_stale);
        expected.emplace(time_ps, id);
      }
      for (auto at = expected.begin(); at != expected.end();) {
        const bool goes = random() % 8 == 0;
        if (goes) is_gone[size_t(at->second)] = true;
        at = goes ? expected.erase(at) : std::next(at);
      }
      const int64_t next_ps = queue.next_ps(is_stale, kNever);
      ASSERT_EQ(next_ps, expected.empty() ? kNever : expected.begin()->first);
      if (next_ps == kNever) continue;
      // A clock may also stop before the next event.
      now_ps += random() % 3 == 0 ? (next_ps - now_ps) / 2 : next_ps - now_ps;
      size_t count = expected.count(now_ps);
      for (Event event{}; queue.pop(now_ps, is_stale, event); --count) {
        ASSERT_EQ(event.time_ps, now_ps);
        is_gone[size_t(event.id)] = true;
      }
      ASSERT_EQ(count, 0u);
      expected.erase(now_ps);
    }
  }
}

// One transfer: a variable of its own, from start_ps on.
struct Scene {
  fold::System system;
  Times starts_ps;

  explicit Scene(Random& random) {
    const size_t links = 1 + random() % 6, flows = 1 + random() % 9;
    const bool calm = random() % 2 == 0;
    const auto time = [&] { return int64_t(calm ? random() % 6 * 1000 : random() % 30000); };
    const auto rate = [&] { return int64_t(1 + random() % (calm ? 3 : 50)) * kGBps; };
    for (size_t i = 0; i < links; ++i) {
      fold::LinkInfo& link = system.links.emplace_back();
      link.name = "link " + std::to_string(i);
      link.rate = random() % 8 == 0 ? 0 : rate();
      int64_t at_ps = 0;
      for (uint64_t n = random() % 4; n > 0; --n) {
        at_ps += time() + (link.changes.empty() ? 0 : 1);
        link.changes.push_back({at_ps, random() % 3 == 0 ? 0 : rate()});
      }
    }
    system.communicators.push_back({0, {0}, "all"});
    for (size_t i = 0; i < flows; ++i) {
      fold::Variable& variable = system.variables.emplace_back();
      variable.bytes = 1 + int64_t(random() % 200);
      variable.latency_ps = random() % 2 == 0 ? 0 : time();
      for (size_t link = 0; link < links; ++link) {
        if (random() % 3 == 0) variable.uses.push_back({int32_t(link), weight(random)});
      }
      if (variable.uses.empty()) variable.uses.push_back({int32_t(random() % links), 65536});
      starts_ps.push_back(time());
    }
  }
  static int64_t weight(Random& random) {
    return random() % 2 == 0 ? fold::kWeightOne : 1 + int64_t(random() % fold::kWeightOne);
  }
};

int128 capacity_at(const fold::LinkInfo& link, int64_t now_ps) {
  int64_t rate = link.rate;
  for (const auto& change : link.changes) {
    if (change.time_ps <= now_ps) rate = change.rate;
  }
  return int128(rate) * fold::kWeightOne;
}

// Every flow looked at, and everything solved from nothing, at every time at which something
// happens. Ends; kNever of a flow that stands still for good.
Times ends_by_hand(const Scene& scene) {
  const size_t count = scene.starts_ps.size();
  Times ends(count, kNever), entries;
  std::vector<int128> remaining;
  for (size_t i = 0; i < count; ++i) {
    entries.push_back(scene.starts_ps[i] + scene.system.variables[i].latency_ps);
    remaining.push_back(remaining_of(scene.system.variables[i].bytes));
  }
  for (int64_t now_ps = 0; now_ps != kNever;) {
    std::vector<int128> capacities;
    int64_t next_ps = kNever;
    const auto at = [&](int64_t time_ps) {
      if (time_ps > now_ps) next_ps = std::min(next_ps, time_ps);
    };
    for (const auto& link : scene.system.links) {
      capacities.push_back(capacity_at(link, now_ps));
      for (const auto& change : link.changes) at(change.time_ps);
    }
    Network network(capacities, scene.system.variables);
    for (size_t i = 0; i < count; ++i) {
      at(entries[i]);
      if (entries[i] <= now_ps && ends[i] == kNever) network.enter(int32_t(i));
    }
    std::vector<int32_t> changed;
    make_reference_solver()->solve(network, changed);
    for (const int32_t flow : network.active()) {
      const int128 rate = network.rate(flow);
      if (rate > 0) at(now_ps + int64_t(ceil_div(remaining[size_t(flow)], rate)));
    }
    for (const int32_t flow : network.active()) {
      if (next_ps == kNever) break;
      remaining[size_t(flow)] -= int128(network.rate(flow)) * (next_ps - now_ps);
      if (remaining[size_t(flow)] <= 0) ends[size_t(flow)] = next_ps;
    }
    now_ps = next_ps;
  }
  return ends;
}

// `extra` times at which nothing happens are processed and solved too.
Times ends_of(const Scene& scene, std::unique_ptr<Solver> solver, int64_t extra) {
  Transfers transfers(scene.system, std::move(solver), true);
  Times ends(scene.starts_ps.size(), kNever);
  for (size_t i = 0; i < ends.size(); ++i) {
    transfers.begin(int64_t(i), {int32_t(i)}, scene.starts_ps[i]);
  }
  std::vector<int64_t> ended;
  for (int64_t now_ps = 0; now_ps != kNever;) {
    ended.clear();
    transfers.process(now_ps, ended);
    for (const int64_t i : ended) ends[size_t(i)] = now_ps;
    transfers.solve(now_ps);
    const int64_t next_ps = transfers.next_ps();
    now_ps = extra > 0 && next_ps != kNever && next_ps > now_ps + extra ? now_ps + extra : next_ps;
  }
  EXPECT_EQ(!transfers.stalled(), std::count(ends.begin(), ends.end(), kNever) == 0);
  return ends;
}

TEST(Transfers, EqualTheLoopThatLooksAtEverything) {
  Random random(3);
  int64_t stalled = 0;
  for (int i = 0; i < 4000; ++i) {
    const Scene scene(random);
    const Times expected = ends_by_hand(scene);
    stalled += std::count(expected.begin(), expected.end(), kNever);
    ASSERT_EQ(ends_of(scene, make_reference_solver(), 0), expected) << "scene " << i;
    ASSERT_EQ(ends_of(scene, make_heap_solver(), 0), expected) << "scene " << i;
    auto repair = std::make_unique<Repair>(make_heap_solver(), RepairLimits{0, 1000, 1024});
    ASSERT_EQ(ends_of(scene, std::move(repair), i % 3 * 777), expected) << "scene " << i;
  }
  EXPECT_GT(stalled, 100);
}

// Two transfers of 100 bytes over one link of 1 GB/s.
struct TwoOnALink {
  Scene scene;
  explicit TwoOnALink(const std::vector<fold::RateChange>& changes) : scene(make(changes)) {}

  static Scene make(const std::vector<fold::RateChange>& changes) {
    Random random(4);
    Scene scene(random);
    scene.system.links = {{"up", kGBps, {}, changes}};
    fold::Variable variable;
    variable.bytes = 100;
    variable.uses = {{0, fold::kWeightOne}};
    scene.system.variables = {variable, variable};
    scene.starts_ps = {0, 0};
    return scene;
  }
  Times ends() const {
    return ends_of(scene, std::make_unique<Repair>(make_heap_solver(), RepairLimits{}), 0);
  }
};

TEST(Transfers, ALinkThatSlowsDownTakesLongerFromThenOn) {
  // 200 bytes at 1 GB/s: 200 ns. With half the rate after 100 ns: the other 100 bytes take 200 ns.
  EXPECT_EQ(TwoOnALink({}).ends(), Times({200'000, 200'000}));
  EXPECT_EQ(TwoOnALink({{100'000, kGBps / 2}}).ends(), Times({300'000, 300'000}));
}

TEST(Transfers, ALinkThatDiesAndComesBackHoldsItsFlowsMeanwhile) {
  EXPECT_EQ(TwoOnALink({{50'000, 0}, {75'000, kGBps}}).ends(), Times({225'000, 225'000}));
  EXPECT_EQ(TwoOnALink({{50'000, 0}}).ends(), Times({kNever, kNever}));
}

TEST(Transfers, AChangeAfterTheLastEndIsNoEvent) {
  EXPECT_EQ(TwoOnALink({{int64_t(1) << 60, 0}}).ends(), Times({200'000, 200'000}));
}

TEST(Transfers, AHundredThousandThatEndAtOnceAreOneSolve) {
  Scene scene = TwoOnALink({}).scene;
  scene.system.variables.resize(100'000, scene.system.variables[0]);
  scene.starts_ps.resize(100'000, 0);
  Transfers transfers(scene.system, std::make_unique<Repair>(make_heap_solver(), RepairLimits{}),
                      false);
  for (int32_t i = 0; i < 100'000; ++i) transfers.begin(i, {i}, 0);
  std::vector<int64_t> ended;
  for (int64_t now_ps; (now_ps = transfers.next_ps()) != kNever; transfers.solve(now_ps)) {
    transfers.process(now_ps, ended);
  }
  EXPECT_EQ(ended.size(), 100'000u);
  EXPECT_EQ(transfers.solve_count(), 2);  // one when they come, one when they have gone
}

SimulateOptions options(Engine engine) {
  SimulateOptions options;
  options.engine = engine;
  options.use_private = engine == Engine::bulk;
  options.certify = engine == Engine::reference;
  return options;
}

std::string error_of(const std::shared_ptr<const fold::System>& system, Engine engine) {
  try {
    simulate_step(system, options(engine));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Changes, RunsOfBothEnginesAgreeOnRandomSystems) {
  int64_t finished = 0, stalled = 0;
  for (uint64_t seed = 0; seed < scenes::seeds(3000); ++seed) {
    const auto system = scenes::with_random_changes(*scenes::random_system(seed), seed);
    const std::string text = error_of(system, Engine::reference);
    ASSERT_EQ(error_of(system, Engine::bulk), text) << "seed " << seed;
    if (!text.empty()) {
      ASSERT_NE(text.find("is stalled on link"), std::string::npos) << text;
      ++stalled;
      continue;
    }
    ++finished;
    const Timeline expected = simulate_step(system, options(Engine::reference));
    const Timeline got = simulate_step(system, options(Engine::bulk));
    ASSERT_EQ(got.ends_ps, expected.ends_ps) << "seed " << seed;
    ASSERT_EQ(got.starts_ps, expected.starts_ps) << "seed " << seed;
    ASSERT_EQ(got.hash, expected.hash) << "seed " << seed;
  }
  EXPECT_GT(finished, int64_t(scenes::seeds(1500)));
  EXPECT_GT(stalled, int64_t(scenes::seeds(30)));
}

TEST(Changes, NobodyIsPrivateOnALinkThatChanges) {
  fold::System system;
  system.links = {{"a", kGBps}, {"b", kGBps}};
  system.communicators.resize(2);
  system.plan = {{{0}}, {{1}}};
  system.variables.resize(2);
  system.variables[1].communicator = 1;
  system.variables[0].uses = {{0, fold::kWeightOne}};
  system.variables[1].uses = {{1, fold::kWeightOne}};
  const auto changed = fold::with_link_changes(system, 1, {{100, 0}});
  EXPECT_TRUE(changed->variables[0].is_private);
  EXPECT_FALSE(changed->variables[1].is_private);
}

TEST(Changes, MustAscendAndNameALink) {
  fold::System system = *scenes::random_system(1);
  for (fold::Rank& rank : system.ranks) rank.count = 1;
  const auto message = [&](int64_t link, const std::vector<fold::RateChange>& changes) {
    try {
      fold::with_link_changes(system, link, changes);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(0, {{5, 1}, {6, 0}}), "");
  EXPECT_EQ(
      message(0, {{5, 1}, {5, 0}}),
      "changes of link link 0 do not ascend in time from 0 on: give each time once, in order");
  EXPECT_EQ(message(0, {{5, -1}}),
            "link link 0 changes to a rate below 0: use 0 for a link that dies");
  EXPECT_EQ(message(99, {}).substr(0, 20), "there is no link 99:");
}

}  // namespace
}  // namespace trnsim::simulate
