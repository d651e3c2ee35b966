// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/goodput.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>

#include "base/error.h"
#include "base/random.h"

namespace trnsim::project {
namespace {

// Expected time until seconds_s pass without a failure.
double grow(double rate, double seconds_s) { return std::expm1(rate * seconds_s) / rate; }

// What is left from one complete checkpoint to the next (x), and from a restart to it (y).
double left_s(const Outages& of, double work_s) {
  return std::max(work_s, of.upload_s) + of.blocking_s;
}
double left_after_restart_s(const Outages& of, double work_s) {
  return work_s + of.blocking_s + of.upload_s;
}

}  // namespace

double cycle_s(const Outages& of, double work_s) {
  const double rate = of.failures_per_s;
  return std::exp(rate * (of.restart_s + std::min(work_s, of.upload_s))) *
         grow(rate, left_s(of, work_s));
}

double cycle_after_restart_s(const Outages& of, double work_s) {
  const double rate = of.failures_per_s;
  return std::exp(rate * of.restart_s) * grow(rate, left_after_restart_s(of, work_s));
}

double goodput_of(const Outages& of, double work_s) { return work_s / cycle_s(of, work_s); }

double best_work_s(const Outages& of) {
  // Where t >= a: u = l t solves u + e^-(u + l b) - 1 = 0, whose left side rises with u, from below
  // 0 at u = 0 to above it at u = 1. Where t < a the goodput is t e^(-l t) times a constant, which
  // rises up to t = 1 / l.
  const double blocking = of.failures_per_s * of.blocking_s;
  double low = 0, high = 1;
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (middle + std::expm1(-(middle + blocking)) < 0 ? low : high) = middle;
  }
  const double free_s = blocking > 0 ? high / of.failures_per_s : 0;
  return std::max(free_s, std::min(of.upload_s, 1 / of.failures_per_s));
}

int64_t best_every(const Outages& of, double step_s) {
  // The goodput rises to its one maximum and falls behind it: one of the two whole numbers around.
  constexpr double kMost = 1e15;
  const double steps = std::clamp(std::floor(best_work_s(of) / step_s), 1.0, kMost);
  const bool more = goodput_of(of, (steps + 1) * step_s) > goodput_of(of, steps * step_s);
  return int64_t(steps) + (more ? 1 : 0);
}

double young_s(double blocking_s, double mtbf_s) { return std::sqrt(2 * blocking_s * mtbf_s); }

double daly_s(double blocking_s, double mtbf_s) {
  if (blocking_s >= 2 * mtbf_s) return mtbf_s;
  const double ratio = blocking_s / (2 * mtbf_s);
  return young_s(blocking_s, mtbf_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - blocking_s;
}

TimeShares time_shares(const Outages& of, double work_s) {
  TimeShares shares;
  shares.kept = goodput_of(of, work_s);
  // Where the work is shorter than the upload, the job waits for it before the next copy.
  const double blocked_s = left_s(of, work_s) - work_s;
  shares.checkpoints = shares.kept * blocked_s / work_s;
  shares.restarts = -std::expm1(-of.failures_per_s * of.restart_s);
  shares.redone = std::max(0.0, 1 - shares.kept - shares.checkpoints - shares.restarts);
  return shares;
}

namespace {

// The work of a run in pieces with a checkpoint behind each: all but the last are alike.
struct Pieces {
  int64_t count = 0;
  double work_s = 0, last_s = 0;
};

Pieces pieces_of(double step_s, int64_t steps, int64_t every) {
  const int64_t count = (steps + every - 1) / every;
  return {count, double(every) * step_s, double(steps - (count - 1) * every) * step_s};
}

}  // namespace

double expected_wall_s(const Outages& of, double step_s, int64_t steps, int64_t every) {
  const Pieces pieces = pieces_of(step_s, steps, every);
  // A start is a restart that has taken no time: y seconds, and e^(l R) for what follows failures.
  if (pieces.count == 1) return cycle_after_restart_s(of, pieces.last_s);
  return cycle_after_restart_s(of, pieces.work_s) +
         double(pieces.count - 2) * cycle_s(of, pieces.work_s) + cycle_s(of, pieces.last_s);
}

namespace {

// One run, from failure to failure.
class DrawnRun {
 public:
  DrawnRun(const Outages& of, const Pieces& pieces, const std::optional<Spares>& spares,
           uint64_t seed, uint64_t lane)
      : of_(of), pieces_(pieces), spares_(spares), seed_(seed), lane_(lane) {
    if (spares_) standing_by_ = spares_->count;
  }

  void run() {
    bool is_down = false;
    while (done_ < pieces_.count) {
      double until_failure_s = -std::log(uniform()) / of_.failures_per_s;
      if (is_down) {
        if (until_failure_s < of_.restart_s) {
          wall_s += until_failure_s;
          fail();
          continue;
        }
        until_failure_s -= of_.restart_s;
        wall_s += of_.restart_s;
      }
      if (advance(until_failure_s)) return;
      is_down = true;
      fail();
    }
  }

  double wall_s = 0, waiting_s = 0;
  int64_t failures = 0;

 private:
  // In (0, 1].
  double uniform() { return double((random_bits(seed_, lane_, counter_++) >> 11) + 1) * 0x1p-53; }

  double work_s() const { return done_ + 1 == pieces_.count ? pieces_.last_s : pieces_.work_s; }

  // From a restart for so long; whether the run ends before.
  bool advance(double seconds_s) {
    const auto takes = [&](double needed_s, int64_t pieces) {
      const double all_s = needed_s * double(pieces);
      if (all_s > seconds_s) return false;
      seconds_s -= all_s;
      wall_s += all_s;
      done_ += pieces;
      return true;
    };
    if (takes(left_after_restart_s(of_, work_s()), 1)) {
      const double each_s = left_s(of_, pieces_.work_s);
      const int64_t alike = std::max<int64_t>(0, pieces_.count - 1 - done_);
      const double whole = each_s > 0 ? std::floor(seconds_s / each_s) : double(alike);
      takes(each_s, whole < double(alike) ? int64_t(whole) : alike);
      if (done_ == pieces_.count) return true;
      if (done_ + 1 == pieces_.count && takes(left_s(of_, pieces_.last_s), 1)) return true;
    }
    wall_s += seconds_s;
    return false;
  }

  void fail() {
    ++failures;
    if (!spares_) return;
    while (!back_s_.empty() && back_s_.top() <= wall_s) {
      back_s_.pop();
      ++standing_by_;
    }
    if (uniform() > spares_->share) return;
    back_s_.push(wall_s + spares_->repair_s);
    if (standing_by_ == 0) {
      const double wait_s = back_s_.top() - wall_s;
      back_s_.pop();
      ++standing_by_;
      waiting_s += wait_s;
      wall_s += wait_s;
    }
    --standing_by_;
  }

  const Outages& of_;
  const Pieces& pieces_;
  const std::optional<Spares>& spares_;
  uint64_t seed_, lane_, counter_ = 0;
  int64_t done_ = 0, standing_by_ = 0;
  std::priority_queue<double, std::vector<double>, std::greater<>> back_s_;
};

}  // namespace

double DrawnRuns::quantile(double share) const {
  const double rank = std::ceil(share * double(wall_s.size()));
  return wall_s[size_t(std::clamp(rank, 1.0, double(wall_s.size()))) - 1];
}

DrawnRuns draw_runs(const Outages& of, double step_s, int64_t steps, int64_t every,
                    const std::optional<Spares>& spares, int64_t runs, uint64_t seed) {
  const double expected = of.failures_per_s * expected_wall_s(of, step_s, steps, every);
  TRN_CHECK(expected * double(runs) <= 1e9, project,
            "a run of some " + std::to_string(int64_t(std::min(expected, 1e18))) +
                " failures is too long to be drawn " + std::to_string(runs) + " times",
            "draw fewer (--draws)");
  const Pieces pieces = pieces_of(step_s, steps, every);
  DrawnRuns drawn;
  for (int64_t lane = 0; lane < runs; ++lane) {
    DrawnRun one(of, pieces, spares, seed, uint64_t(lane));
    one.run();
    drawn.wall_s.push_back(one.wall_s);
    drawn.waiting_s += one.waiting_s / double(runs);
    drawn.failures += double(one.failures) / double(runs);
  }
  std::sort(drawn.wall_s.begin(), drawn.wall_s.end());  // sums then have one order, too
  for (const double wall_s : drawn.wall_s) drawn.mean_s += wall_s / double(runs);
  double squares = 0;
  for (const double wall_s : drawn.wall_s) squares += std::pow(wall_s - drawn.mean_s, 2);
  if (runs > 1) drawn.standard_error_s = std::sqrt(squares / double(runs - 1) / double(runs));
  return drawn;
}

namespace {

Outages outages_of(const GoodputRequest& request) {
  return {request.failures_per_s.value, request.restart_s.value, request.blocking_s.value,
          request.upload_s.value};
}

struct Input {
  const char* name;
  Ranged GoodputRequest::* of;
};
constexpr const char* kFailureRate = "failure rate";
constexpr Input kInputs[] = {{"step time", &GoodputRequest::step_s},
                             {kFailureRate, &GoodputRequest::failures_per_s},
                             {"restart", &GoodputRequest::restart_s},
                             {"blocking", &GoodputRequest::blocking_s},
                             {"upload", &GoodputRequest::upload_s}};

// With one input moved to its bounds.
Moved moved_by(const GoodputRequest& request, const Input& input, int64_t every) {
  Moved moved;
  moved.input = input.name;
  for (const double Ranged::* bound : {&Ranged::low, &Ranged::high}) {
    GoodputRequest other = request;
    Ranged& of = other.*input.of;
    of.value = of.*bound;
    const Outages outages = outages_of(other);
    const bool is_low = bound == &Ranged::low;
    (is_low ? moved.goodput_low : moved.goodput_high) =
        goodput_of(outages, double(every) * other.step_s.value);
    if (request.steps == 0) continue;
    (is_low ? moved.wall_low_s : moved.wall_high_s) =
        expected_wall_s(outages, other.step_s.value, request.steps, every);
  }
  return moved;
}

Ranged around(double value, const std::vector<Moved>& moved, double Moved::* low,
              double Moved::* high) {
  double below = 0, above = 0;
  for (const Moved& one : moved) {
    below += std::pow(value - std::min({value, one.*low, one.*high}), 2);
    above += std::pow(std::max({value, one.*low, one.*high}) - value, 2);
  }
  return {value, std::max(0.0, value - std::sqrt(below)), value + std::sqrt(above)};
}

void check(const GoodputRequest& request) {
  for (const Input& input : kInputs) {
    const Ranged& of = request.*input.of;
    const bool is_range =
        std::isfinite(of.high) && 0 <= of.low && of.low <= of.value && of.value <= of.high;
    TRN_CHECK(is_range, project,
              std::string("the ") + input.name + " of a goodput is " + std::to_string(of.value) +
                  ", from " + std::to_string(of.low) + " to " + std::to_string(of.high),
              "give numbers of 0 or more with the value between its bounds");
  }
  TRN_CHECK(request.step_s.low > 0, project, "a step that takes no time has no goodput",
            "project a run with a step");
  TRN_CHECK(request.failures_per_s.low > 0, project, "without failures there is no goodput to ask",
            "give a time between failures");
}

std::vector<Choice> choices_of(const Outages& outages, double step_s, int64_t every) {
  const auto choice = [&](const char* name, double work_s, int64_t steps) {
    return Choice{name, work_s, steps, goodput_of(outages, double(steps) * step_s)};
  };
  const auto formula = [&](const char* name, double work_s) {
    return choice(name, work_s, int64_t(std::clamp(std::round(work_s / step_s), 1.0, 1e15)));
  };
  const double mtbf_s = 1 / outages.failures_per_s;
  std::vector<Choice> choices;
  choices.push_back(choice("exact", best_work_s(outages), best_every(outages, step_s)));
  choices.push_back(formula("Young 1974", young_s(outages.blocking_s, mtbf_s)));
  choices.push_back(formula("Daly 2006", daly_s(outages.blocking_s, mtbf_s)));
  if (every != choices[0].every) choices.push_back(choice("chosen", double(every) * step_s, every));
  return choices;
}

double waiting_share(const DrawnRuns& drawn) { return drawn.waiting_s / drawn.mean_s; }

// With the failure rate at a bound. Failures come in the time that is not waited through, at their
// rate: the share that is waited through depends on nothing else that has bounds.
void wait_at(const GoodputRequest& request, double failures_per_s, int64_t every, double& goodput,
             double& wall_s) {
  Outages outages = outages_of(request);
  outages.failures_per_s = failures_per_s;
  const DrawnRuns drawn = draw_runs(outages, request.step_s.value, request.steps, every,
                                    request.spares, request.runs, request.seed);
  goodput *= 1 - waiting_share(drawn);
  wall_s = drawn.mean_s;
}

// Shares, moves and choices hold the time that the job waits for repairs.
void add_waiting(const GoodputRequest& request, const DrawnRuns& drawn, double expected_s,
                 GoodputEstimate& estimate) {
  const double waiting = waiting_share(drawn);
  TimeShares& shares = estimate.shares;
  for (double TimeShares::* part :
       {&TimeShares::kept, &TimeShares::checkpoints, &TimeShares::redone, &TimeShares::restarts}) {
    shares.*part *= 1 - waiting;
  }
  shares.waiting = waiting;
  for (Choice& choice : estimate.choices) choice.goodput *= 1 - waiting;
  const Ranged& rate = request.failures_per_s;
  for (Moved& moved : estimate.moved) {
    if (moved.input == kFailureRate && rate.low < rate.high) {
      wait_at(request, rate.low, estimate.every, moved.goodput_low, moved.wall_low_s);
      wait_at(request, rate.high, estimate.every, moved.goodput_high, moved.wall_high_s);
      continue;
    }
    for (double Moved::* goodput : {&Moved::goodput_low, &Moved::goodput_high})
      moved.*goodput *= 1 - waiting;
    for (double Moved::* wall_s : {&Moved::wall_low_s, &Moved::wall_high_s})
      moved.*wall_s *= drawn.mean_s / expected_s;
  }
}

void add_run(const GoodputRequest& request, const Outages& outages, GoodputEstimate& estimate) {
  const double step_s = request.step_s.value;
  const double expected_s = expected_wall_s(outages, step_s, request.steps, estimate.every);
  const DrawnRuns drawn = draw_runs(outages, step_s, request.steps, estimate.every, request.spares,
                                    request.runs, request.seed);
  estimate.drawn_p5_s = drawn.quantile(0.05);
  estimate.drawn_p50_s = drawn.quantile(0.5);
  estimate.drawn_p95_s = drawn.quantile(0.95);
  estimate.drawn_mean_s = drawn.mean_s;
  estimate.standard_error_s = drawn.standard_error_s;
  const double mean_s = request.spares ? drawn.mean_s : expected_s;
  if (request.spares) add_waiting(request, drawn, expected_s, estimate);
  // Nothing fails while the job waits for a repair.
  estimate.failures = outages.failures_per_s * (mean_s - (request.spares ? drawn.waiting_s : 0));
  Moved chance{"chance", estimate.shares.kept, estimate.shares.kept};
  chance.wall_low_s = std::min(mean_s, estimate.drawn_p5_s);
  chance.wall_high_s = std::max(mean_s, estimate.drawn_p95_s);
  estimate.moved.push_back(chance);
  estimate.wall_s = around(mean_s, estimate.moved, &Moved::wall_low_s, &Moved::wall_high_s);
}

}  // namespace

GoodputEstimate estimate_goodput(const GoodputRequest& request) {
  check(request);
  const Outages outages = outages_of(request);
  GoodputEstimate estimate;
  estimate.every = request.every > 0 ? request.every : best_every(outages, request.step_s.value);
  const double work_s = double(estimate.every) * request.step_s.value;
  estimate.shares = time_shares(outages, work_s);
  const double goodput = estimate.shares.kept;
  TRN_CHECK(goodput >= 0.01, project,
            "less than 1 % of the time would be kept work: the job fails every " +
                std::to_string(int64_t(1 / outages.failures_per_s)) + " s, a restart takes " +
                std::to_string(int64_t(outages.restart_s)) + " s, and " +
                std::to_string(int64_t(work_s)) + " s lie between checkpoints",
            "use fewer chips, a shorter restart or more checkpoints");
  for (const Input& input : kInputs)
    estimate.moved.push_back(moved_by(request, input, estimate.every));
  estimate.choices = choices_of(outages, request.step_s.value, estimate.every);
  if (request.steps > 0) add_run(request, outages, estimate);
  estimate.goodput =
      around(estimate.shares.kept, estimate.moved, &Moved::goodput_low, &Moved::goodput_high);
  estimate.goodput.high = std::min(1.0, estimate.goodput.high);
  return estimate;
}

}  // namespace trnsim::project
