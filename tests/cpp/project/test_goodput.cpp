// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/goodput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "base/error.h"

namespace trnsim::project {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The slow, obvious version: a clock, what the job does, and which checkpoints are complete. It
// knows nothing of the states that the formulas are built on.
class Clockwork {
 public:
  Clockwork(const Outages& of, double work_s, int64_t pieces, uint64_t seed)
      : of_(of), work_s_(work_s), pieces_(pieces), random_(seed), rate_(of.failures_per_s) {}

  // Wall time until the last checkpoint is complete.
  double run() {
    failure_s_ = rate_(random_);
    while (complete_ < pieces_) {
      step();
      if (now_s_ == failure_s_) fall_back();
    }
    return now_s_;
  }

  double restarting_s = 0;  // of the wall time
  double blocked_s = 0;     // by copies and by waiting for an upload, failed ones too

 private:
  enum class Doing { work, copy, wait, ended, restart };  // wait: to begin a copy

  // To whatever comes next.
  void step() {
    const double end_s = is_idle() ? kNever : now_s_ + left_s_;
    const double next_s = std::min({end_s, upload_end_s_, failure_s_});
    const double passed_s = next_s - now_s_;
    left_s_ -= passed_s;
    if (doing_ == Doing::restart) restarting_s += passed_s;
    if (doing_ == Doing::copy || is_idle()) blocked_s += passed_s;
    now_s_ = next_s;
    if (next_s == failure_s_) return;
    if (next_s == upload_end_s_) {
      complete_ = uploading_;
      upload_end_s_ = kNever;
      if (doing_ == Doing::wait) begin(Doing::copy, of_.blocking_s);
      return;
    }
    if (doing_ == Doing::work) {
      ++at_;  // pieces of work that are done
      if (upload_end_s_ != kNever) {
        begin(Doing::wait, 0);
      } else {
        begin(Doing::copy, of_.blocking_s);
      }
    } else if (doing_ == Doing::copy) {
      uploading_ = at_;
      upload_end_s_ = now_s_ + of_.upload_s;
      begin(at_ < pieces_ ? Doing::work : Doing::ended, work_s_);
    } else {
      begin(Doing::work, work_s_);
    }
  }

  bool is_idle() const { return doing_ == Doing::wait || doing_ == Doing::ended; }

  void begin(Doing what, double takes_s) {
    doing_ = what;
    left_s_ = takes_s;
  }

  void fall_back() {
    failure_s_ = now_s_ + rate_(random_);
    upload_end_s_ = kNever;
    at_ = complete_;
    begin(Doing::restart, of_.restart_s);
  }

  Outages of_;
  double work_s_;
  int64_t pieces_, at_ = 0, complete_ = 0, uploading_ = 0;
  std::mt19937_64 random_;
  std::exponential_distribution<double> rate_;
  Doing doing_ = Doing::work;
  double now_s_ = 0, left_s_ = work_s_, upload_end_s_ = kNever, failure_s_ = 0;
};

struct Mean {
  double sum = 0, squares = 0;
  int64_t count = 0;
  void add(double x) {
    sum += x;
    squares += x * x;
    ++count;
  }
  double mean() const { return sum / double(count); }
  double error() const {
    return std::sqrt((squares / double(count) - mean() * mean()) / double(count));
  }
};

struct Case {
  Outages of;
  double work_s;
};
// Synchronous; an upload shorter and longer than the work; few and many failures; free restarts.
const Case kCases[] = {
    {{1e-3, 60, 20, 0}, 200},   {{1e-3, 60, 5, 90}, 200},  {{1e-3, 60, 5, 300}, 200},
    {{1e-2, 30, 10, 40}, 50},   {{1e-5, 600, 30, 0}, 900}, {{1e-3, 0, 20, 100}, 200},
    {{2e-3, 400, 0, 150}, 100}, {{1e-3, 60, 0, 0}, 100},
};

TEST(Goodput, TimesAreThoseOfAClockwork) {
  for (const Case& c : kCases) {
    Mean one, three, twelve;
    double restarting_s = 0, blocked_s = 0;
    for (uint64_t seed = 0; seed < 20'000; ++seed) {
      one.add(Clockwork(c.of, c.work_s, 1, seed).run());
      three.add(Clockwork(c.of, c.work_s, 3, seed + 1'000'000).run());
      Clockwork run(c.of, c.work_s, 12, seed + 2'000'000);
      twelve.add(run.run());
      restarting_s += run.restarting_s;
      blocked_s += run.blocked_s;
    }
    const double step_s = c.work_s / 4;
    EXPECT_NEAR(expected_wall_s(c.of, step_s, 4, 4), one.mean(), 4 * one.error());
    EXPECT_NEAR(expected_wall_s(c.of, step_s, 12, 4), three.mean(), 4 * three.error());
    EXPECT_NEAR(expected_wall_s(c.of, step_s, 48, 4), twelve.mean(), 4 * twelve.error());
    // More pieces cost a cycle each, and a cycle is what the goodput divides by.
    const double cycles_s = (twelve.mean() - three.mean()) / 9;
    const double error_s = std::hypot(twelve.error(), three.error()) / 9;
    EXPECT_NEAR(c.work_s / goodput_of(c.of, c.work_s), cycles_s, 4 * error_s);
    const TimeShares shares = time_shares(c.of, c.work_s);
    EXPECT_NEAR(shares.kept + shares.checkpoints + shares.redone + shares.restarts, 1, 1e-12);
    // The start has no restart before it: a little less than in the long run.
    EXPECT_NEAR(restarting_s / twelve.sum, shares.restarts, 0.02 * shares.restarts + 0.002);
    EXPECT_LE(shares.checkpoints, blocked_s / twelve.sum + 0.01);
  }
}

TEST(Goodput, DrawnRunsAreAsTheFormulaSays) {
  for (const Case& c : kCases) {
    for (const int64_t steps : {3, 4, 40, 43}) {
      const double step_s = c.work_s / 4;
      const DrawnRuns drawn = draw_runs(c.of, step_s, steps, 4, std::nullopt, 20'000, 7);
      const double wall_s = expected_wall_s(c.of, step_s, steps, 4);
      EXPECT_NEAR(drawn.mean_s, wall_s, 4 * drawn.standard_error_s) << steps;
      const double failures = c.of.failures_per_s * wall_s;
      EXPECT_NEAR(drawn.failures, failures, 4 * std::sqrt(failures / 20'000) + 0.03 * failures);
      EXPECT_EQ(drawn.wall_s.size(), 20'000u);
      EXPECT_TRUE(std::is_sorted(drawn.wall_s.begin(), drawn.wall_s.end()));
      // No run is faster than without failures.
      const double bare_s =
          expected_wall_s({1e-12, 0, c.of.blocking_s, c.of.upload_s}, step_s, steps, 4);
      EXPECT_GE(drawn.wall_s[0], bare_s * (1 - 1e-6));
    }
  }
}

TEST(Goodput, DrawnRunsRepeatBySeedAndAreNotFewOnes) {
  const Outages of = kCases[1].of;
  const auto draw = [&](uint64_t seed) {
    return draw_runs(of, 50, 400, 4, std::nullopt, 500, seed).wall_s;
  };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
  const std::vector<double> times = draw(3);
  EXPECT_GT(std::set<double>(times.begin(), times.end()).size(), 490u);
  const DrawnRuns ten{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  EXPECT_EQ(ten.quantile(0.05), 1);
  EXPECT_EQ(ten.quantile(0.5), 5);
  EXPECT_EQ(ten.quantile(0.95), 10);
}

TEST(Goodput, NoFailuresLeaveOnlyTheCheckpoints) {
  // l -> 0: goodput t / (t + b), and a run is its work and its checkpoints.
  const Outages of{1e-15, 600, 10, 30};
  EXPECT_NEAR(goodput_of(of, 190), 190.0 / 200, 1e-9);
  EXPECT_NEAR(goodput_of(of, 20), 20.0 / 40, 1e-9);  // each copy waits for the upload before it
  EXPECT_NEAR(expected_wall_s(of, 1, 100, 40), 40 + 10 + 40 + 10 + 30 + 10 + 30, 1e-6);
  EXPECT_NEAR(expected_wall_s(of, 1, 30, 40), 30 + 10 + 30, 1e-6);
}

TEST(Goodput, ACheckpointThatCostsNothingIsTakenEachStep) {
  const Outages of{1e-3, 60, 0, 0};
  EXPECT_EQ(best_work_s(of), 0);
  EXPECT_EQ(best_every(of, 2.5), 1);
  // Of an interval t -> 0 only restarts are lost: e^(-l R).
  EXPECT_NEAR(goodput_of(of, 1e-6), std::exp(-0.06), 1e-9);
}

TEST(Goodput, NoIntervalIsBetterThanTheBest) {
  for (const double rate : {1e-6, 1e-4, 1e-3, 1e-2}) {
    for (const double blocking_s : {0.0, 1e-3, 1.0, 60.0, 3000.0}) {
      for (const double upload_s : {0.0, 5.0, 400.0, 30'000.0}) {
        const Outages of{rate, 300, blocking_s, upload_s};
        const double best_s = best_work_s(of);
        const double most = goodput_of(of, std::max(best_s, 1e-9));
        for (double t = 0.01; t < 1e7; t *= 1.01) {
          EXPECT_LE(goodput_of(of, t), most * (1 + 1e-12)) << rate << " " << blocking_s << " " << t;
        }
        // In whole steps: every count up to beyond the best.
        const double step_s = 7.5;
        const int64_t every = best_every(of, step_s);
        const double of_steps = goodput_of(of, double(every) * step_s);
        for (int64_t k = 1; k < 3 * every + 10 && k < 200'000; ++k) {
          ASSERT_LE(goodput_of(of, double(k) * step_s), of_steps * (1 + 1e-15)) << k;
        }
      }
    }
  }
}

TEST(Goodput, TheBestSolvesItsEquationAndDoesNotDependOnTheRestart) {
  for (const double rate : {1e-7, 1e-4, 1e-2}) {
    const Outages of{rate, 10, 25, 0};
    const double t = best_work_s(of);
    EXPECT_NEAR(1 - rate * t, std::exp(-rate * (t + 25)), 1e-12);
    EXPECT_EQ(best_work_s({rate, 5000, 25, 0}), t);
  }
}

TEST(Goodput, YoungAndDalyMeetTheBestWhereFailuresAreRare) {
  double last_young = 1, last_daly = 1;
  for (const double mtbf_s : {1e4, 1e5, 1e6, 1e8}) {
    const double best_s = best_work_s({1 / mtbf_s, 0, 20, 0});
    const double young = std::abs(young_s(20, mtbf_s) / best_s - 1);
    const double daly = std::abs(daly_s(20, mtbf_s) / best_s - 1);
    EXPECT_LT(young, last_young / 2);
    EXPECT_LT(daly, young / 10);
    EXPECT_LE(daly, last_daly);
    last_young = young;
    last_daly = daly;
  }
  EXPECT_LT(last_young, 1e-3);
  EXPECT_LT(last_daly, 1e-8);
  EXPECT_EQ(daly_s(100, 50), 50);  // half the checkpoint: the formula's other branch
}

TEST(Goodput, DalyIsAsInThePaper) {
  // Figures 3 to 5: checkpoints of 5 min at failures 24 h, 6 h and 15 min apart.
  EXPECT_NEAR(daly_s(300, 24 * 3600) / 60, 117, 0.5);
  EXPECT_NEAR(daly_s(300, 6 * 3600) / 60, 57, 0.5);
  EXPECT_NEAR(daly_s(300, 15 * 60) / 60, 9.1, 0.05);
}

TEST(Goodput, JobsWithoutSparesWaitForEachRepair) {
  // Every failure takes a server, and none stands by: each adds a repair, and nothing fails then.
  const Outages of{1e-3, 60, 5, 20};
  const DrawnRuns free = draw_runs(of, 50, 400, 4, std::nullopt, 4000, 1);
  const DrawnRuns none = draw_runs(of, 50, 400, 4, Spares{0, 1000, 1}, 4000, 2);
  EXPECT_NEAR(none.waiting_s, none.failures * 1000, 1e-6 * none.waiting_s);
  EXPECT_NEAR(none.mean_s, free.mean_s + free.failures * 1000,
              4 * std::hypot(none.standard_error_s, free.standard_error_s * 2));
  // Half of the failures take one: half of the waits.
  const DrawnRuns half = draw_runs(of, 50, 400, 4, Spares{0, 1000, 0.5}, 4000, 3);
  EXPECT_NEAR(half.waiting_s / none.waiting_s, 0.5, 0.05);
}

TEST(Goodput, SparesAreAQueueOfRepairs) {
  // Waits fall with each spare, and are those of a job without any limit when there are many.
  const Outages of{1e-3, 60, 5, 20};
  double last = kNever;
  for (const int64_t count : {0, 1, 2, 4, 8}) {
    const DrawnRuns drawn = draw_runs(of, 50, 400, 4, Spares{count, 3000, 1}, 2000, 5);
    EXPECT_LT(drawn.waiting_s, last);
    last = drawn.waiting_s;
  }
  const DrawnRuns many = draw_runs(of, 50, 400, 4, Spares{1000, 3000, 1}, 2000, 5);
  EXPECT_EQ(many.waiting_s, 0);
  const DrawnRuns never = draw_runs(of, 50, 400, 4, Spares{0, 3000, 0}, 2000, 5);
  EXPECT_EQ(never.waiting_s, 0);
}

GoodputRequest request_of(const Outages& of, double step_s) {
  const auto exact = [](double x) { return Ranged{x, x, x}; };
  return {exact(step_s),
          exact(of.failures_per_s),
          exact(of.restart_s),
          exact(of.blocking_s),
          exact(of.upload_s),
          0,
          0,
          std::nullopt,
          1000,
          0};
}

TEST(Goodput, AnIntervalIsTheRootOfTheSquaresOfTheMoves) {
  GoodputRequest request = request_of({1e-4, 600, 10, 30}, 5);
  const GoodputEstimate exact = estimate_goodput(request);
  EXPECT_EQ(exact.every, best_every({1e-4, 600, 10, 30}, 5));
  EXPECT_EQ(exact.goodput.low, exact.goodput.value);
  EXPECT_EQ(exact.goodput.high, exact.goodput.value);
  request.restart_s = {600, 300, 1200};
  request.failures_per_s = {1e-4, 5e-5, 2e-4};
  request.every = exact.every;
  const GoodputEstimate wide = estimate_goodput(request);
  const double t = 5.0 * double(exact.every), g = exact.goodput.value;
  const double by_restart = g - goodput_of({1e-4, 1200, 10, 30}, t);
  const double by_rate = g - goodput_of({2e-4, 600, 10, 30}, t);
  EXPECT_NEAR(wide.goodput.low, g - std::hypot(by_restart, by_rate), 1e-12);
  EXPECT_EQ(wide.goodput.value, g);
  EXPECT_GT(wide.goodput.high, g);
  EXPECT_LT(wide.goodput.high, 1);
}

TEST(Goodput, ARunHasItsMeanAndWhatChanceDoes) {
  GoodputRequest request = request_of({1e-4, 600, 10, 30}, 5);
  request.steps = 10'000;
  const GoodputEstimate estimate = estimate_goodput(request);
  EXPECT_EQ(estimate.wall_s.value, expected_wall_s({1e-4, 600, 10, 30}, 5, 10'000, estimate.every));
  EXPECT_NEAR(estimate.drawn_mean_s, estimate.wall_s.value, 4 * estimate.standard_error_s);
  // Only chance moves it: nine in ten drawn runs.
  EXPECT_NEAR(estimate.wall_s.low, estimate.drawn_p5_s, 1e-6 * estimate.wall_s.value);
  EXPECT_NEAR(estimate.wall_s.high, estimate.drawn_p95_s, 1e-6 * estimate.wall_s.value);
  EXPECT_NEAR(estimate.failures, 1e-4 * estimate.wall_s.value, 1e-9);
  request.spares = Spares{0, 7200, 1};
  const GoodputEstimate waiting = estimate_goodput(request);
  EXPECT_GT(waiting.shares.waiting, 0.2);
  const TimeShares& s = waiting.shares;
  EXPECT_NEAR(s.kept + s.checkpoints + s.redone + s.restarts + s.waiting, 1, 1e-12);
  EXPECT_EQ(waiting.goodput.value, s.kept);
  // Work over wall time, of the drawn runs; the long run has no last checkpoint and no fresh start.
  EXPECT_NEAR(s.kept, 50'000 / waiting.wall_s.value, 0.01);
}

TEST(Goodput, ChoicesAndMovesWaitForRepairsAsTheAnswerDoes) {
  const Outages of{1e-4, 600, 10, 30};
  GoodputRequest request = request_of(of, 5);
  request.steps = 10'000;
  request.restart_s = {600, 300, 1200};
  request.failures_per_s = {1e-4, 5e-5, 2e-4};
  request.spares = Spares{1, 20'000, 1};
  const GoodputEstimate estimate = estimate_goodput(request);
  EXPECT_GT(estimate.shares.waiting, 0.2);
  EXPECT_EQ(estimate.choices[0].goodput, estimate.goodput.value);
  for (const Moved& moved : estimate.moved) {
    EXPECT_GE(std::min(moved.goodput_low, moved.goodput_high), estimate.goodput.low);
    EXPECT_LE(std::max(moved.goodput_low, moved.goodput_high), estimate.goodput.high);
  }
  // A choice and a restart's bound are those of runs drawn with them; so is the failure rate's.
  const auto drawn = [&](const Outages& outages, int64_t every) {
    return draw_runs(outages, 5, 10'000, every, request.spares, 4000, 9);
  };
  const double t = 5.0 * double(estimate.every);
  const auto expect_drawn = [&](double goodput, const Outages& outages, int64_t every) {
    const DrawnRuns runs = drawn(outages, every);
    const double kept = goodput_of(outages, 5.0 * double(every));
    EXPECT_NEAR(goodput, kept * (1 - runs.waiting_s / runs.mean_s), 0.03 * goodput);
  };
  expect_drawn(estimate.choices[1].goodput, of, estimate.choices[1].every);
  const Moved& rate = estimate.moved[1];
  const Moved& restart = estimate.moved[2];
  ASSERT_EQ(rate.input, "failure rate");
  expect_drawn(rate.goodput_low, {5e-5, 600, 10, 30}, estimate.every);
  expect_drawn(rate.goodput_high, {2e-4, 600, 10, 30}, estimate.every);
  expect_drawn(restart.goodput_high, {1e-4, 1200, 10, 30}, estimate.every);
  // More failures wait for more: not the share of the answer.
  EXPECT_LT(rate.goodput_high,
            0.9 * goodput_of({2e-4, 600, 10, 30}, t) * (1 - estimate.shares.waiting));
}

TEST(Goodput, AJobThatHardlyMovesIsRefused) {
  EXPECT_THROW(estimate_goodput(request_of({1e-2, 1000, 10, 0}, 5)), Error);
  EXPECT_THROW(estimate_goodput(request_of({0, 1000, 10, 0}, 5)), Error);
  EXPECT_THROW(estimate_goodput(request_of({1e-4, 1000, 10, 0}, 0)), Error);
  EXPECT_THROW(draw_runs({1, 0, 0, 0}, 1e6, 1'000'000, 1, std::nullopt, 1, 0), Error);
}

}  // namespace
}  // namespace trnsim::project
