// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The bulk lanes beside a priority-queue simulation of the same job, on one core.
//
// The job: 6 engines a chip, up to 2 dependences on other engines among the last 40 tasks, a factor
// per chip, and every 200 tasks a barrier of 64 chips. The peer is what a discrete-event simulator
// does for one chip, as fast as we could write it: an event heap keyed by end time, counters of
// open dependences, lists of dependents; one chip after the other, so that each finds its state in
// the first-level cache. Beside it our own reference engine, which is written to be read: all chips
// in one queue of moments. All count the Timeline's hash, and the hashes must agree.
//
//   timeline CHIPS TASKS PEER_CHIPS BACKEND    prints CSV, the median of five runs that take turns;
//                                              CPU time, since wall time depends on who else uses
//                                              the machine (BACKEND cuda: wall time)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iterator>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "simulate/timeline/lanes.h"
#include "simulate/timeline/mix.h"

namespace {

using namespace trnsim;

constexpr int32_t kEngines = 6, kBarrierEvery = 200, kGroup = 64, kLookBack = 40;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

double wall_seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

std::shared_ptr<const lower::Program> make_program(int32_t task_count) {
  std::mt19937_64 random(1);
  auto program = std::make_shared<lower::Program>();
  program->role = "benchmark";
  for (int32_t i = 0; i < kEngines; ++i) program->queues.push_back({lower::QueueKind::tensor, i});
  program->queues.push_back({lower::QueueKind::collective, 0});
  program->groups.push_back({"group", {}});
  program->calls.emplace_back();
  program->calls.back().kind = workload::CallKind::barrier;
  std::vector<int32_t> last(kEngines, -1);
  int32_t barrier = -1;
  for (int32_t index = 0; index < task_count; ++index) {
    lower::Task task;
    task.deps_begin = int32_t(program->deps.size());
    const auto wait_for = [&](int32_t other) {
      if (other < 0) return;
      program->deps.push_back({other, lower::DepKind::end, 0});
      ++task.deps_count;
    };
    if (index % kBarrierEvery == kBarrierEvery - 1) {
      task.kind = lower::TaskKind::call;
      task.queue = kEngines;
      task.call = 0;
      for (int32_t& other : last) {
        wait_for(other);
        other = -1;
      }
      barrier = index;
    } else {
      task.queue = int32_t(random() % kEngines);
      task.duration_ps = 1000 + int64_t(random() % 1'000'000);
      for (int i = 0; i < 2; ++i) {
        const int32_t other = index - 1 - int32_t(random() % kLookBack);
        if (random() % 2 == 0 && other > barrier) wait_for(other);
      }
      if (last[size_t(task.queue)] < 0) wait_for(barrier);
      last[size_t(task.queue)] = index;
    }
    program->tasks.push_back(task);
  }
  return program;
}

std::shared_ptr<const fold::System> make_job(const std::shared_ptr<const lower::Program>& program,
                                             int32_t chips) {
  std::mt19937_64 random(2);
  auto system = std::make_shared<fold::System>();
  system->roles = {program};
  for (int32_t chip = 0; chip < chips; ++chip) {
    fold::Rank rank;
    rank.chip = chip;
    rank.factor = 65536 + int32_t(random() % 3277);  // up to 5 % slower
    rank.communicator_of_slot = {chip / kGroup};
    system->ranks.push_back(rank);
    if (chip % kGroup == 0) {
      system->communicators.push_back({0, {}, "group " + std::to_string(chip / kGroup)});
      system->plan.push_back({{}});
    }
    system->communicators.back().members.push_back(chip);
  }
  return system;
}

// The peer.
class EventSimulation {
 public:
  explicit EventSimulation(const fold::System& system)
      : system_(system), program_(*system.roles[0]), queues_(simulate::index_queues(program_)) {
    const size_t tasks = program_.tasks.size();
    first_dependent_.assign(tasks + 1, 0);
    for (const lower::Dep& dep : program_.deps) ++first_dependent_[size_t(dep.task) + 1];
    for (size_t t = 0; t < tasks; ++t) first_dependent_[t + 1] += first_dependent_[t];
    dependents_.resize(program_.deps.size());
    std::vector<int32_t> filled = first_dependent_;
    for (size_t t = 0; t < tasks; ++t) {
      const lower::Task& task = program_.tasks[t];
      for (int32_t i = 0; i < task.deps_count; ++i) {
        const size_t other = size_t(program_.deps[size_t(task.deps_begin + i)].task);
        dependents_[size_t(filled[other]++)] = int32_t(t);
      }
      seeds_.push_back(simulate::hash_seed(0, int32_t(t)));
    }
  }

  uint64_t run() {
    hash_ = 0;
    for (size_t first = 0; first < system_.ranks.size(); first += kGroup) run_group(first);
    return hash_;
  }

 private:
  struct Event {
    int64_t time_ps;
    int32_t task;
    bool operator>(const Event& other) const { return time_ps > other.time_ps; }
  };
  struct Chip {
    std::vector<int32_t> open;  // dependences left, by task
    std::vector<int32_t> head;  // by queue
    std::vector<uint8_t> busy;  // by queue
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    int32_t factor = 0, barrier = -1;
    int64_t arrival_ps = 0;
  };

  void run_group(size_t first) {
    std::vector<Chip> chips(kGroup);
    for (size_t i = 0; i < chips.size(); ++i) {
      Chip& chip = chips[i];
      chip.factor = system_.ranks[first + i].factor;
      for (const lower::Task& task : program_.tasks) chip.open.push_back(task.deps_count);
      chip.head.assign(program_.queues.size(), 0);
      chip.busy.assign(program_.queues.size(), 0);
      for (int32_t queue = 0; queue <= kEngines; ++queue) start(chip, queue, 0);
    }
    for (bool more = true; more;) {
      int64_t ready_ps = 0;
      more = false;
      for (Chip& chip : chips) {
        run_chip(chip);
        more |= chip.barrier >= 0;
        ready_ps = std::max(ready_ps, chip.arrival_ps);
      }
      for (Chip& chip : chips) {
        if (chip.barrier >= 0) chip.events.push({ready_ps, chip.barrier});
        chip.barrier = -1;
      }
    }
  }

  void run_chip(Chip& chip) {
    while (!chip.events.empty()) {
      const Event event = chip.events.top();
      chip.events.pop();
      hash_ += simulate::mix_end(seeds_[size_t(event.task)], event.time_ps);
      const int32_t queue = program_.tasks[size_t(event.task)].queue;
      ++chip.head[size_t(queue)];
      chip.busy[size_t(queue)] = 0;
      start(chip, queue, event.time_ps);
      const int32_t end = first_dependent_[size_t(event.task) + 1];
      for (int32_t i = first_dependent_[size_t(event.task)]; i < end; ++i) {
        const int32_t other = dependents_[size_t(i)];
        if (--chip.open[size_t(other)] > 0) continue;
        start(chip, program_.tasks[size_t(other)].queue, event.time_ps);
      }
    }
  }

  void start(Chip& chip, int32_t queue, int64_t now_ps) {
    const int32_t at = queues_.first[size_t(queue)] + chip.head[size_t(queue)];
    if (chip.busy[size_t(queue)] || at == queues_.first[size_t(queue) + 1]) return;
    const int32_t index = queues_.tasks[size_t(at)];
    if (chip.open[size_t(index)] > 0) return;
    chip.busy[size_t(queue)] = 1;
    const lower::Task& task = program_.tasks[size_t(index)];
    if (task.kind == lower::TaskKind::call) {
      chip.barrier = index;
      chip.arrival_ps = now_ps;
    } else {
      const int64_t duration = simulate::scale_duration(task.duration_ps, chip.factor);
      chip.events.push({now_ps + duration, index});
    }
  }

  const fold::System& system_;
  const lower::Program& program_;
  simulate::QueueIndex queues_;
  std::vector<int32_t> first_dependent_, dependents_;
  std::vector<uint64_t> seeds_;
  uint64_t hash_ = 0;
};

simulate::SimulateOptions bulk_options(const std::string& backend) {
  simulate::SimulateOptions options;
  options.keep_times = false;
  options.backend = backend == "cuda"  ? simulate::Backend::cuda
                    : backend == "omp" ? simulate::Backend::omp
                                       : simulate::Backend::cpp;
  return options;
}

using Job = std::shared_ptr<const fold::System>;

struct Row {
  std::string engine;
  int32_t chips = 0;
  std::vector<double> seconds;
  uint64_t hash = 0;

  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

template <typename Run>
void measure(Row& row, double (*clock)(), const Run& run) {
  const double began = clock();
  row.hash = run(row.engine);
  row.seconds.push_back(clock() - began);
}

uint64_t simulate_job(const Job& job, const simulate::SimulateOptions& options,
                      std::string& engine) {
  const simulate::Timeline timeline = simulate::simulate_step(job, options);
  engine = timeline.engine;
  return timeline.hash;
}

void print(const std::vector<Row>& rows, int32_t tasks) {
  const auto rate = [&](const Row& row) { return double(row.chips) * tasks / row.median(); };
  std::printf("engine,chips,tasks,seconds,tasks_per_s,ratio,hash\n");
  for (const Row& row : rows) {
    std::printf("%s,%d,%d,%.4f,%.4g,%.3g,%s\n", row.engine.c_str(), row.chips, tasks, row.median(),
                rate(row), rate(row) / rate(rows[0]), hex16(row.hash).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: timeline CHIPS TASKS PEER_CHIPS cpp|omp|cuda\n");
    return 2;
  }
  constexpr int kRuns = 5;
  const int32_t chips = std::atoi(argv[1]), tasks = std::atoi(argv[2]);
  const int32_t peer_chips = std::atoi(argv[3]);
  const std::string backend = argv[4];
  const auto program = make_program(tasks);
  const Job peer_job = make_job(program, peer_chips), job = make_job(program, chips);
  const Job reference_job = make_job(program, kGroup);
  simulate::SimulateOptions reference_options;
  reference_options.engine = simulate::Engine::reference;

  EventSimulation peer(*peer_job);
  Row rows[] = {{"priority queue", peer_chips, {}, 0}, {"", kGroup, {}, 0}, {"", chips, {}, 0}};
  for (int i = 0; i < kRuns; ++i) {
    measure(rows[0], cpu_seconds, [&](std::string&) { return peer.run(); });
    measure(rows[2], backend == "cpp" ? cpu_seconds : wall_seconds,
            [&](std::string& name) { return simulate_job(job, bulk_options(backend), name); });
  }
  measure(rows[1], cpu_seconds,
          [&](std::string& name) { return simulate_job(reference_job, reference_options, name); });
  std::string engine;
  for (const auto& [of, row] : {std::pair(peer_job, rows[0]), std::pair(reference_job, rows[1])}) {
    const uint64_t hash = simulate_job(of, bulk_options(backend), engine);
    if (hash == row.hash) continue;
    std::fprintf(stderr, "the hashes differ: %s of %s and %s of %s\n", hex16(row.hash).c_str(),
                 row.engine.c_str(), hex16(hash).c_str(), engine.c_str());
    return 1;
  }
  print({std::begin(rows), std::end(rows)}, tasks);
  return 0;
}
