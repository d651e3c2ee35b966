// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/cohorts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "fold/refine.h"
#include "jobs.h"
#include "same_times.h"
#include "simulate/scenes.h"
#include "simulate/timeline.h"

namespace trnsim::fold {
namespace {

using simulate::Timeline;

Timeline run(const std::shared_ptr<const System>& system, simulate::Engine engine,
             bool use_private) {
  simulate::SimulateOptions options;
  options.engine = engine;
  options.use_private = use_private;
  return simulate_step(system, options);
}

// Every start and end of every rank, and every time of every call, is its class's.
void expect_same(const Timeline& unfolded, const Timeline& folded, const Cohorts& cohorts) {
  expect_same_tasks(unfolded, folded, cohorts);
  int64_t different = 0;
  using Call = std::pair<int32_t, int64_t>;
  const auto times = [](const simulate::CallSpan& span) {
    return std::tuple(span.call, span.first_arrival_ps, span.start_ps, span.end_ps, span.entry_ps,
                      span.phase_end_ps);
  };
  std::map<Call, decltype(times(unfolded.calls[0]))> of_class;
  for (const auto& span : folded.calls) of_class[{span.communicator, span.sequence}] = times(span);
  for (const auto& span : unfolded.calls) {
    const int32_t c = cohorts.class_of_communicator[size_t(span.communicator)];
    different += of_class.at({c, span.sequence}) != times(span);
  }
  EXPECT_EQ(different, 0);
}

struct Classes {
  size_t ranks, communicators, links;
  bool operator==(const Classes&) const = default;
};
Classes classes_of(const Cohorts& cohorts) {
  return {cohorts.system->ranks.size(), cohorts.system->communicators.size(),
          cohorts.system->links.size()};
}

TEST(Cohorts, FoldedIsUnfoldedToTheLastPicosecond) {
  int64_t ranks = 0, classes = 0;
  for (uint64_t seed = 0; seed < scenes::seeds(2000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::shared_ptr<const System> system = jobs::random_job(seed).system;
    const Cohorts cohorts = fold_system(system);
    check_fold(*system, cohorts);
    const Timeline unfolded = run(system, simulate::Engine::bulk, seed % 2 == 0);
    const bool by_reference = seed % 8 == 0 && cohorts.system->ranks.size() < 32;
    const Timeline folded =
        run(cohorts.system, by_reference ? simulate::Engine::reference : simulate::Engine::bulk,
            seed % 3 != 0);
    expect_same(unfolded, folded, cohorts);
    if (HasFailure()) return;
    ranks += int64_t(system->ranks.size());
    classes += int64_t(cohorts.system->ranks.size());
  }
  EXPECT_LT(classes * 4, ranks);  // or the test would test nothing
}

TEST(Cohorts, LinksThatChangeInMidRunFoldWithTheirLikes) {
  int64_t changed = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const jobs::Job job = jobs::random_job(seed);
    const int64_t makespan_ps = run(job.system, simulate::Engine::bulk, true).makespan_ps;
    System system = *job.system;
    // All NICs slow down at a third of the run; one link dies later and comes back at half its
    // rate.
    const auto slow_down = [&](int32_t link) {
      LinkInfo& at = system.links[size_t(link)];
      at.changes.push_back({makespan_ps / 3, at.rate / 2});
    };
    for (int32_t rank = 0; rank < job.shape.rank_count(); ++rank) slow_down(job.nic_up(rank));
    auto& one = system.links[seed % system.links.size()];
    one.changes.push_back({makespan_ps / 2 + 1, 0});
    one.changes.push_back({makespan_ps / 2 + 500'000, one.rate / 2});
    mark_private(system);
    const auto shared = std::make_shared<const System>(std::move(system));
    const Cohorts cohorts = fold_system(shared);
    check_fold(*shared, cohorts);
    const Timeline unfolded = run(shared, simulate::Engine::bulk, true);
    expect_same(unfolded, run(cohorts.system, simulate::Engine::bulk, seed % 2 == 0), cohorts);
    if (HasFailure()) return;
    changed += unfolded.makespan_ps != makespan_ps;
  }
  EXPECT_GT(changed, 100);
}

TEST(Cohorts, ChipsThatChangeInMidRunFoldWithTheirLikes) {
  int64_t changed = 0, ranks = 0, classes = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const jobs::Job job = jobs::random_job(seed);
    const int64_t makespan_ps = run(job.system, simulate::Engine::bulk, true).makespan_ps;
    // Every chip throttles at a third of the run, and one more recovers.
    System system = *job.system;
    for (Rank& rank : system.ranks) rank.changes = {{makespan_ps / 3, rank.factor + (1 << 15)}};
    Rank& one = system.ranks[seed % system.ranks.size()];
    one.changes.push_back({makespan_ps / 2 + 1, one.factor});
    const auto shared = std::make_shared<const System>(std::move(system));
    const Cohorts cohorts = fold_system(shared);
    check_fold(*shared, cohorts);
    const Timeline unfolded = run(shared, simulate::Engine::bulk, true);
    expect_same(unfolded, run(cohorts.system, simulate::Engine::bulk, seed % 2 == 0), cohorts);
    if (HasFailure()) return;
    changed += unfolded.makespan_ps != makespan_ps;
    ranks += int64_t(shared->ranks.size());
    classes += int64_t(cohorts.system->ranks.size());
  }
  EXPECT_GT(changed, 100);
  EXPECT_LT(classes, ranks);
}

TEST(Cohorts, ARandomSystemAndItsCopyFoldIntoOne) {
  for (uint64_t seed = 0; seed < scenes::seeds(2000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto single = scenes::random_system(seed), system = scenes::twice(*single);
    const Cohorts cohorts = fold_system(system);
    EXPECT_LE(cohorts.system->ranks.size(), single->ranks.size());
    expect_same(run(system, simulate::Engine::bulk, true),
                run(cohorts.system, simulate::Engine::bulk, true), cohorts);
    if (HasFailure()) return;
  }
}

TEST(Cohorts, FoldingTwiceIsFoldingOnce) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Cohorts once = fold_system(jobs::random_job(seed).system);
    const Cohorts twice = fold_system(once.system);
    EXPECT_EQ(classes_of(twice).ranks, classes_of(once).ranks) << seed;
    EXPECT_EQ(twice.system, once.system) << seed;
  }
}

TEST(Cohorts, ARelabelledJobHasAsManyClasses) {
  std::mt19937_64 random(1);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::shared_ptr<const System> system = jobs::random_job(seed).system;
    std::vector<int32_t> order(system->ranks.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
    std::shuffle(order.begin(), order.end(), random);
    const Cohorts own = fold_system(system);
    const Cohorts other = fold_system(scenes::relabelled(*system, order));
    EXPECT_EQ(classes_of(own), classes_of(other)) << seed;
    for (size_t i = 0; i < order.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        EXPECT_EQ(other.class_of_rank[i] == other.class_of_rank[k],
                  own.class_of_rank[size_t(order[i])] == own.class_of_rank[size_t(order[k])]);
      }
    }
    if (HasFailure()) return;
  }
}

TEST(Cohorts, HashesThatCollideAreFoundAndUndone) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::shared_ptr<const System> system = jobs::random_job(seed).system;
    const Cohorts exact = fold_system(system), coarse = fold_system(system, 1, true);
    EXPECT_EQ(exact.class_of_rank, coarse.class_of_rank) << seed;
    EXPECT_EQ(exact.class_of_communicator, coarse.class_of_communicator) << seed;
    EXPECT_EQ(exact.class_of_link, coarse.class_of_link) << seed;
  }
}

TEST(Cohorts, AJobOfWhichNothingFoldsIsItself) {
  auto system = jobs::make_job({}).system;
  for (size_t i = 0; i < system->ranks.size(); ++i) system->ranks[i].factor += int32_t(i);
  const Cohorts cohorts = fold_system(system);
  EXPECT_EQ(cohorts.system, system);
  EXPECT_EQ(cohorts.class_of_rank.back(), int32_t(system->ranks.size()) - 1);
}

TEST(Cohorts, CountsAndWeightsAreTrueMultiplicities) {
  // Two ranks, each in a group of its own with two uses of one link: 3 and 4.
  scenes::ProgramBuilder builder;
  const int32_t stream = builder.queue(lower::QueueKind::collective, 0);
  builder.call(stream, builder.call_template(scenes::all_reduce(builder.group("g"), 8)));
  auto system = std::make_shared<System>();
  system->roles = {builder.build()};
  system->links = {{"a", 1024}, {"b", 1024}, {"unused", 7}};
  for (int32_t pair = 0; pair < 2; ++pair) {
    for (int32_t i = 0; i < 2; ++i) scenes::add_rank(*system, 0);
    const int32_t group = scenes::add_group(*system, 0, {2 * pair, 2 * pair + 1}, "pair");
    scenes::add_variable(*system, group, 0, 0, 8, {{0, 3}, {1, 4 - pair}});
  }
  system->ranks[3].count = 5;
  const Cohorts cohorts = fold_system(system);
  // Link 0 carries 3 + 3, link 1 4 + 3: two classes.
  ASSERT_EQ(classes_of(cohorts), (Classes{1, 1, 3}));
  EXPECT_EQ(cohorts.system->ranks[0].count, 8);
  ASSERT_EQ(cohorts.system->variables.size(), 1u);
  const auto& uses = cohorts.system->variables[0].uses;
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].weight, 6);
  EXPECT_EQ(uses[1].weight, 7);
  expect_same(run(system, simulate::Engine::reference, false),
              run(cohorts.system, simulate::Engine::reference, true), cohorts);
}

TEST(Cohorts, ARankThatSendsToItsOwnClassIsBothEnds) {
  scenes::ProgramBuilder builder;
  const int32_t send = builder.queue(lower::QueueKind::send, 1);
  const int32_t recv = builder.queue(lower::QueueKind::recv, 2);
  const int32_t tensor = builder.queue(lower::QueueKind::tensor, 0);
  lower::CallTemplate call = scenes::all_reduce(builder.group("ring"), 8);
  call.kind = workload::CallKind::send;
  call.phases.resize(1);
  const int32_t sent = builder.call_template(call);
  call.kind = workload::CallKind::recv;
  const int32_t received = builder.call_template(call);
  const int32_t before = builder.task(tensor, 700);
  builder.call(recv, received);
  builder.call(send, sent, {scenes::after(before)});
  auto system = std::make_shared<System>();
  system->roles = {builder.build()};
  system->links = {{"link", 1024 * int64_t(1'000'000'000)}};
  for (int32_t rank = 0; rank < 3; ++rank) scenes::add_rank(*system, 0);
  for (int32_t rank = 0; rank < 3; ++rank) {
    const int32_t next = (rank + 1) % 3;
    system->communicators.push_back({0, {rank, next}, "message"});
    system->plan.emplace_back(2);
    for (const int32_t of : {rank, next})
      system->ranks[size_t(of)].communicator_of_message.resize(2, -1);
    system->ranks[size_t(rank)].communicator_of_message[0] = rank;
    system->ranks[size_t(next)].communicator_of_message[1] = rank;
    scenes::add_variable(*system, rank, 0, 5, 8, {{0, kWeightOne}});
  }
  const Cohorts cohorts = fold_system(system);
  ASSERT_EQ(classes_of(cohorts), (Classes{1, 1, 1}));
  EXPECT_EQ(cohorts.system->communicators[0].members, std::vector<int32_t>({0, 0}));
  for (const auto engine : {simulate::Engine::reference, simulate::Engine::bulk}) {
    const Timeline folded = run(cohorts.system, engine, true);
    // Three messages of 8 bytes share 1 GB/s: 24 ns after 700 and the latency of 5.
    EXPECT_EQ(folded.makespan_ps, 700 + 5 + 24000);
    expect_same(run(system, engine, true), folded, cohorts);
  }
}

// P stages give P classes of ranks, one slow chip or NIC four times as many, since
// each stage splits in {its replica, the others} x {its index, the others}.
TEST(Cohorts, ClassesStayFewAroundADisturbance) {
  for (const int32_t replicas : {3, 4, 8}) {
    for (const int32_t stages : {1, 4}) {
      jobs::Shape shape;
      shape.replicas = replicas;
      shape.stages = stages;
      shape.tensor = 8;
      const jobs::Job job = jobs::make_job(shape);
      const auto ranks_with = [&](const auto& change) {
        auto system = std::make_shared<System>(*job.system);
        change(*system);
        return int32_t(fold_system(system).system->ranks.size());
      };
      const int32_t at = job.rank(1, 0, 3);
      EXPECT_EQ(ranks_with([](System&) {}), stages);
      EXPECT_EQ(ranks_with([&](System& s) { s.ranks[size_t(at)].factor = 80000; }), 4 * stages);
      EXPECT_EQ(ranks_with([&](System& s) { s.ranks[size_t(at)].start_ps = 9; }), 4 * stages);
      EXPECT_EQ(ranks_with([&](System& s) { s.links[size_t(job.nic_up(at))].rate /= 2; }),
                4 * stages);
      EXPECT_EQ(ranks_with([&](System& s) { s.links[size_t(job.ring(at))].rate /= 2; }),
                2 * stages);
      // Without messages only groups of all replicas cross a leaf, and all of them this one.
      EXPECT_EQ(ranks_with([&](System& s) { s.links[size_t(job.leaf_up(at))].rate /= 2; }),
                stages == 1 ? 1 : 2 * stages);
    }
  }
}

TEST(Equity, WhatDoesNotFitIsNamed) {
  const jobs::Job job = jobs::make_job({});
  const Cohorts good = fold_system(job.system);
  const auto found_with = [&](const auto& change) {
    Cohorts bad = good;
    auto quotient = std::make_shared<System>(*good.system);
    System original = *job.system;
    change(original, *quotient, bad);
    bad.system = quotient;
    return find_inequity(original, bad);
  };
  using C = Cohorts;
  EXPECT_EQ(found_with([](System&, System&, C&) {}), "");
  EXPECT_EQ(found_with([](System& s, System&, C&) { s.ranks[9].factor = 1; }),
            "role, factor, start or changes of rank 9");
  EXPECT_EQ(found_with([](System&, System& q, C&) { q.ranks[1].count += 1; }),
            "the count of class 1");
  EXPECT_EQ(found_with([](System&, System&, C& c) { c.class_of_link.pop_back(); }),
            "the classes of links");
  EXPECT_EQ(found_with([](System& s, System&, C&) { s.links[2].rate += 1; }), "the rate of link 2");
  EXPECT_EQ(found_with([](System& s, System&, C&) { s.communicators[3].slot = 0; }),
            "who calls on communicator 3");
  EXPECT_EQ(
      found_with([](System& s, System&, C&) { s.variables[0].latency_ps += 1; }).substr(0, 26),
      "a variable of communicator");
  const auto change_weight = [](System& s, int64_t by) {
    for (Variable& variable : s.variables) {
      if (variable.uses.empty()) continue;
      variable.uses[0].weight += by;
      return;
    }
  };
  EXPECT_EQ(found_with([&](System& s, System&, C&) { change_weight(s, 1); }).substr(0, 16),
            "a weight on link");
  EXPECT_EQ(found_with([&](System&, System& q, C&) { change_weight(q, 1); }).substr(0, 16),
            "a weight on link");
}

}  // namespace
}  // namespace trnsim::fold
