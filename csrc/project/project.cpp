// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// project_step: the table of contents of a projection.
#include <algorithm>
#include <cstdio>

#include "base/hash.h"
#include "lower/cost.h"
#include "project/rates.h"
#include "project/roles.h"
#include "project/shares.h"
#include "project/step_shapes.h"
#include "project/variants.h"

namespace trnsim::project {
namespace {

using workload::RecordKind;

void add_guess(Projection& projection, lower::Guess guess) {
  for (const lower::Guess& known : projection.guesses) {
    if (known.value == guess.value && (known.name == guess.name || guess.name == "capture")) return;
  }
  projection.guesses.push_back(std::move(guess));
}

// The records of the step that are no part of it (evaluation, logging), as a Workload of their own:
// on one rank, since they stand outside the step's collectives.
int64_t outside_step_ps(const Case& of, const CaseRole& role, const machine::Machine& machine) {
  const std::vector<uint8_t> outside = workload::outside_step(*role.workload, role.step);
  if (std::find(outside.begin(), outside.end(), 1) == outside.end()) return 0;
  auto rest = std::make_shared<workload::Workload>(*role.workload);
  rest->records.clear();
  rest->allocations.clear();
  rest->groups.clear();
  for (size_t i = 0; i < outside.size(); ++i) {
    const workload::Record& record = role.workload->records[size_t(role.step.begin) + i];
    if (outside[i] && record.kind == RecordKind::op) rest->records.push_back(record);
  }
  if (rest->records.empty()) return 0;
  Case alone = of;
  rest->rank = 0;
  const workload::Step all{0, int64_t(rest->records.size()), 0, false, false};
  alone.roles = {{std::move(rest), all, {}}};
  alone.used_ranks = 1;
  alone.scenario = {};
  return simulate_case(alone, machine).timeline->makespan_ps;
}

void add_identity(const Case& of, const machine::Machine& machine, const Simulated& simulated,
                  Projection& projection) {
  projection.machine = machine.name;
  projection.mode = of.roles[0].workload->mode;
  projection.chips = of.placement.chips;
  projection.ranks_per_chip = of.placement.ranks_per_chip;
  projection.ranks = of.used_ranks;
  projection.chips_used = ceil_div(of.used_ranks, of.placement.ranks_per_chip);
  projection.step_ps = simulated.timeline->makespan_ps;
  projection.parameters = parameters_of(of);
  projection.overrides = machine::overrides_of(machine);
  projection.timeline_hash = simulated.timeline->hash;
  projection.workload_hash = workload::hash_workload(*of.roles[0].workload);
  for (size_t i = 1; i < of.roles.size(); ++i) {
    projection.workload_hash =
        combine(projection.workload_hash, workload::hash_workload(*of.roles[i].workload));
  }
  projection.seed = of.roles[0].workload->seed;
}

// What stood open in one role and how it was settled: lowering's guesses, capture's notes, and our
// own.
void add_role_guesses(const CaseRole& role, const lower::Program& program, Projection& projection) {
  const workload::Workload& workload = *role.workload;
  for (const lower::Guess& guess : program.guesses) add_guess(projection, guess);
  const auto is_new_state = [&](const workload::Storage& storage) {
    return storage.kind == workload::StorageKind::optimizer_state &&
           storage.born >= role.step.begin && storage.born < role.step.end;
  };
  if (role.step.creates_state &&
      std::any_of(workload.storages.begin(), workload.storages.end(), is_new_state)) {
    add_guess(projection, {"step", "first step: optimizer state is created in it",
                           "later steps do not allocate and fill that state"});
  }
  if (const int64_t missing = work_missing_at_end(workload, role.step); missing > 0) {
    add_guess(projection,
              {"step",
               "last step: it lacks " + std::to_string(missing) +
                   " of the ops that the step before runs between its optimizer and the next "
                   "forward",
               "run one step more, or choose another with --step"});
  }
  if (role.step.sets_up) {
    add_guess(projection, {"step", "DistributedDataParallel lays its buckets anew in it",
                           "later steps do not: run a third, or choose another with --step"});
  }
  const int64_t optimizer_steps = most_optimizer_steps(workload, role.step);
  if (optimizer_steps > 1) {
    add_guess(projection,
              {"step", std::to_string(optimizer_steps) + " steps of one optimizer are in it",
               "no forward pass shows where one ends: mark the ends with torch.trn.step()"});
  }
  if (role.step.updates_by_hand) {
    add_guess(projection, {"step", "no optimizer stepped: parameters changed in place end it",
                           "mark the ends of steps with torch.trn.step() if that is not so"});
  }
  if (!role.step.whole) {
    add_guess(projection, {"step", "no optimizer stepped: all that was recorded is one step",
                           "an inference, or a step that was not finished"});
  }
  if (workload.unknown_reads > 0) {
    add_guess(projection, {"unknown reads", std::to_string(workload.unknown_reads),
                           "the script read values that phantom mode does not know; they were "
                           "answered by policy"});
  }
  for (const std::string& note : workload.notes) add_guess(projection, {"capture", note, ""});
}

void add_guesses(const Case& of, const machine::Machine& machine, const Simulated& simulated,
                 Projection& projection) {
  if (of.placement.chips > projection.chips_used) {
    add_guess(projection,
              {"chips used",
               std::to_string(projection.chips_used) + " of " + std::to_string(of.placement.chips) +
                   " chips used: the script is not distributed",
               "rates, cost and MFU count the used chips only"});
  }
  if (machine.chip.architecture == machine::Architecture::neuroncore &&
      of.placement.ranks_per_chip == 1 && machine.chip.neuron.cores > 1) {
    add_guess(projection, {"ranks per chip",
                           "a rank is a whole chip, an op is split over its cores by the LNC rule",
                           "AWS's compiler runs a rank per logical core: --ranks-per-chip"});
  }
  if (projection.parameters == 0) {
    add_guess(projection,
              {"parameters", "unknown", "no module was called and no optimizer stepped"});
  }
  if (!conditions_of(of.scenario).faults.empty()) {
    add_guess(projection, {"faults",
                           "collectives keep their algorithms; what crossed a dead link "
                           "goes around it",
                           "the library may build other rings"});
  }
  if (machine.stack.error.is_zero() && !machine.stack.error_of_other_machines.is_zero()) {
    add_guess(projection, {"interval",
                           "no published step of " + machine.chip.name +
                               " was compared: our error is that on machines never calibrated",
                           "the interval is wide"});
  }
  for (size_t i = 0; i < of.roles.size(); ++i) {
    add_role_guesses(of.roles[i], *simulated.roles[i].program, projection);
  }
}

// Sorts whose time matters in the step.
void add_sort_guesses(const Case& of, const workload::Workload& workload,
                      const machine::Machine& machine, const lower::Program& program,
                      const Attribution& attribution, Projection& projection) {
  constexpr int64_t kLeastShare = 100;  // a hundredth of the step
  const lower::Target target = lower::make_target(machine, of.placement.ranks_per_chip);
  std::map<std::string, std::pair<lower::Guess, int64_t>> times;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    for (const int64_t record : program.ops[i].records) {
      const auto& signature = workload.signature_of(workload.records[size_t(record)]);
      const auto guess = lower::guess_of_sort(signature, target);
      if (!guess) continue;
      auto& [kept, time_ps] = times.try_emplace(guess->name, *guess, 0).first->second;
      time_ps += attribution.op_ps[i];
    }
  }
  for (const auto& [name, timed] : times) {
    if (timed.second > projection.step_ps / kLeastShare) add_guess(projection, timed.first);
  }
}

std::string bottleneck_name(const std::string& kind, const machine::Machine& machine) {
  for (const char* other : {"memory", "host link", "links", "host", "bubble", "nothing"}) {
    if (kind == other) return kind;
  }
  return machine.engine_name(kind);
}

void add_attribution(const Sweep& sweep, const Case& of, const machine::Machine& machine,
                     const ProjectOptions& options, const simulate::Timeline& timeline,
                     Projection& projection) {
  const int64_t rank = critical_rank(timeline);
  const lower::Program& program = sweep.program_of(rank);
  const Attribution attribution = attribute(sweep, rank);
  const size_t role = size_t(timeline.system->ranks[size_t(rank)].role);
  const workload::Workload& workload = *of.roles[role].workload;
  projection.top_ops = rank_ops(program, workload, attribution, options.top);
  projection.top_modules = rank_modules(program, workload, attribution, options.top);
  projection.fallback_ops = rank_fallbacks(program, attribution, timeline.makespan_ps);
  add_sort_guesses(of, workload, machine, program, attribution, projection);
  const Bottleneck bottleneck = find_bottleneck(program, attribution, timeline.makespan_ps);
  projection.bottleneck_kind = bottleneck.kind;
  projection.bottleneck = bottleneck_name(bottleneck.kind, machine);
  projection.bottleneck_share = bottleneck.share;
}

std::string milliseconds(int64_t ps) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g ms", double(ps) * 1e-9);
  return text;
}

// Whole steps that are not like the measured one, with their times; those that make an optimizer's
// state are left out.
void add_step_shapes(const Case& of, const machine::Machine& machine, Projection& projection) {
  constexpr size_t kMostShapes = 8;
  const CaseRole& first = of.roles[0];
  if (!first.step.whole) return;
  std::vector<StepShape> shapes = step_shapes(*first.workload, first.step);
  int64_t total = 0, faster = 0, equal = 0;
  std::string text;
  const auto add = [&](const StepShape& shape, int64_t step_ps) {
    total += shape.count;
    if (step_ps < projection.step_ps) faster += shape.count;
    if (step_ps == projection.step_ps) equal += shape.count;
    const std::string steps = std::to_string(shape.count) + (shape.count == 1 ? " step" : " steps");
    text += (text.empty() ? "" : "; ") + steps +
            (shape.has_measured ? (shape.count == 1 ? " of the measured shape takes "
                                                    : " of the measured shape take ")
                                : " as --step " + std::to_string(shape.index) +
                                      (shape.count == 1 ? " takes " : " take ")) +
            milliseconds(step_ps) + (shape.first.sets_up ? " (DDP lays its buckets)" : "");
  };
  std::stable_partition(shapes.begin(), shapes.end(),
                        [](const StepShape& shape) { return shape.has_measured; });
  if (shapes.size() > kMostShapes) shapes.resize(kMostShapes);
  for (const StepShape& shape : shapes) {
    if (shape.has_measured) {
      add(shape, projection.step_ps);
    } else if (!shape.is_first) {
      Case other = of;
      try {
        choose_steps(other, shape.index);
      } catch (const Error&) {
        continue;  // a step that some role did not run
      }
      add(shape, simulate_case(other, machine).timeline->makespan_ps);
    }
  }
  if (text.find(';') == std::string::npos) return;
  const auto count = [](int64_t steps) { return std::to_string(steps); };
  add_guess(projection, {"steps differ in shape", text,
                         "the projection is of the measured one: of the " + count(total - 1) +
                             " other steps " + count(faster) + " are faster, " + count(equal - 1) +
                             " as fast and " + count(total - faster - equal) + " slower"});
}

// The same step with nothing slow or dead.
void add_healthy(const Case& of, const machine::Machine& machine, Projection& projection) {
  if (of.scenario.is_healthy()) return;
  projection.faults = describe(of.scenario);
  Case healthy = of;
  healthy.scenario = {};
  const Simulated simulated = simulate_case(healthy, machine);
  const Sweep sweep(*simulated.timeline);
  projection.healthy = {simulated.timeline->makespan_ps,
                        share_step(*simulated.timeline, sweep).breakdown};
}

// The interval and the advice, as one batch of simulations.
void add_variants(const Case& of, const machine::Machine& machine, const ProjectOptions& options,
                  Projection& projection) {
  const auto groups = options.interval ? input_groups(machine) : std::vector<InputGroup>{};
  const auto changes =
      options.advise ? possible_changes(machine, projection.chips_used) : std::vector<Change>{};
  std::vector<machine::Machine> machines;
  for (const InputGroup& group : groups) {
    machines.push_back(group.faster);
    machines.push_back(group.slower);
  }
  for (const Change& change : changes) machines.push_back(change.machine);
  const auto neighbours = options.advise ? machine::override_neighbours(machine)
                                         : std::vector<std::vector<machine::Machine>>{};
  for (const auto& of_one : neighbours) {
    machines.insert(machines.end(), of_one.begin(), of_one.end());
  }
  const std::vector<int64_t> steps = simulate_variants(of, machines, options);
  auto step_of_neighbour = steps.begin() + int64_t(2 * groups.size() + changes.size());
  for (size_t i = 0; i < neighbours.size(); ++i) {
    const auto end = step_of_neighbour + int64_t(neighbours[i].size());
    const bool is_idle = std::all_of(step_of_neighbour, end,
                                     [&](int64_t step) { return step == projection.step_ps; });
    if (is_idle && !neighbours[i].empty()) {
      projection.idle_overrides.push_back(projection.overrides[i]);
    }
    step_of_neighbour = end;
  }
  std::vector<int64_t> faster, slower;
  for (size_t i = 0; i < groups.size(); ++i) {
    faster.push_back(steps[2 * i]);
    slower.push_back(steps[2 * i + 1]);
  }
  const machine::Stack& stack = machine.stack;
  const Rational error = stack.error.is_zero() ? stack.error_of_other_machines : stack.error;
  for (size_t i = 0; i < groups.size(); ++i) {
    projection.inputs.push_back({groups[i].name, faster[i], slower[i]});
  }
  projection.own_error = options.interval ? error.to_double() : 0;
  combine_interval(projection.step_ps, faster, slower, projection.own_error,
                   projection.interval_low_ps, projection.interval_high_ps);
  if (options.interval && !stack.error.is_zero()) projection.interval_basis = "inputs+validated";
  for (size_t i = 0; i < changes.size(); ++i) {
    const int64_t step = steps[2 * groups.size() + i];
    const double gain =
        projection.step_ps > 0 ? 1.0 - double(step) / double(projection.step_ps) : 0.0;
    projection.advice.push_back({changes[i].relieves, changes[i].text, step, gain});
  }
  std::stable_sort(projection.advice.begin(), projection.advice.end(),
                   [](const Advice& a, const Advice& b) { return a.step_ps < b.step_ps; });
}

}  // namespace

Run project_step(const Workloads& workloads, const machine::Machine& machine,
                 const ProjectOptions& options) {
  Case of = make_case(workloads, options);
  const Simulated simulated = simulate_case(of, machine, options.progress.get());
  of.mould = simulated.mould;
  const Sweep sweep(*simulated.timeline);

  Run run{workloads,          machine, simulated.roles, of.placement, simulated.cohorts,
          simulated.timeline, {},      options};
  run.options.progress = nullptr;
  run.options.exchange = nullptr;
  Projection& projection = run.projection;
  add_identity(of, machine, simulated, projection);
  add_guesses(of, machine, simulated, projection);
  add_step_shapes(of, machine, projection);
  const Shares shares = share_step(*simulated.timeline, sweep);
  projection.breakdown = shares.breakdown;
  projection.engine_busy = shares.engine_busy;
  projection.exposed_by_group_ps = shares.exposed_by_group_ps;
  add_attribution(sweep, of, machine, options, *simulated.timeline, projection);
  add_flops(*simulated.timeline->system, machine, projection);
  add_throughput(of, {options.samples_per_step, options.tokens_per_step}, projection);
  add_cost(machine, projection);
  add_memory(of, machine, simulated, projection);
  for (const CaseRole& role : of.roles) {
    projection.outside_step_ps =
        std::max(projection.outside_step_ps, outside_step_ps(of, role, machine));
  }
  add_healthy(of, machine, projection);
  add_variants(of, machine, options, projection);
  return run;
}

std::vector<int64_t> step_times(const Workloads& workloads,
                                const std::vector<machine::Machine>& machines,
                                const ProjectOptions& options) {
  TRN_CHECK(!machines.empty(), project, "no machine to simulate the step on", "give one or more");
  Case of = make_case(workloads, options);
  const Simulated first = simulate_case(of, machines.front(), options.progress.get());
  of.mould = first.mould;
  std::vector<int64_t> times{first.timeline->makespan_ps};
  const std::vector<int64_t> others =
      simulate_variants(of, {machines.begin() + 1, machines.end()}, options);
  times.insert(times.end(), others.begin(), others.end());
  return times;
}

}  // namespace trnsim::project
