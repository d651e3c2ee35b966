// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Goodput: the share of wall time that is kept work, of a synchronous job that any failure stops
// and that goes on from its last complete checkpoint.
//
// Failures come at random, l a second, at any time, in a restart too. Work of t seconds lies
// between two checkpoints. A checkpoint first blocks the job for b (all of it where it is written
// synchronously; only the copy to the host's memory where it is not). The upload then takes a,
// beside the work that goes on, and only at its end does the checkpoint count: a failure before
// that throws it away, and the job falls back to the checkpoint before. The next copy waits for
// the upload before it. After a failure the job is down for R (detection, new servers, start,
// load), and begins R again where another failure comes in it. Servers to go on with are always
// there, unless a number of spares is given.
//
// Let grow(x) = (e^(l x) - 1) / l: the expected time until x seconds pass without a failure, if
// each failure starts them again. A restart takes grow(R); with it, x seconds of progress that
// start again from the same place take (1/l + grow(R)) (e^(l x) - 1) = e^(l R) grow(x).
//
//   B: checkpoint j has just become complete. The work after it has run for min(t, a). To the
//   moment
//      when checkpoint j + 1 is complete, x = max(t, a) + b are left.
//   A: the job has just been restarted from checkpoint j. To the same moment, y = t + b + a are
//   left.
//
// A failure on either way leads to A (checkpoint j stays the last complete one), so
//
//   T_A = e^(l R) grow(y)
//   T_B = (1 - e^(-l x)) (1/l + grow(R) + T_A) = e^(l (R + y - x)) grow(x)
//
// and y - x = min(t, a). A cycle keeps t of work, hence
//
//   goodput = t e^(-l (R + min(t, a))) / grow(max(t, a) + b).
//
// Without an upload this is the model of Daly (2006), with his optimum 1 - l t = e^(-l (t + b)). An
// upload that is shorter than t makes R longer by a, and does not move the optimum.
//
// Of the wall time 1 - e^(-l R) is restarts: the moments with a failure in the R before them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trnsim::project {

struct Outages {
  double failures_per_s = 0;  // l, of the whole job; > 0
  double restart_s = 0;       // R
  double blocking_s = 0;      // b
  double upload_s = 0;        // a; 0 = synchronous
};

// Expected time from one complete checkpoint to the next, with work_s between them: T_B, T_A.
double cycle_s(const Outages& of, double work_s);
double cycle_after_restart_s(const Outages& of, double work_s);
double goodput_of(const Outages& of, double work_s);

// The work between checkpoints with the highest goodput; 0 where a checkpoint blocks for no time
// and needs none to be written.
double best_work_s(const Outages& of);
// The same in whole steps, at least one.
int64_t best_every(const Outages& of, double step_s);

// Work between checkpoints that block for blocking_s, at failures mtbf_s apart. Young: "A first
// order approximation to the optimum checkpoint interval", CACM 17(9), 1974. Daly: "A higher order
// estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006.
double young_s(double blocking_s, double mtbf_s);
double daly_s(double blocking_s, double mtbf_s);

// Shares of the wall time in the long run; they add up to 1.
struct TimeShares {
  double kept = 0;         // work that is never lost: the goodput
  double checkpoints = 0;  // that the job is blocked for: of the kept work
  double redone = 0;       // work and checkpoints that a failure took
  double restarts = 0;
  double waiting = 0;  // for a server to be repaired
};
TimeShares time_shares(const Outages& of, double work_s);

// Expected wall time of `steps` from a fresh start, with a checkpoint each `every` steps and one at
// the end, which counts too.
double expected_wall_s(const Outages& of, double step_s, int64_t steps, int64_t every);

// Servers, or pods, that stand by. A failure takes one out of service with probability `share`, for
// repair_s; where none stands by, the job waits for the next that comes back.
struct Spares {
  int64_t count = 0;
  double repair_s = 0;
  double share = 1;
};

// Wall times of that many runs, drawn at random, ascending. The same seed gives the same runs.
struct DrawnRuns {
  std::vector<double> wall_s;
  double mean_s = 0, standard_error_s = 0;
  double waiting_s = 0;                 // mean, of the wall time
  double failures = 0;                  // mean
  double quantile(double share) const;  // nearest rank
};
// Throws ProjectError where more than 1e9 failures would have to be drawn.
DrawnRuns draw_runs(const Outages& of, double step_s, int64_t steps, int64_t every,
                    const std::optional<Spares>& spares, int64_t runs, uint64_t seed);

// --- with intervals ------------------------------------------------------------------------------

struct Ranged {
  double value = 0, low = 0, high = 0;
};

struct GoodputRequest {
  Ranged step_s, failures_per_s, restart_s, blocking_s, upload_s;
  int64_t every = 0;  // steps between checkpoints; 0 = the best
  int64_t steps = 0;  // of the run; 0 = only the long run
  std::optional<Spares> spares;
  int64_t runs = 0;  // to draw, where there are steps
  uint64_t seed = 0;
};

// How far one input at its bounds moves the goodput.
struct Moved {
  std::string input;  // "step time", "failure rate", "restart", "blocking", "upload", "chance"
  double goodput_low = 0, goodput_high = 0;
  double wall_low_s = 0, wall_high_s = 0;  // 0 without steps
};

struct Choice {
  std::string name;    // "chosen", "exact", "Young 1974", "Daly 2006"
  double work_s = 0;   // as the formula gives it
  int64_t every = 0;   // the nearest whole number of steps, at least 1
  double goodput = 0;  // with the share of waiting for repairs that the answer has
};

struct GoodputEstimate {
  int64_t every = 0;
  TimeShares shares;  // kept is the goodput
  Ranged goodput;
  Ranged wall_s;  // of the steps: the mean, with the interval of inputs and chance
  double drawn_p5_s = 0, drawn_p50_s = 0, drawn_p95_s = 0;  // by chance alone
  double standard_error_s = 0, drawn_mean_s = 0;
  double failures = 0;  // expected, in the run
  std::vector<Choice> choices;
  std::vector<Moved> moved;
};

// Each input is moved to its bounds alone, with the same steps between checkpoints; the moves are
// added as independent errors, by the root of their squares, and so is what nine in ten drawn runs
// stay within. With spares the mean is that of the drawn runs, and every goodput, of moves and
// choices too, holds the waiting for repairs. Throws ProjectError where less than 1 % of the time
// is kept work: the job hardly moves, and no interval of it means anything.
GoodputEstimate estimate_goodput(const GoodputRequest& request);

}  // namespace trnsim::project
