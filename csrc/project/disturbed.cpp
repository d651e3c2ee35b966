// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/disturbed.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <tuple>

#include "project/roles.h"
#include "project/shares.h"
#include "project/variants.h"
#include "simulate/jitter.h"
#include "simulate/scenarios.h"

namespace trnsim::project {
namespace {

using SystemPointer = std::shared_ptr<const fold::System>;

constexpr int64_t kLanesUnfolded = 64;            // a tile's
constexpr int64_t kKeptTasks = int64_t(1) << 24;  // of which all times are kept
constexpr int32_t kOne = 1 << 16;

int64_t tasks_of(const fold::System& system) {
  int64_t tasks = 0;
  for (const fold::Rank& rank : system.ranks) {
    tasks += int64_t(system.roles[size_t(rank.role)]->tasks.size());
  }
  return tasks;
}

// A job that was lowered once for all draws.
struct Prepared {
  Case of;
  std::vector<fold::JobRole> roles;
  int64_t step_ps = 0, tasks = 0, chips_used = 0;
  Breakdown breakdown;
  std::unique_ptr<machine::Topology> topology;
};

Prepared prepare(const Workloads& workloads, const machine::Machine& machine,
                 const DisturbOptions& options, const machine::Placement& placement, int64_t step) {
  ProjectOptions asked;
  asked.placement = placement;
  asked.step = step;
  asked.fold = options.fold;
  asked.step_mode = options.step_mode;
  Prepared job;
  job.of = make_case(workloads, asked);
  const Simulated simulated = simulate_case(job.of, machine);
  job.roles = simulated.roles;
  job.step_ps = simulated.timeline->makespan_ps;
  job.breakdown = share_step(*simulated.timeline, Sweep(*simulated.timeline)).breakdown;
  for (const fold::JobRole& role : job.roles) {
    const int64_t ranks = job.roles.size() == 1 ? job.of.used_ranks : role.ranks.size();
    job.tasks += ranks * int64_t(role.program->tasks.size());
  }
  job.chips_used = ceil_div(job.of.used_ranks, placement.ranks_per_chip);
  job.topology = machine::make_topology(machine, placement.chips);
  return job;
}

int32_t times(int64_t a, int64_t b) {
  const int64_t product = (a * b + (kOne >> 1)) >> 16;
  TRN_CHECK(product < INT32_MAX, project, "a chip is more than 32,767 times as slow",
            "give smaller factors");
  return int32_t(std::max<int64_t>(product, 1));
}

// What a draw makes of a job: one System, or two that bound it.
struct Ready {
  SystemPointer low, high;
  const SystemPointer& worst() const { return high; }
};

class Maker {
 public:
  Maker(const Prepared& job, const machine::Machine& machine, const DisturbOptions& options)
      : job_(job), machine_(machine), options_(options) {}

  bool is_exact(const Draw& draw) const {
    return draw.sigma == 0 || options_.one_by_one || job_.tasks <= options_.exact_tasks;
  }

  Ready make(const Draw& draw, uint64_t seed, std::vector<int64_t> pod_places) const {
    Scenario scenario = parse_scenario(draw.slow_chips, draw.faults);
    scenario.pod_places = std::move(pod_places);
    scenario.hash_seed = draw.hash_seed;
    for (const machine::LinkFault& fault : draw.sprayed) scenario.links.push_back({fault, 0});
    const auto topology =
        machine::make_topology(machine_, job_.of.placement.chips, conditions_of(scenario));
    if (!is_exact(draw)) return bound(scenario, *topology, draw, seed);
    fold::Job job = job_on(*topology);
    add_scenario(scenario, job);
    const bool fold = options_.fold && !options_.one_by_one && draw.sigma == 0 &&
                      job_.of.used_ranks > kLanesUnfolded;
    if (fold) {
      const SystemPointer system = fold::make_cohorts(job).system;
      return {system, system};
    }
    SystemPointer system = std::make_shared<const fold::System>(fold::make_system(job));
    if (draw.sigma > 0) {
      system = simulate::with_chip_factors(
          *system, [&](int32_t chip) { return simulate::normal_factor(seed, chip, draw.sigma); });
    }
    return {system, system};
  }

 private:
  fold::Job job_on(const machine::Topology& topology) const {
    return {machine_, topology, job_.of.placement, job_.of.used_ranks, job_.roles};
  }

  // The factors of all chips, those in time apart.
  struct Factors {
    std::vector<int32_t> of_chip;
    std::map<int64_t, std::vector<fold::FactorChange>> changes;
  };
  Factors factors_of(const Scenario& scenario, const Draw& draw, uint64_t seed) const {
    Factors factors;
    for (int32_t chip = 0; chip < job_.chips_used; ++chip) {
      factors.of_chip.push_back(simulate::normal_factor(seed, chip, draw.sigma));
    }
    for (const ChipFault& fault : scenario.chips) {
      int32_t& factor = factors.of_chip[size_t(fault.chip)];
      if (fault.time_ps > 0) {
        factors.changes[fault.chip].push_back({fault.time_ps, times(factor, fault.factor)});
      } else {
        factor = times(factor, fault.factor);
      }
    }
    return factors;
  }

  // These have factors of their own: the slowest, and what changes in time.
  std::vector<bool> choose_chips(const Factors& factors) const {
    std::vector<int64_t> chips(factors.of_chip.size());
    std::iota(chips.begin(), chips.end(), 0);
    const size_t count = std::min(chips.size(), size_t(kBoundChips));
    const auto is_slower = [&](int64_t a, int64_t b) {
      const int32_t left = factors.of_chip[size_t(a)], right = factors.of_chip[size_t(b)];
      return left != right ? left > right : a < b;
    };
    std::partial_sort(chips.begin(), chips.begin() + int64_t(count), chips.end(), is_slower);
    std::vector<bool> own(chips.size(), false);
    for (size_t i = 0; i < count; ++i) own[size_t(chips[i])] = true;
    for (const auto& [chip, changes] : factors.changes) own[size_t(chip)] = true;
    return own;
  }

  Ready bound(const Scenario& scenario, const machine::Topology& topology, const Draw& draw,
              uint64_t seed) const {
    const Factors factors = factors_of(scenario, draw, seed);
    const std::vector<bool> own = choose_chips(factors);
    int32_t least = INT32_MAX, most = 0;
    for (int32_t chip = 0; chip < job_.chips_used; ++chip) {
      if (own[size_t(chip)]) continue;
      least = std::min(least, factors.of_chip[size_t(chip)]);
      most = std::max(most, factors.of_chip[size_t(chip)]);
    }
    Ready ready;
    ready.low = bounded(topology, factors, own, least == INT32_MAX ? kOne : least, -1);
    ready.high = most == 0 ? ready.low : bounded(topology, factors, own, most, 1);
    return ready;
  }

  // A factor of exactly one would be taken for that of the others: it is moved by `nudge`.
  SystemPointer bounded(const machine::Topology& topology, const Factors& factors,
                        const std::vector<bool>& own, int32_t of_others, int32_t nudge) const {
    fold::Job job = job_on(topology);
    const int64_t ranks_per_chip = job.placement.ranks_per_chip;
    for (int64_t rank = 0; rank < job.rank_count; ++rank) {
      const int64_t chip = rank / ranks_per_chip;
      if (!own[size_t(chip)]) continue;
      fold::OddRank odd{rank, factors.of_chip[size_t(chip)]};
      if (odd.factor == kOne) odd.factor += nudge;
      const auto changes = factors.changes.find(chip);
      if (changes != factors.changes.end()) odd.changes = changes->second;
      job.odd_ranks.push_back(std::move(odd));
    }
    auto system = std::make_shared<fold::System>(*fold::make_cohorts(job).system);
    for (fold::Rank& rank : system->ranks) {
      if (rank.factor == kOne) rank.factor = of_others;
    }
    return system;
  }

  const Prepared& job_;
  const machine::Machine& machine_;
  const DisturbOptions& options_;
};

// Where the pods of a job stand once some are out of service, and which job goes on.
struct Plan {
  int64_t job = 0;
  std::vector<int64_t> places;
  std::string stops;
};

// Everything of one disturbance.
class Ensemble {
 public:
  Ensemble(const std::vector<Prepared>& jobs, const machine::Machine& machine,
           const DisturbOptions& options)
      : jobs_(jobs), options_(options) {
    for (const Prepared& job : jobs_) makers_.emplace_back(job, machine, options);
  }

  Disturbed run(const DisturbanceSet& set, const Grounds& grounds) {
    result_.text = set.text;
    draw_all(set, grounds);
    check_size();
    if (options_.progress) options_.progress->total += int64_t(firsts_.size());
    simulate_all();
    for (size_t i = 0; i < result_.outcomes.size(); ++i) copy_from(first_of_[i], i);
    add_percentiles();
    return std::move(result_);
  }

 private:
  void draw_all(const DisturbanceSet& set, const Grounds& grounds) {
    std::map<std::string, size_t> known;
    for (int64_t i = 0; i < options_.seeds; ++i) {
      Outcome& outcome = result_.outcomes.emplace_back();
      outcome.seed = options_.first_seed + uint64_t(i);
      outcome.drawn = grounds.draw(set, outcome.seed);
      const auto [found, is_new] = known.try_emplace(key_of(outcome), size_t(i));
      first_of_.push_back(found->second);
      plans_.push_back(plan(outcome.drawn));
      outcome.stops = plans_.back().stops;
      outcome.job = plans_.back().job;
      if (is_new) firsts_.push_back(size_t(i));
    }
    result_.simulated = int64_t(firsts_.size());
  }

  // Draws with the same key are the same.
  static std::string key_of(const Outcome& outcome) {
    const bool is_own = outcome.drawn.sigma > 0 || outcome.drawn.hash_seed > 0;
    std::string key = is_own ? std::to_string(outcome.seed) : "";
    for (const auto* list :
         {&outcome.drawn.slow_chips, &outcome.drawn.faults, &outcome.drawn.what}) {
      for (const std::string& text : *list) key += text + ";";
      key += "|";
    }
    for (const int64_t pod : outcome.drawn.pods_out) key += std::to_string(pod) + ";";
    return key;
  }

  Plan plan(const Draw& draw) const {
    if (draw.pods_out.empty()) return {};
    const int64_t pods = jobs_[0].topology->pod_count(), chips = jobs_[0].topology->pod_chips();
    const auto& out = draw.pods_out;
    Plan plan;
    int64_t spares = 0;
    for (int64_t pod = 0; pod < pods; ++pod) {
      if (!std::binary_search(out.begin(), out.end(), pod)) {
        plan.places.push_back(pod);
      } else if (spares < options_.spare_pods) {
        plan.places.push_back(pods + spares++);
      }
    }
    const auto left = int64_t(plan.places.size());
    const auto fits = [&](const Prepared& job) { return job.of.placement.chips == left * chips; };
    const auto job = std::find_if(jobs_.begin(), jobs_.end(), fits);
    plan.job = job - jobs_.begin();
    if (left <= 1) plan.places.clear();  // a pod alone is in no fabric
    if (job != jobs_.end()) return plan;
    return {0,
            {},
            std::to_string(out.size()) + " of " + std::to_string(pods) + " pods out of service, " +
                std::to_string(spares) + " replaced: no run of the job on the " +
                std::to_string(left) + " that are left"};
  }

  void check_size() const {
    int64_t tasks = 0;
    for (const size_t i : firsts_) {
      const Draw& draw = result_.outcomes[i].drawn;
      const Prepared& job = jobs_[size_t(plans_[i].job)];
      if (draw.sigma > 0 && makers_[size_t(plans_[i].job)].is_exact(draw)) tasks += job.tasks;
    }
    TRN_CHECK(tasks <= options_.most_tasks, project,
              "'" + result_.text + "' would simulate " + std::to_string(tasks) +
                  " tasks, rank by rank, which takes hours",
              "use fewer seeds, or leave --exact out: bounds then take minutes");
  }

  // The host's threads share the draws, some at a time.
  void simulate_all() {
    int64_t largest = 0;
    for (const Prepared& job : jobs_) largest = std::max(largest, job.tasks);
    const bool is_large = largest > (1 << 25) && largest <= options_.exact_tasks;  // rank by rank
    const size_t at_once = options_.one_by_one || largest > (1 << 22) ? 1 : 16;
    std::atomic<size_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_mutex;
    const auto work = [&] {
      for (size_t i = next.fetch_add(at_once); i < firsts_.size(); i = next.fetch_add(at_once)) {
        try {
          simulate_some(i, std::min(i + at_once, firsts_.size()));
        } catch (...) {
          const std::lock_guard lock(failure_mutex);
          if (!failure) failure = std::current_exception();
          next = firsts_.size();
        }
      }
    };
    std::vector<std::thread> pool;
    const unsigned hardware = std::max(1u, std::thread::hardware_concurrency());
    for (unsigned i = 1; i < (is_large ? 1 : hardware); ++i) pool.emplace_back(work);
    work();
    for (std::thread& thread : pool) thread.join();
    if (failure) std::rethrow_exception(failure);
  }

  void simulate_some(size_t begin, size_t end) {
    std::map<int64_t, std::vector<std::pair<Outcome*, Ready>>> ready;  // by job
    for (size_t i = begin; i < end; ++i) {
      Outcome& outcome = result_.outcomes[firsts_[i]];
      if (outcome.stops.empty()) {
        if (auto made = make(firsts_[i])) ready[outcome.job].emplace_back(&outcome, *made);
      }
    }
    for (const auto& [job, list] : ready) simulate_list(list);
    if (options_.progress) options_.progress->done += int64_t(end - begin);
  }

  // Nothing where dead links part the chips: the outcome then says so.
  std::optional<Ready> make(size_t index) {
    Outcome& outcome = result_.outcomes[index];
    try {
      return makers_[size_t(outcome.job)].make(outcome.drawn, outcome.seed, plans_[index].places);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::machine) throw;
      outcome.stops = error.what();
      return {};
    }
  }

  void simulate_list(const std::vector<std::pair<Outcome*, Ready>>& list) const {
    simulate::SimulateOptions how;
    how.keep_times = false;
    if (options_.one_by_one) how.engine = simulate::Engine::reference;
    std::vector<SystemPointer> systems;
    for (const auto& [outcome, of] : list) {
      systems.push_back(of.low);
      if (of.high != of.low) systems.push_back(of.high);
    }
    std::vector<int64_t> steps;
    if (options_.one_by_one) {
      for (const SystemPointer& system : systems) {
        how.keep_times = true;
        steps.push_back(simulate::simulate_step(system, how).makespan_ps);
      }
    } else {
      steps = simulate::simulate_scenarios(systems, how);
    }
    size_t at = 0;
    for (const auto& [outcome, of] : list) {
      const int64_t low = steps[at++], high = of.high == of.low ? low : steps[at++];
      outcome->low_ps = std::min(low, high);
      outcome->high_ps = std::max(low, high);
    }
  }

  void copy_from(size_t first, size_t index) {
    Outcome& to = result_.outcomes[index];
    const Outcome& from = result_.outcomes[first];
    to.low_ps = from.low_ps;
    to.high_ps = from.high_ps;
    to.stops = from.stops;
    const int64_t step_ps = jobs_[0].step_ps;
    result_.stopped += !to.stops.empty();
    result_.affected +=
        !to.stops.empty() || !to.drawn.pods_out.empty() || to.high_ps > step_ps + step_ps / 1000;
  }

  // A smaller job's step may be shorter and hold less: what counts is how long its work takes.
  std::tuple<bool, double, int64_t> rank_of(const Outcome& outcome) const {
    const double work = outcome.job == 0 ? 1 : options_.smaller[size_t(outcome.job - 1)].work;
    return {!outcome.stops.empty(), double(outcome.high_ps) / work, outcome.high_ps};
  }

  void add_percentiles() {
    std::vector<int64_t> order(result_.outcomes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return rank_of(result_.outcomes[size_t(a)]) < rank_of(result_.outcomes[size_t(b)]);
    });
    std::map<size_t, std::optional<Breakdown>> known;  // by draw
    for (const int64_t percentile : std::array<int64_t, 5>{5, 50, 95, 99, 100}) {
      const int64_t rank = ceil_div(percentile * int64_t(order.size()), int64_t{100});
      const int64_t index = order[size_t(std::max<int64_t>(rank, 1) - 1)];
      AtPercentile at{double(percentile), index, {}};
      const bool is_shown = percentile == 50 || percentile == 95 || percentile == 99;
      if (is_shown && result_.outcomes[size_t(index)].stops.empty()) {
        const auto [found, is_new] = known.try_emplace(first_of_[size_t(index)]);
        if (is_new) found->second = break_down(found->first);
        at.breakdown = found->second;
      }
      result_.at.push_back(at);
    }
  }

  std::optional<Breakdown> break_down(size_t index) {
    const std::optional<Ready> ready = make(index);
    if (!ready || tasks_of(*ready->high) > kKeptTasks) return {};
    const simulate::Timeline timeline = simulate::simulate_step(ready->high, {});
    return share_step(timeline, Sweep(timeline)).breakdown;
  }

  const std::vector<Prepared>& jobs_;
  const DisturbOptions& options_;
  std::vector<Maker> makers_;
  std::vector<Plan> plans_;       // by outcome
  std::vector<size_t> first_of_;  // by outcome, the first that is the same
  std::vector<size_t> firsts_;
  Disturbed result_;
};

void check_smaller(const std::vector<Prepared>& jobs) {
  const machine::Topology& whole = *jobs[0].topology;
  for (size_t i = 1; i < jobs.size(); ++i) {
    const int64_t chips = jobs[i].of.placement.chips;
    TRN_CHECK(chips < whole.chip_count() && chips % whole.pod_chips() == 0, project,
              "a smaller run of " + std::to_string(chips) + " chips beside one of " +
                  std::to_string(whole.chip_count()) + " in pods of " +
                  std::to_string(whole.pod_chips()),
              "give runs of some whole pods of the job");
  }
}

}  // namespace

Disturbances disturb_step(const Workloads& workloads, const machine::Machine& machine,
                          const DisturbOptions& options) {
  TRN_CHECK(options.seeds > 0, project, "no seeds", "give 1 or more");
  TRN_CHECK(!options.disturbances.empty(), project, "no disturbance", "give one or more");
  std::vector<DisturbanceSet> sets;
  for (const std::string& text : options.disturbances) sets.push_back(parse_disturbance(text));
  std::vector<Prepared> jobs;
  jobs.push_back(prepare(workloads, machine, options, options.placement, options.step));
  for (const SmallerJob& job : options.smaller) {
    TRN_CHECK(job.work > 0, project, "a smaller job without work", "give its share of the job's");
    jobs.push_back(prepare(job.workloads, machine, options, job.placement, job.step));
  }
  check_smaller(jobs);
  const int64_t pods = jobs[0].topology->pod_count() + options.spare_pods;
  TRN_CHECK(options.spare_pods == 0 || pods <= machine.fabric.pods, machine,
            std::to_string(options.spare_pods) + " spare pods beside " +
                std::to_string(jobs[0].topology->pod_count()) + ": " + machine.name + " joins " +
                std::to_string(machine.fabric.pods),
            "use fewer spares, or a machine with a larger fabric");
  Grounds grounds(machine, *jobs[0].topology, jobs[0].chips_used, jobs[0].step_ps);
  for (const DisturbanceSet& set : sets) grounds.check(set);
  Disturbances result{jobs[0].step_ps, jobs[0].breakdown, {}, {}};
  for (size_t i = 1; i < jobs.size(); ++i) result.smaller_ps.push_back(jobs[i].step_ps);
  for (const DisturbanceSet& set : sets) {
    result.rows.push_back(Ensemble(jobs, machine, options).run(set, grounds));
  }
  return result;
}

}  // namespace trnsim::project
