// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Bulk = reference, to the last picosecond, on every awkward System.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "scenes.h"
#include "simulate/timeline/bulk.h"

namespace trnsim::simulate {
namespace {

SimulateOptions bulk(Backend backend) {
  SimulateOptions options;
  options.engine = Engine::bulk;
  options.backend = backend;
  return options;
}

SimulateOptions reference() {
  SimulateOptions options;
  options.engine = Engine::reference;
  options.use_private = false;
  return options;
}

void expect_same(const Timeline& got, const Timeline& expected, uint64_t seed) {
  ASSERT_EQ(got.ends_ps, expected.ends_ps) << "seed " << seed;
  ASSERT_EQ(got.starts_ps, expected.starts_ps) << "seed " << seed;
  ASSERT_EQ(got.first_task, expected.first_task) << "seed " << seed;
  ASSERT_EQ(got.hash, expected.hash) << "seed " << seed;
  ASSERT_EQ(got.makespan_ps, expected.makespan_ps) << "seed " << seed;
  ASSERT_EQ(got.calls.size(), expected.calls.size());
  for (size_t i = 0; i < got.calls.size(); ++i) {
    ASSERT_EQ(got.calls[i].end_ps, expected.calls[i].end_ps) << "seed " << seed;
    ASSERT_EQ(got.calls[i].first_arrival_ps, expected.calls[i].first_arrival_ps);
    ASSERT_EQ(got.calls[i].phase_end_ps, expected.calls[i].phase_end_ps);
  }
}

TEST(Bulk, EqualsTheReferenceOnRandomSystems) {
  for (uint64_t seed = 0; seed < scenes::seeds(4000); ++seed) {
    const auto system = scenes::random_system(seed);
    const Timeline expected = simulate_step(system, reference());
    const Timeline got = simulate_step(system, bulk(Backend::cpp));
    expect_same(got, expected, seed);
    ASSERT_EQ(got.engine, "bulk cpp");
  }
}

TEST(Bulk, OpenMpChangesNoDigit) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto system = scenes::many_ranks(seed, 1200);
    const Timeline expected = simulate_step(system, bulk(Backend::cpp));
    expect_same(simulate_step(system, bulk(Backend::omp)), expected, seed);
  }
}

TEST(Bulk, TbbChangesNoDigit) {
  if (!has_tbb()) GTEST_SKIP() << "this build has no TBB";
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto system = scenes::many_ranks(seed, 1200);
    const Timeline got = simulate_step(system, bulk(Backend::tbb));
    expect_same(got, simulate_step(system, bulk(Backend::cpp)), seed);
    ASSERT_EQ(got.engine, "bulk tbb");
  }
}

TEST(Bulk, ReusedSlotsChangeNoDigit) {
  for (uint64_t seed = 0; seed < scenes::seeds(2000); ++seed) {
    const auto system = scenes::random_system(seed);
    SimulateOptions options = bulk(Backend::cpp);
    const Timeline expected = simulate_step(system, options);
    options.keep_times = false;
    const Timeline got = simulate_step(system, options);
    ASSERT_EQ(got.hash, expected.hash) << "seed " << seed;
    ASSERT_EQ(got.makespan_ps, expected.makespan_ps) << "seed " << seed;
    ASSERT_TRUE(got.ends_ps.empty());
  }
}

TEST(Bulk, ManyRanksOfManyGroupsEqualTheReference) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto system = scenes::many_ranks(seed, 200);
    expect_same(simulate_step(system, bulk(Backend::cpp)), simulate_step(system, reference()),
                seed);
  }
}

TEST(Bulk, FactorsThatChangeInMidRunEqualTheReference) {
  for (uint64_t seed = 0; seed < scenes::seeds(1000); ++seed) {
    const auto system = scenes::throttled(*scenes::random_system(seed), seed);
    const Timeline expected = simulate_step(system, reference());
    expect_same(simulate_step(system, bulk(Backend::cpp)), expected, seed);
    SimulateOptions options = bulk(Backend::cpp);
    options.keep_times = false;
    ASSERT_EQ(simulate_step(system, options).hash, expected.hash) << "seed " << seed;
  }
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto system = scenes::throttled(*scenes::many_ranks(seed, 200), seed);
    expect_same(simulate_step(system, bulk(Backend::cpp)), simulate_step(system, reference()),
                seed);
  }
}

TEST(Bulk, ADeadlockReadsTheSameFromBothEngines) {
  int found = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto system = scenes::deadlocked(seed);
    std::string texts[2];
    for (const bool is_bulk : {false, true}) {
      try {
        simulate_step(system, is_bulk ? bulk(Backend::cpp) : reference());
      } catch (const Error& error) {
        texts[is_bulk] = error.what();
      }
    }
    ASSERT_EQ(texts[0], texts[1]) << "seed " << seed;
    found += !texts[0].empty();
  }
  EXPECT_GT(found, 100);
}

TEST(Bulk, WithoutAGpuTheCpuIsUsedAndSaysSo) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const auto system = scenes::random_system(1);
  const Timeline timeline = simulate_step(system, bulk(Backend::cuda));
  EXPECT_EQ(timeline.engine.substr(0, 10), "bulk cpp (");
  EXPECT_EQ(timeline.hash, simulate_step(system, bulk(Backend::cpp)).hash);
}

TEST(Bulk, TheBackendIsChosenBySizeAndSaysWhy) {
  std::string why;
  EXPECT_EQ(choose_backend(Backend::automatic, 4, 100'000'000, why), Backend::cpp);
  EXPECT_EQ(why, "too small for threads");
  why.clear();
  EXPECT_EQ(choose_backend(Backend::automatic, 100'000, 200'000, why), Backend::cpp);
  why.clear();
  const Backend large = choose_backend(Backend::automatic, 4096, 80'000'000, why);
  EXPECT_EQ(large, why == "1 thread" ? Backend::cpp : Backend::omp);
  why.clear();
  EXPECT_EQ(choose_backend(Backend::omp, 1, 1, why), Backend::omp);
  EXPECT_EQ(why, "");
  const auto system = scenes::random_system(1);
  EXPECT_EQ(simulate_step(system, bulk(Backend::automatic)).engine,
            "bulk cpp (too small for threads)");
}

TEST(Bulk, TheEnvironmentMayAskForAGpuOrForbidIt) {
  const auto system = scenes::random_system(1);
  const uint64_t hash = simulate_step(system, reference()).hash;
  for (const char* device : {"cpu", "cuda", ""}) {
    setenv("TRNSIM_DEVICE", device, 1);
    const Timeline timeline = simulate_step(system, bulk(Backend::automatic));
    unsetenv("TRNSIM_DEVICE");
    EXPECT_EQ(timeline.hash, hash);
    const bool on_gpu = std::string(device) == "cuda" && cuda_device_count() > 0;
    EXPECT_EQ(timeline.engine.substr(0, 9), on_gpu ? "bulk cuda" : "bulk cpp ") << device;
  }
  setenv("TRNSIM_DEVICE", "gpu", 1);
  EXPECT_THROW(simulate_step(system, bulk(Backend::automatic)), Error);
  unsetenv("TRNSIM_DEVICE");
}

TEST(Bulk, CudaChangesNoDigit) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "this machine has no GPU";
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto system = scenes::random_system(seed);
    expect_same(simulate_step(system, bulk(Backend::cuda)), simulate_step(system, reference()),
                seed);
    const auto changes = scenes::throttled(*system, seed);
    expect_same(simulate_step(changes, bulk(Backend::cuda)), simulate_step(changes, reference()),
                seed);
  }
  const auto system = scenes::many_ranks(1, 1200);
  expect_same(simulate_step(system, bulk(Backend::cuda)), simulate_step(system, bulk(Backend::cpp)),
              1);
}

}  // namespace
}  // namespace trnsim::simulate
