// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// make_cohorts gives what folding every rank gives, object for object.
#include <gtest/gtest.h>

#include <random>

#include "fold/layout.h"
#include "fold/refine.h"
#include "simulate/timeline.h"
#include "training.h"

namespace trnsim::fold {
namespace {

// Links that nobody uses stand in the System of every rank only.
System used_part(const System& system) {
  System used = system;
  std::vector<int32_t> index(system.links.size(), -1);
  for (const Variable& variable : system.variables) {
    for (const LinkUse& use : variable.uses) index[size_t(use.link)] = 0;
  }
  used.links.clear();
  for (size_t link = 0; link < index.size(); ++link) {
    if (index[link] < 0) continue;
    index[link] = int32_t(used.links.size());
    used.links.push_back(system.links[link]);
  }
  for (Variable& variable : used.variables) {
    for (LinkUse& use : variable.uses) use.link = index[size_t(use.link)];
  }
  return used;
}

void expect_same_ranks(const System& a, const System& b) {
  ASSERT_EQ(a.ranks.size(), b.ranks.size());
  for (size_t i = 0; i < a.ranks.size(); ++i) {
    const Rank &x = a.ranks[i], &y = b.ranks[i];
    EXPECT_EQ(std::tie(x.role, x.chip, x.factor, x.start_ps, x.count, x.changes),
              std::tie(y.role, y.chip, y.factor, y.start_ps, y.count, y.changes));
    EXPECT_EQ(x.communicator_of_slot, y.communicator_of_slot);
    EXPECT_EQ(x.communicator_of_message, y.communicator_of_message);
  }
}

void expect_same(const System& full, const System& direct) {
  const System a = used_part(full), b = used_part(direct);
  expect_same_ranks(a, b);
  ASSERT_EQ(a.communicators.size(), b.communicators.size());
  for (size_t i = 0; i < a.communicators.size(); ++i) {
    EXPECT_EQ(a.communicators[i].slot, b.communicators[i].slot);
    EXPECT_EQ(a.communicators[i].members, b.communicators[i].members);
    EXPECT_EQ(a.communicators[i].name, b.communicators[i].name);
  }
  ASSERT_EQ(a.links.size(), b.links.size());
  for (size_t i = 0; i < a.links.size(); ++i) {
    EXPECT_EQ(a.links[i].name, b.links[i].name);
    EXPECT_EQ(a.links[i].rate, b.links[i].rate);
    EXPECT_EQ(a.links[i].changes, b.links[i].changes);
  }
  EXPECT_EQ(a.plan, b.plan);
  ASSERT_EQ(a.variables.size(), b.variables.size());
  for (size_t i = 0; i < a.variables.size(); ++i) {
    const Variable &x = a.variables[i], &y = b.variables[i];
    EXPECT_EQ(std::tie(x.communicator, x.call, x.phase, x.latency_ps, x.bytes, x.is_private),
              std::tie(y.communicator, y.call, y.phase, y.latency_ps, y.bytes, y.is_private));
    EXPECT_EQ(x.uses, y.uses) << "variable " << i;
  }
}

// Classes of links, numbered among those that are used.
void expect_same_links(const Cohorts& full, const Cohorts& direct) {
  std::vector<int32_t> number(full.system->links.size(), -1);
  for (const Variable& variable : full.system->variables) {
    for (const LinkUse& use : variable.uses) number[size_t(use.link)] = 0;
  }
  int32_t count = 0;
  for (int32_t& of : number) of = of < 0 ? -1 : count++;
  std::vector<int32_t> expected;
  for (const int32_t link_class : full.class_of_link)
    expected.push_back(number[size_t(link_class)]);
  EXPECT_EQ(direct.class_of_link, expected);
}

TEST(MakeCohorts, GivesWhatFoldingEveryRankGives) {
  int64_t ranks = 0, classes = 0;
  for (uint64_t seed = 0; seed < scenes::seeds(1000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Training training = random_training(seed);
    const Job job = training.job();
    const auto every = std::make_shared<const System>(make_system(job));
    const Cohorts full = fold_system(every, 64, false), direct = make_cohorts(job);
    expect_same(*full.system, *direct.system);
    EXPECT_EQ(full.class_of_rank, direct.class_of_rank);
    expect_same_links(full, direct);
    const simulate::SimulateOptions options;
    const auto unfolded = simulate_step(every, options),
               folded = simulate_step(direct.system, options);
    EXPECT_EQ(unfolded.hash, folded.hash);
    EXPECT_EQ(unfolded.makespan_ps, folded.makespan_ps);
    if (HasFailure()) return;
    ranks += int64_t(full.class_of_rank.size());
    classes += int64_t(direct.system->ranks.size());
  }
  EXPECT_LT(classes * 3, ranks);
}

TEST(MakeCohorts, MakesOneBlockOfEachClass) {
  // 512 replicas of 2 pods, 8,192 ranks, one of them slow: every stage splits in {its replica, the
  // others} x {its index, the others}.
  Training training;
  training.replicas = 512;
  training.stages = 2;
  training.seed = 5;
  training.machine.fabric.tor.up_ports = 8;  // a plane for each chip of a pod
  const Job symmetric = training.job();
  const Cohorts before = make_cohorts(symmetric);
  EXPECT_EQ(before.system->ranks.size(), 2u);
  EXPECT_EQ(before.system->ranks[0].count, 8 * 512);
  training.odd_ranks = {{700, 3 << 15, 0, {}}};
  const Cohorts after = make_cohorts(training.job());
  EXPECT_EQ(after.system->ranks.size(), 8u);
  const auto every = std::make_shared<const System>(make_system(training.job()));
  expect_same(*fold_system(every).system, *after.system);
}

TEST(MakeCohorts, ABlockTakesPodsOfEveryStage) {
  // 3 stages of 512 pods each, as Megatron-LM numbers ranks: data parallel groups inside a stage.
  Training training;
  training.replicas = 512;
  training.stages = 3;
  training.seed = 5;
  training.are_replicas_neighbours = true;
  const Job symmetric = training.job();
  const std::optional<Layout> layout = find_blocks(symmetric, roles_of_ranks(symmetric));
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->size, 3 * 8);
  EXPECT_EQ(layout->count, 512);
  EXPECT_EQ(layout->ranks.at(1, 8), 512 * 8 + 8);
  for (const bool is_odd : {false, true}) {
    if (is_odd) training.odd_ranks = {{700, 3 << 15, 0, {}}};
    const Job job = training.job();
    const auto every = std::make_shared<const System>(make_system(job));
    const Cohorts full = fold_system(every), direct = make_cohorts(job);
    expect_same(*full.system, *direct.system);
    EXPECT_EQ(full.class_of_rank, direct.class_of_rank);
    expect_same_links(full, direct);
  }
}

TEST(MakeCohorts, AJobWithoutBlocksIsFoldedFromEveryRank) {
  Training training;  // one replica: nothing is there twice
  training.replicas = 1;
  training.stages = 3;
  const Job job = training.job();
  const auto every = std::make_shared<const System>(make_system(job));
  const Cohorts full = fold_system(every), direct = make_cohorts(job);
  expect_same(*full.system, *direct.system);
  expect_same_links(full, direct);
}

// As the job, but other durations, bytes and latencies.
Job resized(const Job& job, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> bytes, step_ps;
  for (int i = 0; i < 16; ++i) {
    bytes.push_back(1 + int64_t(random() % 100));
    step_ps.push_back(int64_t(random() % 1000));
  }
  Job result = job;
  for (JobRole& role : result.roles) {
    auto program = std::make_shared<lower::Program>(*role.program);
    for (size_t i = 0; i < program->calls.size(); ++i) {
      for (lower::PhaseTemplate& phase : program->calls[i].phases) {
        const size_t which = size_t(program->calls[i].kind);
        if (phase.bytes > 0) phase.bytes = bytes[which];
        phase.step_ps = step_ps[which];
        phase.hop_ps = step_ps[which + 1] % 3;
      }
    }
    for (lower::Task& task : program->tasks) {
      if (task.kind == lower::TaskKind::compute) task.duration_ps = int64_t(random() % 5000);
    }
    role.program = std::move(program);
  }
  return result;
}

TEST(Mould, ServesJobsOfTheSameShape) {
  int64_t moved = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Training training = random_training(seed);
    const Job job = training.job(), other = resized(job, seed);
    const Mould mould(job);
    ASSERT_TRUE(mould.fits(job));
    ASSERT_TRUE(mould.fits(other));
    const Cohorts cast = mould.cast(other), made = make_cohorts(other);
    expect_same(*made.system, *cast.system);
    EXPECT_EQ(made.class_of_rank, cast.class_of_rank);
    EXPECT_EQ(made.class_of_link, cast.class_of_link);
    const auto hash = simulate::simulate_step(cast.system, {}).hash;
    EXPECT_EQ(hash, simulate::simulate_step(made.system, {}).hash);
    moved += hash != simulate::simulate_step(mould.cast(job).system, {}).hash;
  }
  EXPECT_GT(moved, 90);
}

// The critical link, the weights and the rates are the job's, whatever they were in the Mould's.
TEST(Mould, ServesLinksOfOtherRates) {
  int64_t moved = 0;
  for (uint64_t seed = 0; seed < scenes::seeds(300); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Training training = random_training(seed);
    const Job job = training.job();
    const Mould mould(job);
    Training other = random_training(seed);
    std::mt19937_64 random(seed);
    machine::Machine& faster = other.machine;
    for (Rational* rate :
         {&faster.torus_axis_Bps[0], &faster.torus_axis_Bps[1], &faster.torus_axis_Bps[2],
          &faster.fabric.nic_Bps, &faster.fabric.port_Bps}) {
      *rate = Rational{int64_t(1 + random() % 8) * 1'000'000'000, 1};
    }
    for (auto& [link, changes] : other.changing_links) changes = {{700, 2'000'000'000}};
    const Job faster_job = other.job();
    ASSERT_TRUE(mould.fits(faster_job));
    const Cohorts cast = mould.cast(faster_job);
    const auto every = std::make_shared<const System>(make_system(faster_job));
    const Cohorts full = fold_system(every, 64, false);
    expect_same(*full.system, *cast.system);
    EXPECT_EQ(full.class_of_rank, cast.class_of_rank);
    expect_same_links(full, cast);
    if (HasFailure()) return;
    const auto hash = simulate::simulate_step(cast.system, {}).hash;
    moved += hash != simulate::simulate_step(mould.cast(job).system, {}).hash;
  }
  EXPECT_GT(moved * 10, int64_t(scenes::seeds(300)) * 9);
}

TEST(Mould, RefusesWhatWouldBeOtherClasses) {
  Training training;
  training.stages = 2;
  const Job job = training.job();
  const Mould mould(job);
  const auto with = [&](const auto& change) {
    Job other = job;
    auto program = std::make_shared<lower::Program>(*job.roles[0].program);
    change(other, *program);
    other.roles[0].program = std::move(program);
    return mould.fits(other);
  };
  EXPECT_TRUE(with([](Job&, lower::Program& program) { program.tasks[0].duration_ps += 1; }));
  EXPECT_FALSE(with([](Job& other, lower::Program&) { other.odd_ranks.push_back({3}); }));
  EXPECT_FALSE(with([](Job& other, lower::Program&) { other.changing_links = {{5, {}}}; }));
  EXPECT_FALSE(with([](Job& other, lower::Program&) { other.roles.pop_back(); }));
  EXPECT_FALSE(with([](Job&, lower::Program& program) { program.calls.pop_back(); }));
  EXPECT_FALSE(with([](Job&, lower::Program& program) { ++program.groups[0].ranks.start; }));
  EXPECT_FALSE(with(
      [](Job&, lower::Program& program) { program.calls[0].phases[0].pattern = Pattern::ring; }));
  EXPECT_FALSE(with([](Job&, lower::Program& program) {
    auto& bytes = program.calls[0].phases[0].bytes;
    bytes = bytes == 0 ? 1 : 0;
  }));
  machine::Machine thinner = job.machine;
  thinner.fabric.tor.up_ports = 2;
  EXPECT_FALSE(mould.fits({thinner, job.topology, job.placement, job.rank_count, job.roles}));
  const auto slow = machine::make_topology(job.machine, 64, {{{"nic up 3", Rational{1, 2}}}, 0});
  EXPECT_FALSE(mould.fits({job.machine, *slow, job.placement, job.rank_count, job.roles}));
}

// Tensor-parallel pods, a pipeline of pods, data-parallel replicas: every task of every rank.
TEST(MakeCohorts, EveryTaskEndsWhenItEndsRankByRank) {
  for (const int odd : {0, 1, 2, 3}) {
    SCOPED_TRACE("odd " + std::to_string(odd));
    Training training;
    training.replicas = 16;
    training.stages = 4;
    training.seed = 11;
    training.machine.fabric.tor.up_ports = 8;
    if (odd & 1) training.odd_ranks = {{37, 3 << 15, 0, {}}};
    if (odd & 2) training.faults = {{"nic up 300", Rational{1, 2}}};
    const Job job = training.job();
    const auto every = std::make_shared<const System>(make_system(job));
    const Cohorts direct = make_cohorts(job);
    EXPECT_LT(direct.system->ranks.size() * 4, every->ranks.size());
    const auto unfolded = simulate::simulate_step(every, {}),
               folded = simulate::simulate_step(direct.system, {});
    EXPECT_EQ(unfolded.hash, folded.hash);
    int64_t different = 0;
    for (size_t rank = 0; rank < every->ranks.size(); ++rank) {
      const int64_t own = unfolded.first_task[rank];
      const int64_t shown = folded.first_task[size_t(direct.class_of_rank[rank])];
      for (int64_t i = 0; i < unfolded.first_task[rank + 1] - own; ++i) {
        different += unfolded.ends_ps[size_t(own + i)] != folded.ends_ps[size_t(shown + i)];
      }
    }
    EXPECT_EQ(different, 0);
  }
}

TEST(MakeCohorts, OneRankOfManyChipsBringsNoLinks) {
  Training training;
  training.replicas = 64;
  const Job job = training.job();
  ProgramBuilder builder;
  builder.task(builder.queue(lower::QueueKind::tensor, 0), 100);
  const Cohorts cohorts =
      make_cohorts(one_role(builder.build(), job.machine, job.topology, job.placement, 1));
  EXPECT_EQ(cohorts.system->ranks.size(), 1u);
  EXPECT_TRUE(cohorts.system->links.empty());
  EXPECT_EQ(cohorts.class_of_link, std::vector<int32_t>(size_t(job.topology.link_count()), -1));
}

TEST(MakeCohorts, BothSidesOfAMessageNumberItTheSame) {
  Training training;
  training.stages = 3;
  training.ranks_per_chip = 2;
  const Job job = training.job();
  const System every = make_system(job);
  const Messages messages(job);
  std::map<int32_t, int64_t> number_of;  // by communicator
  for (size_t rank = 0; rank < every.ranks.size(); ++rank) {
    const auto& communicators = every.ranks[rank].communicator_of_message;
    for (size_t call = 0; call < communicators.size(); ++call) {
      if (communicators[call] < 0) continue;
      const int64_t number = messages.number_of(int64_t(rank), int32_t(call));
      EXPECT_EQ(number_of.try_emplace(communicators[call], number).first->second, number);
    }
  }
  std::set<int64_t> numbers;
  for (const auto& [communicator, number] : number_of) numbers.insert(number);
  EXPECT_EQ(numbers.size(), number_of.size());
  EXPECT_EQ(numbers.size(), size_t(4 * 2 * 16));
}

TEST(MakeCohorts, RanksOutsideTheRolesAreNamed) {
  Training training;
  Job job = training.job();
  job.roles[0].ranks = {0, {{1, 31}}, {}};
  EXPECT_THROW(make_cohorts(job), Error);
  job.roles[0].ranks = {0, {{1, 33}}, {}};
  EXPECT_THROW(make_system(job), Error);
  job.roles[0].ranks = {0, {{1, 32}}, {}};
  job.odd_ranks = {{32, 1 << 15, 0, {}}};
  EXPECT_THROW(make_system(job), Error);
}

}  // namespace
}  // namespace trnsim::fold
