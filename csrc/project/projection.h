// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Projection: what a step costs, where its time goes and what limits it. All from the Timeline, the
// Program and the Workload; integer ps inside, doubles only for printing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fold/job.h"
#include "lower/program.h"
#include "project/scenario.h"
#include "simulate/timeline.h"
#include "workload/workload.h"

namespace trnsim::project {

// Mean over ranks, sums exactly to step_ps (the remainder goes to compute).
struct Breakdown {
  int64_t compute_ps = 0, exposed_communication_ps = 0, bubble_ps = 0, host_ps = 0, stall_ps = 0;
};

// Ops by exclusive time on the critical rank (the lowest that ends last): an instant belongs to the
// earliest op in Program order that is running, or to the call or launch that the rank waits for.
// Equal ops of repeated layers are one row, with numbers in module paths as "*".
struct OpShare {
  std::string name, module, phase, bound, rule_class;
  int64_t count = 0, time_ps = 0, read_bytes = 0, write_bytes = 0;
  double flops = 0, roofline_fraction = 0;
};

struct ModuleShare {
  std::string module;
  int64_t count = 0;  // modules that the row stands for
  int64_t time_ps = 0, read_bytes = 0, write_bytes = 0;
  double flops = 0;
};

struct Advice {
  std::string relieves;  // the kind of bottleneck that it makes faster
  std::string change;    // "twice the bandwidth of link axis z", "no launch cost"
  int64_t step_ps = 0;   // of the step simulated again with it
  double gain = 0;       // 1 - step_ps / the step as it is
};

// What the interval is made of: the step with all figures of one kind at their bounds.
struct InputEffect {
  std::string input;  // "hbm", "links", ...
  int64_t faster_ps = 0, slower_ps = 0;
};

// Ranks that run the same thing.
struct RoleFigures {
  std::string name, ranks;  // ranks as RankPattern writes them
  int64_t rank_count = 0, memory_peak_bytes = 0;
};

struct Projection {
  std::string machine, mode;
  std::vector<RoleFigures> roles;
  int64_t chips = 0, chips_used = 0, ranks = 0, ranks_per_chip = 1;
  int64_t step_ps = 0, interval_low_ps = 0, interval_high_ps = 0;
  std::string interval_basis = "inputs (unvalidated)";
  std::vector<InputEffect> inputs;  // in the interval; none where nobody asked for it
  double own_error = 0;             // in the interval, beside them: a logarithm; 0 = none
  Breakdown breakdown;
  std::map<std::string, double> engine_busy;           // fraction of the step, mean over ranks
  std::map<std::string, int64_t> exposed_by_group_ps;  // by group name
  std::optional<double> mfu, mfu_causal;
  std::string peak_dtype;  // of most FLOPs, whose published dense peak of a chip MFU divides by
  double peak_flops = 0;   // of a chip; 0 where MFU is not known
  double model_flops = 0;  // of the step, all ranks
  int64_t parameters = 0;
  // Memory is that of the role that takes most, the first of these.
  int64_t memory_peak_bytes = 0, memory_capacity_bytes = 0;
  std::string memory_role;
  int64_t memory_reserved_bytes = 0;  // kept back by the runtime: no capacity
  std::map<std::string, int64_t> memory_by_kind;
  bool memory_is_upper_bound = false;  // compiler reuse not modelled
  bool fits = false;
  std::optional<double> tokens_per_s, samples_per_s, cost_usd_per_step, energy_j_per_step;
  // Of the fabric's switches, by ports; of the site, where its PUE is known, with both above; and
  // the CO2 of the widest of these that is known, where the grid's intensity is.
  std::optional<double> energy_network_j_per_step, energy_site_j_per_step, carbon_kg_per_step;
  std::optional<double> price_usd_per_chip_hour;
  int64_t instance_chips = 0;  // that are rented together; 0 = unknown
  // What the critical rank spends most of the step on: ops that an engine or the memory bounds,
  // calls ("links"), launches ("host"), or waiting for others ("bubble").
  std::string bottleneck_kind;  // "tensor", "vector", "scalar", "gpsimd", "memory", "links", ...
  std::string bottleneck;       // the same as people of this machine say it: "tensor cores"
  double bottleneck_share = 0;  // of the step
  std::vector<Advice> advice;
  std::vector<OpShare> top_ops;
  std::vector<ModuleShare> top_modules;
  int64_t outside_step_ps = 0;
  struct Fallback {
    std::string name;
    int64_t count = 0;
    double share = 0;
  };
  std::vector<Fallback> fallback_ops;
  std::vector<lower::Guess> guesses;
  std::vector<std::string> overrides;       // figures of the machine whose source is "--set"
  std::vector<std::string> idle_overrides;  // of them, those whose half and twice give this step
  std::vector<std::string> faults;          // what is slow or dead, in words
  struct Healthy {                          // the step without the faults
    int64_t step_ps = 0;
    Breakdown breakdown;
  };
  std::optional<Healthy> healthy;  // where there are faults
  uint64_t timeline_hash = 0, workload_hash = 0, seed = 0;
};

// Polled by whoever shows progress; written by project_step's threads.
struct Progress {
  std::atomic<int64_t> done{0}, total{1};  // simulations
  simulate::Progress tasks;                // of those that have begun
};

struct ProjectOptions {
  machine::Placement placement;
  int64_t step = -1;                                    // -1: the measured step of find_steps
  int64_t tokens_per_step = -1, samples_per_step = -1;  // -1: counted in the Workload
  int64_t top = 10;
  bool advise = true, interval = true;
  bool fold = true;        // simulate one rank of each class; the same result either way
  bool step_mode = false;  // collectives in steps, as lower/ring_steps.h says
  Scenario scenario;
  std::shared_ptr<Progress> progress;  // or null
  // Processes that project the same, of which each simulates a share of the variants.
  std::shared_ptr<simulate::Exchange> exchange;  // null: this one alone
  int64_t process = 0, processes = 1;
};

// What a script asked of the device, one Workload a role. Where there are several, each says which
// ranks play it.
using Workloads = std::vector<std::shared_ptr<const workload::Workload>>;

struct Run {  // everything a report needs
  Workloads workloads;
  machine::Machine machine;
  std::vector<fold::JobRole> roles;  // their Programs, and who plays them
  machine::Placement placement;
  fold::Cohorts cohorts;  // classes of the ranks of the job and of the links of its topology
  std::shared_ptr<const simulate::Timeline> timeline;  // of the cohorts
  Projection projection;
  ProjectOptions options;  // but for progress and exchange
};

// lower -> fold -> simulate -> project, and again for each piece of advice and interval bound.
Run project_step(const Workloads& workloads, const machine::Machine& machine,
                 const ProjectOptions& options);

// The same steps, in ps, on variants of one machine: simulated and not taken apart.
std::vector<int64_t> step_times(const Workloads& workloads,
                                const std::vector<machine::Machine>& machines,
                                const ProjectOptions& options);

}  // namespace trnsim::project
