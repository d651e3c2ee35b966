// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/scenarios.h"

#include <algorithm>

#include "base/error.h"
#include "fold/side_by_side.h"
#include "simulate/jitter.h"
#include "simulate/timeline/bulk_view.h"

namespace trnsim::simulate {
namespace {

using Systems = std::vector<std::shared_ptr<const fold::System>>;

void simulate_batch(const Systems& batch, const SimulateOptions& options,
                    std::vector<int64_t>& makespans) {
  if (batch.size() == 1) {
    makespans.push_back(simulate_step(batch[0], options).makespan_ps);
    return;
  }
  const fold::SideBySide all = fold::place_side_by_side(batch);
  Timeline timeline;
  try {
    timeline = simulate_step(all.system, options);
  } catch (const Error&) {  // under the numbers of all of them: each alone says it in its own
    for (const auto& system : batch) simulate_step(system, options);
    throw;
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    int64_t& makespan_ps = makespans.emplace_back(0);
    for (int64_t rank = all.first_rank[i]; rank < all.first_rank[i + 1]; ++rank) {
      makespan_ps = std::max(makespan_ps, timeline.last_end_ps[size_t(rank)]);
    }
  }
}

// make(i) gives scenario i of so many.
template <typename Make>
std::vector<int64_t> simulate_batches(size_t count, SimulateOptions options, const Make& make) {
  TRN_CHECK(options.exchange == nullptr, simulate, "scenarios are not split between processes",
            "give each process scenarios of its own");
  options.keep_times = options.engine == Engine::reference;
  std::vector<int64_t> makespans;
  Systems batch;
  int64_t lanes = 0;
  const auto run = [&] {
    if (!batch.empty()) simulate_batch(batch, options, makespans);
    batch.clear();
    lanes = 0;
  };
  for (size_t i = 0; i < count; ++i) {
    auto scenario = make(i);
    const auto ranks = int64_t(scenario->ranks.size());
    const bool is_large = ranks > kTileLanes;
    if (is_large || lanes + ranks > kLanesAtOnce) run();
    batch.push_back(std::move(scenario));
    lanes += ranks;
    if (is_large) run();
  }
  run();
  return makespans;
}

}  // namespace

std::vector<int64_t> simulate_scenarios(const Systems& scenarios, const SimulateOptions& options) {
  return simulate_batches(scenarios.size(), options, [&](size_t i) { return scenarios[i]; });
}

std::vector<int64_t> simulate_seeds(const fold::System& system, const std::vector<uint64_t>& seeds,
                                    int32_t spread, const SimulateOptions& options) {
  return simulate_batches(seeds.size(), options,
                          [&](size_t i) { return with_jitter(system, seeds[i], spread); });
}

}  // namespace trnsim::simulate
