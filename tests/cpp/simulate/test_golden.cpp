// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Hashes of a few fixed Systems, in tests/golden/timeline_hashes.json: the same in every build and
// with every number of threads. To write them again after a change of meaning, run test_simulate
// with TRNSIM_WRITE_GOLDEN=1 and say in the commit what changed.
#include <gtest/gtest.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/hash.h"
#include "fold/cohorts.h"
#include "scenes.h"
#include "simulate/timeline/bulk.h"

namespace trnsim::simulate {
namespace {

using Hashes = std::map<std::string, std::string>;

std::filesystem::path golden_path() {
  for (auto at = std::filesystem::current_path();; at = at.parent_path()) {
    const auto path = at / "tests" / "golden" / "timeline_hashes.json";
    if (std::filesystem::exists(path.parent_path())) return path;
    if (at == at.root_path()) throw std::runtime_error("run inside the source tree");
  }
}

// {"name": "hash", ...}: every other quoted word is a name.
Hashes read_golden() {
  std::ifstream file(golden_path());
  Hashes hashes;
  std::string skipped, name, hash;
  while (std::getline(file, skipped, '"') && std::getline(file, name, '"') &&
         std::getline(file, skipped, '"') && std::getline(file, hash, '"')) {
    hashes[name] = hash;
  }
  return hashes;
}

Hashes hashes_of(const SimulateOptions& options) {
  Hashes hashes;
  const auto add = [&](const std::string& name, const std::shared_ptr<const fold::System>& system) {
    hashes[name] = hex16(simulate_step(system, options).hash);
  };
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    add("random " + std::to_string(seed), scenes::random_system(seed));
  }
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    add("many ranks " + std::to_string(seed), scenes::many_ranks(seed, 1100));
  }
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const std::string name = std::to_string(seed);
    const auto twice = scenes::twice(*scenes::random_system(seed));
    add("twice " + name, twice);
    add("twice " + name + ", folded", fold::fold_system(twice).system);
    add("throttled " + name, scenes::throttled(*twice, seed));
    const auto slowed = scenes::with_interference(*twice, seed);
    add("slowed by transfers " + name, slowed);
    add("slowed by transfers " + name + ", folded", fold::fold_system(slowed).system);
  }
  return hashes;
}

SimulateOptions bulk(Backend backend) {
  SimulateOptions options;
  options.backend = backend;
  return options;
}

TEST(Golden, HashesAreWhatTheyWere) {
  const Hashes hashes = hashes_of(bulk(Backend::cpp));
  if (std::getenv("TRNSIM_WRITE_GOLDEN") != nullptr) {
    std::ofstream file(golden_path());
    file << "{";
    const char* separator = "\n";
    for (const auto& [name, hash] : hashes) {
      file << separator << "  \"" << name << "\": \"" << hash << '"';
      separator = ",\n";
    }
    file << "\n}\n";
  }
  EXPECT_EQ(hashes, read_golden());
}

TEST(Golden, FoldingChangesNone) {
  const Hashes golden = read_golden();
  int folded = 0;
  for (const auto& [name, hash] : golden) {
    const size_t at = name.find(", folded");
    if (at == std::string::npos) continue;
    ++folded;
    EXPECT_EQ(hash, golden.at(name.substr(0, at))) << name;
  }
  EXPECT_EQ(folded, 8);
}

TEST(Golden, TheReferenceGivesThemToo) {
  SimulateOptions options;
  options.engine = Engine::reference;
  EXPECT_EQ(hashes_of(options), read_golden());
}

TEST(Golden, TheNumberOfThreadsDoesNotMatter) {
#ifdef _OPENMP
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 3, 4}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(hashes_of(bulk(Backend::omp)), read_golden()) << threads << " threads";
  }
  omp_set_num_threads(before);
#else
  GTEST_SKIP() << "this compiler has no OpenMP";
#endif
}

TEST(Golden, TbbGivesTheSame) {
  if (!has_tbb()) GTEST_SKIP() << "this build has no TBB";
  EXPECT_EQ(hashes_of(bulk(Backend::tbb)), read_golden());
}

TEST(Golden, AGpuGivesThemToo) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "this machine has no GPU";
  EXPECT_EQ(hashes_of(bulk(Backend::cuda)), read_golden());
}

}  // namespace
}  // namespace trnsim::simulate
