// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/step.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <tuple>

#include "simulate/deadlock.h"
#include "simulate/network/repair.h"
#include "simulate/timeline/bulk.h"
#include "simulate/timeline/reference.h"

namespace trnsim::simulate {
namespace {

const char* backend_name(Backend backend) {
  switch (backend) {
    case Backend::cpp:
      return "cpp";
    case Backend::omp:
      return "omp";
    case Backend::tbb:
      return "tbb";
    case Backend::cuda:
      return "cuda";
    case Backend::automatic:
      break;
  }
  return "?";
}

int64_t count_tasks(const fold::System& system) {
  int64_t count = 0;
  for (const fold::Rank& rank : system.ranks) {
    count += int64_t(system.roles[size_t(rank.role)]->tasks.size());
  }
  return count;
}

Backend choose_backend(const fold::System& system, const SimulateOptions& options,
                       std::string& why) {
  return choose_backend(options.backend, int64_t(system.ranks.size()), count_tasks(system), why);
}

std::unique_ptr<Lanes> make_lanes(const fold::System& system, const SimulateOptions& options,
                                  std::string& engine) {
  if (options.engine == Engine::reference) {
    TRN_CHECK(options.exchange == nullptr, simulate, "the reference engine runs in one process",
              "use the bulk engine");
    engine = "reference";
    return make_reference_lanes(system);
  }
  std::string why;
  const Backend backend = choose_backend(system, options, why);
  engine = std::string("bulk ") + backend_name(backend);
  if (!why.empty()) engine += " (" + why + ")";
  if (options.exchange != nullptr) return make_shard_lanes(system, backend, options);
  return make_bulk_lanes(system, backend, options.keep_times);
}

// On a CPU, rounds in parallel only where they were asked for by name.
std::unique_ptr<Solver> make_solver(const fold::System& system, const SimulateOptions& options) {
  if (options.engine == Engine::reference) return make_reference_solver();
  std::string why;
  const Backend backend = choose_backend(system, options, why);
  const bool on_threads = backend == options.backend && backend != Backend::cpp;
  auto whole =
      on_threads || backend == Backend::cuda ? make_dp_solver(backend) : make_heap_solver();
  return std::make_unique<Repair>(std::move(whole), RepairLimits{});
}

}  // namespace

Step::Step(std::shared_ptr<const fold::System> system, const SimulateOptions& options)
    : system_(std::move(system)),
      options_(options),
      table_(*system_),
      transfers_(*system_, make_solver(*system_, options), options.certify),
      instances_(size_t(table_.instance_count())),
      alone_ps_(system_->variables.size(), -1) {
  for (int64_t index = 0; index < table_.instance_count(); ++index) {
    const auto& on = system_->communicators[size_t(table_.communicator_of(index))];
    instances_[size_t(index)].missing = int32_t(on.members.size());
  }
  lanes_ = make_lanes(*system_, options, engine_);
  if (fold::has_interference(*system_)) {
    interference_.emplace(*system_);
    transfers_.watch_flows();
  }
  task_count_ = count_tasks(*system_);
}

Timeline Step::run() {
  if (options_.progress != nullptr) options_.progress->tasks_total += task_count_;
  for (int64_t now_ps = 0; now_ps != kNever;) {
    while (settle(now_ps)) {
    }
    slow(now_ps);
    transfers_.solve(now_ps);
    report_progress_sometimes();
    now_ps = std::min(lanes_->next_ps(), transfers_.next_ps());
  }
  check_finished();
  report_progress(task_count_);
  Timeline timeline;
  timeline.system = system_;
  lanes_->write(timeline);
  write_calls(timeline);
  add_up(timeline);
  timeline.solve_count = transfers_.solve_count();
  timeline.event_count = transfers_.event_count();
  timeline.engine = engine_;
  return timeline;
}

// One round at this time; true when it released somebody, who may do more at the same time.
bool Step::settle(int64_t now_ps) {
  bool happened = settle_here(now_ps);
  if (options_.exchange != nullptr) happened = hear_news();
  std::vector<int64_t> ended;
  transfers_.process(now_ps, ended);
  for (const int64_t instance : ended) end(instance, now_ps);
  return happened || !ended.empty();
}

void Step::slow(int64_t now_ps) {
  if (!interference_) return;
  const std::vector<Transfers::Move> moves = transfers_.take_moves();
  if (moves.empty()) return;
  interference_->take(moves);
  lanes_->change_speeds(interference_->freed(), false, now_ps);
  lanes_->change_speeds(interference_->slowed(), true, now_ps);
}

// On several processes, until every lane waits for somebody else.
bool Step::settle_here(int64_t now_ps) {
  do {
    arrivals_.clear();
    lanes_->run(now_ps, arrivals_);
    take_arrivals(now_ps);
  } while (options_.exchange != nullptr && !arrivals_.empty());
  return !arrivals_.empty();
}

// Whether no other process needs to hear of the call.
bool Step::is_met_here(int64_t index) {
  if (options_.exchange == nullptr) return true;
  const auto& members = system_->communicators[size_t(table_.communicator_of(index))].members;
  const bool is_ours = std::all_of(members.begin(), members.end(), [&](int32_t rank) {
    return rank >= options_.first_rank && rank < options_.end_rank;
  });
  return is_ours && ends_inside_lane(table_.phases_of(index));
}

// What all processes tell each other, taken as arrivals; true when anybody had news.
bool Step::hear_news() {
  const std::vector<ArrivalNews> all = share_news(*options_.exchange, news_);
  news_.clear();
  for (const ArrivalNews& news : all) {
    Instance& instance = instances_[size_t(news.instance)];
    instance.first_ps = std::min(instance.first_ps, news.first_ps);
    instance.ready_ps = std::max(instance.ready_ps, news.last_ps);
    instance.missing -= int32_t(news.members);
    if (instance.missing == 0) begin(news.instance);
  }
  return !all.empty();
}

// Neighbours mostly arrive at the same call: it is kept in registers as long as they do.
void Step::take_arrivals(int64_t now_ps) {
  int64_t index = -1;
  bool is_here = true;
  Instance instance;
  for (const Arrival& arrival : arrivals_) {
    TRN_ASSERT(arrival.time_ps >= now_ps, "a lane posted a ready time before network time");
    const int64_t at = table_.instance_of(arrival.rank, arrival.task);
    if (at != index) {
      if (index >= 0) instances_[size_t(index)] = instance;
      index = at;
      instance = instances_[size_t(at)];
      is_here = is_met_here(at);
      if (!is_here) news_.push_back({at, 0, kNever, 0});
    }
    if (!is_here) {
      ArrivalNews& news = news_.back();
      ++news.members;
      news.first_ps = std::min(news.first_ps, arrival.time_ps);
      news.last_ps = std::max(news.last_ps, arrival.time_ps);
      continue;
    }
    instance.first_ps = std::min(instance.first_ps, arrival.time_ps);
    instance.ready_ps = std::max(instance.ready_ps, arrival.time_ps);
    if (--instance.missing > 0) continue;
    instances_[size_t(index)] = instance;
    begin(index);
    index = -1;
  }
  if (index >= 0) instances_[size_t(index)] = instance;
}

// How long the phase takes where nobody else uses its links; kNever where that is not known.
int64_t Step::alone_ps(int32_t index) {
  int64_t& kept = alone_ps_[size_t(index)];
  if (kept >= 0) return kept;
  const fold::Variable& variable = system_->variables[size_t(index)];
  const bool is_alone =
      variable.bytes == 0 || (options_.use_private && variable.is_private && !interference_);
  return kept = is_alone ? undisturbed_ps(*system_, variable) : kNever;
}

bool Step::ends_inside_lane(const std::vector<int32_t>& phases) {
  return std::all_of(phases.begin(), phases.end(),
                     [&](int32_t index) { return alone_ps(index) != kNever; });
}

void Step::begin(int64_t index) {
  const Instance& instance = instances_[size_t(index)];
  const std::vector<int32_t>& phases = table_.phases_of(index);
  if (!ends_inside_lane(phases)) {
    transfers_.begin(index, phases, instance.ready_ps);
    return;
  }
  int64_t end_ps = instance.ready_ps;
  for (const int32_t phase : phases) {
    end_ps = std::min(end_ps + alone_ps(phase), instance.ready_ps + fold::kLongestPs);
  }
  end(index, end_ps);
}

void Step::end(int64_t index, int64_t end_ps) {
  TRN_CHECK(end_ps < fold::kLongestPs, simulate, "a call would end after more than 26 days",
            "simulate a shorter step, or check the bandwidth of its links");
  instances_[size_t(index)].end_ps = end_ps;
  table_.tasks_of(index, tasks_);
  lanes_->release(system_->communicators[size_t(table_.communicator_of(index))].members, tasks_,
                  end_ps);
}

void Step::check_finished() const {
  int64_t ended = lanes_->ended_count();
  if (options_.exchange != nullptr) {
    const std::vector<int64_t> all = options_.exchange->all_gather({ended});
    ended = std::accumulate(all.begin(), all.end(), int64_t(0));
  }
  if (ended == task_count_) return;
  if (const auto stall = transfers_.stalled()) {
    throw Error(ErrorKind::simulate, explain_stall(*system_, *stall),
                "let the link live, or leave out @TIME, so that routes go around it");
  }
  TRN_CHECK(options_.exchange == nullptr, simulate,
            std::to_string(task_count_ - ended) + " tasks wait for ever",
            "run it in one process, which names who waits for whom");
  throw Error(ErrorKind::simulate, explain_deadlock(*system_, table_, *lanes_),
              "make the same calls in the same order on every member");
}

// Makespan and hash of the job, on several processes from everybody's.
void Step::add_up(Timeline& timeline) const {
  for (const int64_t end_ps : timeline.last_end_ps) {
    timeline.makespan_ps = std::max(timeline.makespan_ps, end_ps);
  }
  if (options_.exchange == nullptr) return;
  const std::vector<int64_t> all =
      options_.exchange->all_gather({timeline.makespan_ps, int64_t(timeline.hash)});
  timeline.hash = 0;
  for (size_t i = 0; i < all.size(); i += 2) {
    timeline.makespan_ps = std::max(timeline.makespan_ps, all[i]);
    timeline.hash += uint64_t(all[i + 1]);
  }
}

void Step::write_calls(Timeline& timeline) {
  for (size_t index = 0; index < instances_.size(); ++index) {
    const Instance& instance = instances_[index];
    if (instance.end_ps < 0) continue;  // met on another process
    CallSpan& span = timeline.calls.emplace_back();
    span.communicator = table_.communicator_of(int64_t(index));
    span.call = table_.template_of(int64_t(index));
    span.sequence = table_.sequence_of(int64_t(index));
    span.first_arrival_ps = instance.first_ps;
    span.start_ps = instance.ready_ps;
    span.end_ps = instance.end_ps;
    PhaseTimes times = transfers_.take_times(int64_t(index));
    if (times.entry_ps.empty()) {  // it ended inside the lane
      int64_t now_ps = span.start_ps;
      for (const int32_t phase : table_.phases_of(int64_t(index))) {
        times.entry_ps.push_back(now_ps + system_->variables[size_t(phase)].latency_ps);
        times.end_ps.push_back(now_ps += alone_ps(phase));
      }
    }
    span.entry_ps = std::move(times.entry_ps);
    span.phase_end_ps = std::move(times.end_ps);
  }
  std::sort(timeline.calls.begin(), timeline.calls.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.end_ps, a.communicator, a.sequence) <
           std::tuple(b.end_ps, b.communicator, b.sequence);
  });
}

// Counting ended tasks is a sum over lanes: not at every event.
void Step::report_progress(int64_t ended) {
  if (options_.progress == nullptr) return;
  options_.progress->tasks_ended += ended - reported_count_;
  reported_count_ = ended;
}

void Step::report_progress_sometimes() {
  constexpr auto kEvery = std::chrono::milliseconds(200);
  if (options_.progress == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - reported_at_ < kEvery) return;
  reported_at_ = now;
  report_progress(lanes_->ended_count());
}

Timeline simulate_step(std::shared_ptr<const fold::System> system, const SimulateOptions& options) {
  fold::check_system(*system);
  TRN_CHECK(options.exchange == nullptr ||
                (0 <= options.first_rank && options.first_rank < options.end_rank &&
                 options.end_rank <= int64_t(system->ranks.size())),
            simulate,
            "a process has ranks " + std::to_string(options.first_rank) + " to " +
                std::to_string(options.end_rank) + " of " + std::to_string(system->ranks.size()),
            "use no more processes than ranks");
  TRN_CHECK(options.exchange == nullptr || !fold::has_interference(*system), simulate,
            "a run on several processes knows no chip.interference",
            "run it in one process, or leave the figure out");
  return Step(std::move(system), options).run();
}

}  // namespace trnsim::simulate
