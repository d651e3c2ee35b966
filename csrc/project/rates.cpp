// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/rates.h"

#include <algorithm>
#include <array>
#include <map>

#include "project/gradient_flow.h"
#include "project/group_names.h"
#include "project/held.h"
#include "project/roles.h"
#include "workload/messages.h"

namespace trnsim::project {
namespace {

double seconds(int64_t ps) { return double(ps) / double(kPsPerSecond); }

// Of the first forward pass whose samples are known; there is one.
const std::string& module_of_samples(const workload::Workload& workload,
                                     const workload::Step& step) {
  int64_t at = step.begin;
  const auto tells = [&](const workload::Record& record) {
    return record.kind == workload::RecordKind::marker && record.value >= 0 &&
           record.payload == int32_t(workload::MarkerKind::forward_begin);
  };
  while (!tells(workload.records[size_t(at)])) ++at;
  return workload.modules[size_t(workload.records[size_t(at)].module)];
}

}  // namespace

void add_flops(const fold::System& system, const machine::Machine& machine,
               Projection& projection) {
  std::vector<int128> ranks_of_role(system.roles.size(), 0);
  for (const fold::Rank& rank : system.ranks) ranks_of_role[size_t(rank.role)] += rank.count;
  int128 flops = 0, causal = 0;
  std::string dtype;
  int128 most = -1;
  for (size_t r = 0; r < system.roles.size(); ++r) {
    const lower::Program& program = *system.roles[r];
    int128 of_role = 0;
    for (const lower::Op& op : program.ops) {
      of_role += ranks_of_role[r] * op.model_flops;
      causal += ranks_of_role[r] * op.model_flops_causal;
    }
    flops += of_role;
    if (of_role > most) dtype = program.peak_dtype;
    most = std::max(most, of_role);
  }
  projection.model_flops = double(flops);
  const auto& peaks = machine.chip.peaks.published_flops;
  const auto peak = peaks.find(dtype);
  if (flops == 0 || projection.step_ps == 0) {
    projection.guesses.push_back({"mfu", "unknown", "the step has no matrix multiplication"});
  } else if (peak == peaks.end()) {
    projection.guesses.push_back(
        {"mfu", "unknown", "the machine file has no published peak for " + dtype});
  } else {
    const double available =
        double(projection.chips_used) * peak->second.to_double() * seconds(projection.step_ps);
    projection.peak_dtype = dtype;
    projection.peak_flops = peak->second.to_double();
    projection.mfu = double(flops) / available;
    projection.mfu_causal = double(causal) / available;
  }
  if (!projection.mfu_causal) {
    projection.guesses.push_back({"mfu_causal", "unknown", "as the MFU"});
  }
}

namespace {

// Whether two of its ranks share their data by the name of a group, so that not each has its own.
bool has_sharers(const workload::Workload& workload, const workload::Group& group) {
  for (const workload::Group& other : workload.groups) {
    if (!is_named_for_parts(other)) continue;
    int64_t inside = 0;
    for (int64_t i = 0; i < other.ranks.size() && inside < 2; ++i) {
      inside += group.ranks.index_of(other.ranks.rank_at(i)) >= 0 ? 1 : 0;
    }
    if (inside > 1) return true;
  }
  return false;
}

// By the names of process groups; nothing where none says it.
std::optional<int64_t> named_degree(const workload::Workload& workload) {
  std::map<std::string, int64_t> named;
  std::optional<int64_t> whole;
  for (const workload::Group& group : workload.groups) {
    if (!is_named_for_data(group, Words::any) || has_sharers(workload, group)) continue;
    named[group.name] = group.ranks.size();
    if (is_named_for_data(group, Words::all)) whole = group.ranks.size();
  }
  if (named.empty() || whole) return whole;
  int64_t degree = 1;
  for (const auto& [name, size] : named) degree *= size;
  return degree;
}

struct Spread {
  std::optional<int64_t> degree;
  std::string why;
};

// By what the records show; ranks of context parallelism have parts of the same samples.
Spread spread_by_flow(const GradientFlow& flow, int64_t replicas) {
  if (!flow.degree || *flow.degree > replicas) return {};
  int64_t degree = *flow.degree;
  // Model parallelism would have to send activations: the groups train on their own until their
  // parameters are averaged (local SGD).
  if (degree < replicas && replicas % degree == 0 && !flow.exchanges_beyond) {
    return {replicas,
            "no rank sends activations to those over which its gradients are not reduced: "
            "each is taken to have its own data"};
  }
  if (degree == 1) {
    return {degree, "ranks exchange activations and no gradients: all work on the same data"};
  }
  const bool has_context = flow.context > 1 && degree % flow.context == 0;
  if (has_context) degree /= flow.context;
  const std::string over = *flow.degree == replicas ? "all" : std::to_string(*flow.degree);
  const std::string parts = ", of which " + std::to_string(flow.context) +
                            " have parts of the same sequences: the others are taken to have "
                            "their own data";
  return {degree, "gradients are reduced over " + over + " ranks" +
                      (has_context ? parts : ": each is taken to have its own data")};
}

}  // namespace

std::optional<int64_t> data_parallel_degree(const CaseRole& role, const GradientFlow& flow,
                                            int64_t replicas, std::vector<lower::Guess>& guesses) {
  if (replicas == 1) return 1;
  Spread spread = spread_by_flow(flow, replicas);
  const std::optional<int64_t> named = named_degree(*role.workload);
  const bool is_possible = named && *named <= replicas && replicas % *named == 0;
  if (is_possible && (!spread.degree || *spread.degree == 1)) {
    spread = {named, "from the names of process groups: tokens and samples count this often"};
  }
  if (spread.degree) {
    guesses.push_back({"data-parallel degree", std::to_string(*spread.degree), spread.why});
  }
  return spread.degree;
}

namespace {

// The first role that shows samples, or tokens: the stage of a pipeline that has the inputs.
const CaseRole& role_of_inputs(const Case& of, int64_t workload::Counted::* what) {
  for (const CaseRole& role : of.roles) {
    if (workload::counted_in(*role.workload, role.step).*what >= 0) return role;
  }
  return of.roles[0];
}

// Do ranks that embed tokens of their own send each other messages? They hold parts of the same
// sequences then (a ring of attention written by hand), or copies of the model that talk: the
// stages of a pipeline have one that embeds.
bool sequences_may_be_shared(const Case& of) {
  std::vector<const CaseRole*> embedding;
  for (const CaseRole& role : of.roles) {
    if (workload::counted_in(*role.workload, role.step).tokens >= 0) embedding.push_back(&role);
  }
  for (const CaseRole* role : embedding) {
    for (const auto& [group, peer] : workload::peers_in_step(*role->workload, role->step)) {
      for (const CaseRole* other : embedding) {
        if (other->ranks.index_of(peer) >= 0) return true;
      }
    }
  }
  return false;
}

}  // namespace

void add_throughput(const Case& of, const StepTotals& given, Projection& projection) {
  auto& guesses = projection.guesses;
  const CaseRole& sampled = role_of_inputs(of, &workload::Counted::samples);
  const CaseRole& embedding = role_of_inputs(of, &workload::Counted::tokens);
  const GradientFlow flow = follow_gradients(*sampled.workload, sampled.step);
  const auto degree = data_parallel_degree(sampled, flow, replicas_of(of), guesses);
  const double step_s = seconds(projection.step_ps);
  const bool is_one_role = &sampled == &embedding;
  const int64_t context =
      is_one_role ? flow.context : follow_gradients(*embedding.workload, embedding.step).context;
  const bool is_shared = context == 1 && sequences_may_be_shared(of);
  const auto rate = [&](const std::string& what, int64_t of_rank, int64_t of_all,
                        int64_t shared) -> std::optional<double> {
    if (step_s > 0 && of_all >= 0) return double(of_all) / step_s;
    const auto unknown = [&](const std::string& why) {
      guesses.push_back({what + "_per_s", "unknown", why});
      return std::nullopt;
    };
    if (step_s == 0) return unknown("the step takes no time");
    if (of_rank < 0) return unknown("the step shows no input to count them in");
    if (is_shared) {
      return unknown(
          "ranks that send each other messages all embed tokens, of the same samples or "
          "of others: --" +
          what + "-per-step gives the " + what);
    }
    if (!degree) {
      return unknown("no process group says over how many ranks data is spread; --" + what +
                     "-per-step gives the " + what);
    }
    return double(of_rank) * double(*degree * shared) / step_s;
  };
  const int64_t samples = workload::counted_in(*sampled.workload, sampled.step).samples;
  projection.samples_per_s = rate("samples", samples, given.samples, 1);
  if (projection.samples_per_s && given.samples < 0) {
    const std::string& module = module_of_samples(*sampled.workload, sampled.step);
    guesses.push_back(
        {"samples",
         "counted from the first input of " + (module.empty() ? "the model" : "module " + module),
         "its leading dimension, or the second of torch.nn's own sequence-first modules; "
         "--samples-per-step gives them"});
  }
  const auto counted = workload::counted_in(*embedding.workload, embedding.step);
  projection.tokens_per_s = rate("tokens", counted.tokens, given.tokens, context);
  if (!projection.tokens_per_s || given.tokens >= 0 || counted.token_module < 0) return;
  const std::string& module = embedding.workload->modules[size_t(counted.token_module)];
  guesses.push_back({"tokens",
                     "counted from the first embedding, " +
                         (module.empty() ? "outside modules" : "of module " + module),
                     "--tokens-per-step gives them"});
}

namespace {

// What the site draws beside the servers, and the CO2 of all of it.
void add_site(const machine::Machine& machine, double chip_s, Projection& projection) {
  double energy_j = *projection.energy_j_per_step;
  if (const auto network_W = machine::network_power_per_chip_W(machine.fabric)) {
    projection.energy_network_j_per_step = chip_s * network_W->to_double();
    energy_j += *projection.energy_network_j_per_step;
  } else if (projection.chips_used > machine::pod_chips(machine) &&
             !(machine.pue.is_zero() && machine.grid_kg_per_kWh.is_zero())) {
    projection.guesses.push_back({"energy of the switches between servers", "not counted",
                                  "the machine file has no power of them"});
  }
  if (!machine.pue.is_zero()) {
    energy_j *= machine.pue.to_double();
    projection.energy_site_j_per_step = energy_j;
  }
  if (machine.grid_kg_per_kWh.is_zero()) return;
  projection.carbon_kg_per_step = energy_j / 3.6e6 * machine.grid_kg_per_kWh.to_double();
  if (machine.pue.is_zero()) {
    projection.guesses.push_back({"CO2 of cooling and losses of the site", "not counted",
                                  "no PUE is known: --set site.pue=1.2"});
  }
}

}  // namespace

void add_cost(const machine::Machine& machine, Projection& projection) {
  projection.instance_chips = machine.instance_chips;
  const double chip_s = double(projection.chips_used) * seconds(projection.step_ps);
  if (machine.price_per_chip_hour_usd.is_zero()) {
    projection.guesses.push_back(
        {"cost_usd_per_step", "unknown", "the machine file has no price of a chip"});
  } else {
    projection.price_usd_per_chip_hour = machine.price_per_chip_hour_usd.to_double();
    projection.cost_usd_per_step = chip_s * *projection.price_usd_per_chip_hour / 3600.0;
  }
  if (machine.power_per_chip_W.is_zero()) {
    projection.guesses.push_back(
        {"energy_j_per_step", "unknown", "the machine file has no power of a chip"});
  } else {
    projection.energy_j_per_step = chip_s * machine.power_per_chip_W.to_double();
    add_site(machine, chip_s, projection);
  }
}

const char* memory_kind_name(size_t storage_kind) {
  static const std::array<const char*, workload::kStorageKindCount> kNames{
      "parameters",    "gradients", "optimizer", "activations",
      "communication", "buffers",   "inputs",    "temporary"};
  return kNames[storage_kind];
}

void add_memory(const Case& of, const machine::Machine& machine, const Simulated& simulated,
                Projection& projection) {
  const int64_t ranks_per_chip = of.placement.ranks_per_chip;
  workload::MemoryPeak peak;
  for (size_t i = 0; i < of.roles.size(); ++i) {
    const CaseRole& role = of.roles[i];
    workload::Workload classified = *role.workload;
    workload::classify_storages(classified);
    const int32_t rank = simulated.cohorts.class_of_rank[size_t(role.workload->rank)];
    hold_for_copies(classified, *simulated.roles[i].program, *simulated.timeline,
                    simulated.timeline->first_task[size_t(rank)]);
    const workload::MemoryPeak mine = workload::replay_allocations(classified);
    projection.roles.push_back(
        {classified.role, role.ranks.text(), role.ranks.size(), mine.allocated_bytes});
    if (!projection.memory_role.empty() && mine.allocated_bytes <= peak.allocated_bytes) continue;
    projection.memory_role = classified.role;
    peak = mine;
  }
  projection.memory_peak_bytes = peak.allocated_bytes;
  for (size_t kind = 0; kind < peak.by_kind.size(); ++kind) {
    projection.memory_by_kind[memory_kind_name(kind)] = peak.by_kind[kind];
  }
  projection.memory_capacity_bytes = machine::rank_memory_bytes(machine, ranks_per_chip);
  projection.memory_reserved_bytes = machine.chip.hbm.reserved_bytes / ranks_per_chip;
  projection.fits = peak.allocated_bytes <= projection.memory_capacity_bytes;
  projection.memory_is_upper_bound = machine.chip.architecture != machine::Architecture::gpu;
}

}  // namespace trnsim::project
