// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "lower/builder.h"
#include "lower/collectives.h"
#include "lower/emit.h"
#include "lower/plan.h"
#include "lower/ring_steps.h"
#include "lower/rules/families.h"

namespace trnsim::lower {
namespace {

// How ops are put together. A GPU runs each alone, or as its stack fuses them; Trainium fuses
// inside a graph.
enum class Level : uint8_t { eager_kernels, fused_kernels, eager_graphs, fused };

Level level_of(const std::string& stack, const machine::Machine& machine) {
  const bool gpu = machine.chip.architecture == machine::Architecture::gpu;
  if (stack.empty()) {
    const bool is_eager = machine.stack.level == machine::Level::eager;
    if (gpu) {
      const bool is_fused = machine.stack.level == machine::Level::fused;
      return is_fused ? Level::fused_kernels : Level::eager_kernels;
    }
    return is_eager ? Level::eager_graphs : Level::fused;
  }
  if (stack == "eager" || stack == "torch-eager") {
    return gpu ? Level::eager_kernels : Level::eager_graphs;
  }
  TRN_CHECK((stack == "fused" || stack == "neuron") && !gpu, lower,
            "machine '" + machine.name + "' has no stack '" + stack + "'",
            gpu ? "use eager" : "use fused or eager");
  return Level::fused;
}

std::vector<Cost> costs_of(const workload::Workload& workload, const workload::Step& step,
                           const Target& target) {
  std::vector<Cost> costs(workload.signatures.size());
  std::vector<uint8_t> done(workload.signatures.size(), 0);
  for (int64_t i = step.begin; i < step.end; ++i) {
    const workload::Record& record = workload.records[size_t(i)];
    if (record.kind != workload::RecordKind::op || done[size_t(record.signature)]) continue;
    done[size_t(record.signature)] = 1;
    costs[size_t(record.signature)] =
        cost_of(workload.signatures[size_t(record.signature)], target);
  }
  return costs;
}

Queue queue_of(const workload::Call& call, int64_t collective_streams) {
  if (call.kind == workload::CallKind::send) return {QueueKind::send, call.peer};
  if (call.kind == workload::CallKind::recv) return {QueueKind::recv, call.peer};
  return {QueueKind::collective, collective_queue(call.group, collective_streams)};
}

// What LowerOptions::algorithm is forced on.
bool reduces_or_gathers(workload::CallKind kind) {
  return has_algorithms(kind) && kind != workload::CallKind::all_to_all;
}

// Of the captured rank in the call's group.
int64_t own_index(const workload::Workload& workload, const workload::Call& call) {
  return workload.groups[size_t(call.group)].ranks.index_of(workload.rank);
}

// Templates of the calls of a plan; equal ones are shared.
void make_calls(Emission& emission, Program& program, const machine::Machine& machine,
                const machine::Placement& placement, const std::string& algorithm,
                int64_t collective_streams) {
  using Key = std::tuple<workload::CallKind, int32_t, int64_t, int32_t, int32_t,
                         std::vector<int64_t>, std::vector<int64_t>>;
  std::map<Key, int32_t> made;
  std::map<int32_t, GroupShapes> shapes_of_group;
  const auto& units = emission.plan->units;
  emission.call_template.assign(units.size(), -1);
  emission.call_queue.resize(units.size());
  bool is_flat = false, is_plain = false;
  for (size_t i = 0; i < units.size(); ++i) {
    if (units[i].kind != UnitKind::call) continue;
    const workload::Call& call = emission.workload->calls[size_t(units[i].call)];
    const Key key{call.kind, call.group,  call.bytes,   call.peer,
                  call.tag,  call.splits, call.received};
    const auto [found, added] = made.try_emplace(key, int32_t(program.calls.size()));
    if (added) {
      const auto [shapes, is_new] = shapes_of_group.try_emplace(call.group);
      if (is_new) {
        const auto& ranks = emission.workload->groups[size_t(call.group)].ranks;
        shapes->second = shapes_of(ranks, machine, placement);
      }
      const std::string forced = reduces_or_gathers(call.kind) ? algorithm : "";
      program.calls.push_back(
          make_call(call, own_index(*emission.workload, call), shapes->second, machine, forced));
      program.calls.back().record = units[i].record;
      const GroupShape& whole = shapes->second.whole;
      const bool is_ring = forced.empty() && program.calls.back().algorithm == "ring";
      is_flat |= is_ring && whole.pods > 1;
      is_plain |= is_ring && whole.pods == 1 && !whole.is_box && emission.target->is_neuron();
    }
    emission.call_template[i] = found->second;
    emission.call_queue[i] = queue_of(call, collective_streams);
  }
  if (is_plain) {
    program.guesses.push_back({"groups that are no box of chips", "one flat ring",
                               "what the library does with them is not published; slow for small "
                               "messages"});
  }
  if (is_flat) {
    program.guesses.push_back({"groups with other places in each pod", "one flat ring",
                               "what the library does with them is not published; slow for small "
                               "messages"});
  }
}

std::string peak_dtype(const Program& program) {
  std::map<std::string, int128> flops;
  for (const Op& op : program.ops) {
    if (!op.dtype.empty()) flops[op.dtype] += op.model_flops;
  }
  std::string best = "float32";
  int128 most = 0;
  for (const auto& [dtype, count] : flops) {
    if (count > most) {
      most = count;
      best = dtype;
    }
  }
  return best;
}

// Products of a dtype for which the machine file gives no rate: gemm_rate and plan_gemm time them
// as others.
void add_dtype_guesses(Program& program, const Plan& plan, const Target& target) {
  std::set<std::string> dtypes;
  for (const Unit& unit : plan.units) {
    for (const Member& member : unit.members) {
      const Cost& cost = *member.cost;
      const bool has_rate = target.chip.peaks.physical_flops.count(cost.dtype) > 0;
      if (!cost.gemms.empty() && !has_rate) dtypes.insert(cost.dtype);
    }
  }
  for (const std::string& dtype : dtypes) {
    const bool is_gpu = target.is_gpu();
    program.guesses.push_back(
        {dtype + " products", is_gpu ? "at the vector units' rate of float32" : "as float32",
         target.is_neuron()
             ? "the tensor engine has none: what the compiler makes of them is not published"
             : "the machine file gives no rate of " + dtype});
  }
}

// PyTorch asks cuDNN for nn.LSTM and nn.GRU on a GPU, which has no library here.
void add_recurrent_guess(Program& program, const Plan& plan, const Target& target) {
  const auto has_cell = [](const Unit& unit) {
    return std::any_of(unit.members.begin(), unit.members.end(),
                       [](const Member& member) { return member.cost->rule == "rnn"; });
  };
  if (!target.is_gpu() || std::none_of(plan.units.begin(), plan.units.end(), has_cell)) return;
  program.guesses.push_back({"recurrent layers", "cell by cell, as PyTorch without cuDNN",
                             "cuDNN runs a layer in a few kernels: such steps come out too slow, "
                             "by a multiple where their cells are small"});
}

// Decompositions and solves of matrices, which move few bytes for their work.
bool is_factorization(const std::string& op) {
  constexpr std::array<const char*, 12> kNames{
      "aten::linalg_cholesky", "aten::cholesky",     "aten::_cholesky_solve",    "aten::linalg_qr",
      "aten::linalg_lu",       "aten::_linalg",      "aten::linalg_inv",         "aten::linalg_eig",
      "aten::linalg_ldl",      "aten::linalg_solve", "aten::linalg_householder", "aten::geqrf"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](const char* name) { return op.starts_with(name); });
}

// Of Trainium's compiler and its library of collectives.
void add_neuron_guesses(Program& program, const Target& target, Level level) {
  if (target.cores > 1) {
    program.guesses.push_back(
        {"split of an op over cores",
         "halve the largest of batch, rows, columns, " + std::to_string(target.cores) + " cores",
         "how the compiler splits a rank's op over its cores is not published"});
  }
  program.guesses.push_back(
      level == Level::fused ? Guess{"fusion", "greedy inside a phase",
                                    "the compiler's own fusion is not published; moves HBM bytes"}
                            : Guess{"eager launches", "one executable an op",
                                    "the cost of an eager op on Trainium is not published"});
  if (!program.calls.empty() && target.ranks_per_chip == 1) {
    const auto& core = target.core();
    program.guesses.push_back(
        {"collectives of chips",
         "as for " + std::to_string(core.cores / core.cores_per_logical) + " logical cores a chip",
         "the library counts logical cores as ranks; switch points between algorithms are fitted"});
  }
}

// What the other members send in an all-to-all of uneven parts.
void add_exchange_guesses(Program& program, const Plan& plan, const workload::Workload& workload) {
  bool shifts = false, is_uneven = false, is_back = false, is_both = false;
  for (const Unit& unit : plan.units) {
    if (unit.kind != UnitKind::call) continue;
    const workload::Call& call = workload.calls[size_t(unit.call)];
    const std::vector<int64_t>&sent = call.splits, &received = call.received;
    const bool is_shift = workload::shift_of(call, own_index(workload, call)) >= 0;
    const bool comes_even = std::adjacent_find(received.begin(), received.end(),
                                               std::not_equal_to<>()) == received.end();
    shifts |= is_shift;
    is_uneven |= !sent.empty() && !is_shift;
    is_back |= sent.empty() && !received.empty();
    is_both |= !sent.empty() && !is_shift && !comes_even && sent != received;
  }
  if (shifts) {
    program.guesses.push_back({"all_to_all to one member", "a shift",
                               "what the others send is not recorded: each sends to the member as "
                               "far from it as the captured rank's"});
  }
  if (is_uneven) {
    program.guesses.push_back({"all_to_all with uneven splits", "all members send alike",
                               "what the others send is not recorded: each sends every member what "
                               "the captured rank sends it"});
  }
  if (is_back) {
    program.guesses.push_back({"all_to_all with uneven output splits", "all members receive alike",
                               "what the others receive is not recorded: each gets from every "
                               "member what the captured rank gets from it"});
  }
  if (is_both) {
    program.guesses.push_back({"all_to_all with other output splits than input splits",
                               "by what is sent",
                               "no matrix of all members' parts is recorded: what the captured "
                               "rank receives is not looked at"});
  }
}

void add_guesses(Program& program, const Plan& plan, const workload::Workload& workload,
                 const Target& target, Level level) {
  if (target.is_neuron()) add_neuron_guesses(program, target, level);
  if (target.is_tpu()) {
    program.guesses.push_back(
        {"fusion", "greedy inside a phase",
         "XLA's own fusion differs in places: pointwise ops and ops on rows join one product"});
  }
  add_dtype_guesses(program, plan, target);
  add_recurrent_guess(program, plan, target);
  std::set<std::string> unknown, given, without_cycles;
  bool copies_host = false, fuses_regions = false;
  for (const Unit& unit : plan.units) {
    fuses_regions |= unit.fused && target.is_gpu();
    for (const Member& member : unit.members) {
      const auto& op = workload.signature_of(workload.records[size_t(member.record)]).op;
      copies_host |= op == "trnsim::copy_h2d" || op == "trnsim::copy_d2h";
      if (member.cost->rule_class == RuleClass::fallback) {
        unknown.insert(op);
      }
      if (member.cost->rule == "given") {
        given.insert(op);
        const auto& signature = workload.signature_of(workload.records[size_t(member.record)]);
        if (!target.is_neuron() && rules::has_given_cycles(signature)) without_cycles.insert(op);
      }
    }
  }
  add_exchange_guesses(program, plan, workload);
  if (fuses_regions) {
    program.guesses.push_back(
        {level == Level::fused_kernels ? "fusion" : "fusion in compiled regions",
         "greedy inside a phase",
         "pointwise ops and ops on rows join what they read; products, "
         "convolutions and attention are kernels of their own; moves bytes"});
  }
  if (copies_host) {
    program.guesses.push_back({"copies between host and device", "at the chip's share of the link",
                               "chips of a server never wait for each other there; host memory "
                               "that is not pinned would be slower"});
  }
  for (const std::string& op : given) {
    program.guesses.push_back({"cost given by the script", op, "as trnsim.cost says"});
  }
  for (const std::string& op : without_cycles) {
    program.guesses.push_back({"cycles given by the script", op,
                               "they are of Trainium's engines: its FLOPs and bytes alone count"});
  }
  for (const std::string& op : unknown) {
    program.guesses.push_back(
        {"op without a cost rule", op,
         is_factorization(op) ? "costed by its bytes, far too little: its work grows with the cube "
                                "of its size, and much of it runs step by step"
                              : "costed by its bytes"});
  }
}

// A job that leaves chips of its pods to others.
void add_placement_guess(Program& program, const machine::Machine& machine,
                         const machine::Placement& placement) {
  const int64_t pod = machine::pod_chips(machine);
  const int64_t each = machine::pod_chips(machine, placement.chips);
  if (each == placement.chips || each == pod) return;
  program.guesses.push_back({"chips of each pod",
                             std::to_string(each) + " of " + std::to_string(pod) + " are used",
                             "a job of several pods takes so many of each: scale_up.job_chips"});
}

// A factor of links above 1 is fitted to steps whose messages the stack hid, as they were laid out.
void add_hiding_guess(Program& program, const machine::Machine& machine) {
  const Rational one{1, 1};
  for (const auto& [where, factor] : {std::pair{"inside of pods", machine.stack.link_factor},
                                      std::pair{"between pods", machine.stack.network_factor}}) {
    if (!(one < factor)) continue;
    program.guesses.push_back({std::string("messages ") + where,
                               "hidden as in the steps that the stack was fitted to",
                               "links count as faster than they are, for what the stack hides of "
                               "their messages: a layout that waits for them otherwise may come "
                               "out too fast"});
  }
}

// What a transport leaves is in the rates of links already; a fitted stack may hold it, too.
void add_transport_guess(Program& program, const machine::Machine& machine,
                         const machine::Placement& placement) {
  const machine::Transport& transport = machine.fabric.transport;
  if (!transport.is_known || placement.chips <= machine::pod_chips(machine, placement.chips)) {
    return;
  }
  const machine::Figure* kind = machine.figure("fabric.transport.kind");
  const bool is_fitted = !(machine.stack.network_factor == Rational{1, 1});
  program.guesses.push_back(
      {"transport between pods", kind->value,
       is_fitted ? "the stack's network_factor was fitted to links with a transport of their own: "
                   "what headers and losses take may count twice"
                 : "headers, losses and congestion of fabric.transport lower the links' rates"});
}

}  // namespace

Program lower_step(const workload::Workload& workload, const workload::Step& step,
                   const machine::Machine& machine, const machine::Placement& placement,
                   const LowerOptions& options) {
  TRN_CHECK(
      step.begin >= 0 && step.begin <= step.end && size_t(step.end) <= workload.records.size(),
      lower, "the step lies outside the Workload");
  const Level level = level_of(options.stack, machine);
  const Target target = make_target(machine, placement.ranks_per_chip);
  const int64_t collective_streams = target.collective_streams();
  const std::vector<Cost> costs = costs_of(workload, step, target);
  PlanOptions plan_options;
  const bool is_kernels = level == Level::eager_kernels || level == Level::fused_kernels;
  plan_options.fuse = level == Level::fused || level == Level::fused_kernels;
  plan_options.graph_per_op = level == Level::eager_graphs;
  plan_options.whole_graphs = target.is_tpu();  // XLA compiles the optimizer into the step
  // A row that a GPU's kernel does not hold is read again from its cache, not from the HBM.
  plan_options.sbuf_partition_bytes = target.is_neuron() ? machine.chip.neuron.sbuf_partition_bytes
                                                         : std::numeric_limits<int64_t>::max();
  plan_options.fuse_regions = is_kernels && options.stack.empty();
  plan_options.anchors_alone = is_kernels;
  plan_options.collective_streams = collective_streams;
  const Plan plan =
      plan_step(workload, step, workload::outside_step(workload, step), costs, plan_options);

  Program program;
  program.role = workload.role;
  program.rank = workload.rank;
  program.groups = workload.groups;
  Builder builder(program);
  Emission emission;
  emission.workload = &workload;
  emission.plan = &plan;
  emission.target = &target;
  make_calls(emission, program, machine, placement, options.algorithm, collective_streams);
  if (is_kernels) {
    emit_eager(emission, builder);
  } else {
    emit_graphs(emission, builder);
  }
  program.peak_dtype = peak_dtype(program);
  add_guesses(program, plan, workload, target, level);
  add_placement_guess(program, machine, placement);
  add_hiding_guess(program, machine);
  add_transport_guess(program, machine, placement);
  check_program(program);
  return options.step_mode ? in_steps(program, machine, placement) : program;
}

}  // namespace trnsim::lower
