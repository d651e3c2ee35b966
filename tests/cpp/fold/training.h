// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Training jobs on pods under a fabric, for what goes from a Job to classes.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fold/job.h"
#include "simulate/scenes.h"

namespace trnsim::fold {

using lower::Pattern;
using lower::Scope;
using scenes::ProgramBuilder;
using workload::CallKind;
using workload::RankPattern;

// Pods of 2 x 2 x 2 chips under ToRs of 8, leaves of 4 ToRs and spines.
inline machine::Machine pods_of_8() {
  machine::Machine machine;
  machine.name = "toy";
  machine.server.chips = 8;
  machine.torus = {2, 2, 2};
  machine.torus_axis_Bps = {Rational{4'000'000'000, 1}, {4'000'000'000, 1}, {1'000'000'000, 1}};
  machine.chip.ranks_per_chip_allowed = {1, 2};
  machine.fabric.pods = 4096;
  machine.fabric.nic_Bps = Rational{2'000'000'000, 1};
  machine.fabric.port_Bps = Rational{3'000'000'000, 1};
  machine.fabric.tor = {8, 4, true, {}};
  machine.fabric.leaf = {4, 4, true, {}};
  machine.fabric.spine_ports = 4096;
  return machine;
}

inline Pattern any_pattern(uint64_t random) {
  constexpr Pattern kPatterns[] = {Pattern::ring,  Pattern::ring_both,  Pattern::exchange,
                                   Pattern::shift, Pattern::to_parents, Pattern::to_children};
  return kPatterns[random % std::size(kPatterns)];
}

// Replicas of `stages` pods: tensor parallel in a pod, messages from pod to pod, data parallel over
// all replicas, or half of it over pairs of them and half over every second one. The stages of a
// replica are neighbours, or the replicas of a stage.
struct Training {
  int64_t replicas = 4, stages = 1, ranks_per_chip = 1;
  bool in_pairs = false, over_world = false;
  bool are_replicas_neighbours = false;
  bool is_mixed = false;  // trees, shifts and uneven parts too
  uint64_t seed = 0;
  std::vector<machine::LinkFault> faults = {};
  std::vector<OddRank> odd_ranks = {};
  std::vector<std::pair<int32_t, std::vector<RateChange>>> changing_links = {};

  machine::Machine machine = pods_of_8();
  machine::Placement placement = {};
  std::unique_ptr<machine::Topology> topology = nullptr;

  int64_t pod() const { return 8 * ranks_per_chip; }
  int64_t to_next_replica() const { return are_replicas_neighbours ? pod() : stages * pod(); }
  int64_t to_next_stage() const { return are_replicas_neighbours ? replicas * pod() : pod(); }
  int64_t ranks() const { return replicas * stages * pod(); }

  Job job() {
    placement.chips = replicas * stages * 8;
    placement.ranks_per_chip = ranks_per_chip;
    placement.ranks = ranks();
    if (!topology) topology = machine::make_topology(machine, placement.chips, {faults, 0});
    Job job{machine, *topology, placement, ranks(), {}, odd_ranks, changing_links};
    for (int64_t stage = 0; stage < stages; ++stage) {
      const RankPattern played{
          stage * to_next_stage(), {{1, pod()}, {to_next_replica(), replicas}}, {}};
      job.roles.push_back({program(stage), played});
    }
    return job;
  }

  std::shared_ptr<const lower::Program> program(int64_t stage) const {
    std::mt19937_64 random(seed);  // the same templates in every stage
    ProgramBuilder builder;
    const int32_t tensor = builder.queue(lower::QueueKind::tensor, 0);
    const int32_t stream = builder.queue(lower::QueueKind::collective, 0);
    const int32_t send = builder.queue(lower::QueueKind::send, 0);
    const int32_t recv = builder.queue(lower::QueueKind::recv, 0);
    const int64_t replica = to_next_replica(), next = to_next_stage();
    const int64_t index = int64_t(random() % uint64_t(pod()));
    const int64_t number = int64_t(random() % uint64_t(replicas));
    const int64_t first = stage * next + index, own = first + replica * number;
    builder.program.rank = own;
    const auto group = [&](const std::string& name, const RankPattern& ranks) {
      builder.program.groups.push_back({name, ranks});
      return int32_t(builder.program.groups.size()) - 1;
    };
    std::vector<int32_t> calls;
    const auto call = [&](CallKind kind, int32_t slot, Pattern pattern, int64_t peer,
                          Scope scope = Scope::group) {
      lower::CallTemplate made = scenes::all_reduce(slot, 64);
      made.kind = kind;
      made.peer = int32_t(peer);
      made.phases.resize(1);
      made.phases[0].pattern = pattern;
      made.phases[0].scope = scope;
      made.phases[0].axis = int8_t(random() % 3);
      made.phases[0].distance = 1 + int64_t(random() % 3);
      made.phases[0].bytes = random() % 5 == 0 ? 0 : 1 + int64_t(random() % 100);
      if (pattern == Pattern::uneven || pattern == Pattern::uneven_back) {
        const int64_t members = builder.program.groups[size_t(slot)].ranks.size();
        for (int64_t i = 0; i < members; ++i) made.phases[0].parts.push_back(int64_t(random() % 4));
      }
      made.phases[0].steps = 3;
      made.phases[0].step_ps = int64_t(random() % 1000);
      made.phases[0].hop_ps = int64_t(random() % 3);
      made.phases[0].in_pod_sends = 1 + made.phases[0].bytes % 3;
      made.phases[0].fabric_sends = 1 + made.phases[0].bytes / 3 % 2;
      return builder.call_template(made);
    };
    const int32_t in_pod = group("tp", {own / pod() * pod(), {{1, pod()}}, {}});
    for (const Pattern pattern :
         {Pattern::ring_both, Pattern::axis_ring, Pattern::exchange, Pattern::axis_all}) {
      calls.push_back(call(CallKind::all_reduce, in_pod, pattern, -1));
    }
    if (is_mixed && seed % 8 == 0) {
      for (const Pattern pattern : {Pattern::uneven, Pattern::uneven_back}) {
        calls.push_back(call(CallKind::all_to_all, in_pod, pattern, -1));
      }
    }
    if (in_pairs) {
      const int64_t pair = first + number / 2 * 2 * replica, odd = first + number % 2 * replica;
      const int32_t near = group("near", {pair, {{replica, 2}}, {}});
      const int32_t far = group("far", {odd, {{2 * replica, replicas / 2}}, {}});
      for (const int32_t slot : {near, far}) {
        calls.push_back(call(CallKind::all_gather, slot, Pattern::ring, -1));
      }
    } else {
      const int32_t data = group("dp", {first, {{replica, replicas}}, {}});
      calls.push_back(call(CallKind::all_reduce, data, Pattern::ring_both, -1));
      for (int i = 0; i < (is_mixed ? 2 : 0); ++i) {
        const auto scope = random() % 2 == 0 ? Scope::group : Scope::across;
        calls.push_back(call(CallKind::all_reduce, data, any_pattern(random()), -1, scope));
      }
      if (is_mixed && seed % 16 == 1) {
        for (const Pattern pattern : {Pattern::uneven, Pattern::uneven_back}) {
          calls.push_back(call(CallKind::all_to_all, data, pattern, -1));
        }
      }
    }
    if (over_world) {
      const int32_t world = group("", {0, {{1, ranks()}}, {}});
      calls.push_back(call(CallKind::broadcast, world, Pattern::one_to_all, 0));
      calls.push_back(call(CallKind::barrier, world, Pattern::ring, -1));
      for (const Scope scope : {Scope::pod, Scope::across}) {
        calls.push_back(call(CallKind::all_reduce, world, any_pattern(random()), -1, scope));
      }
    }
    const int32_t line = group("pp", {own - stage * next, {{next, stages}}, {}});
    const int32_t sent = call(CallKind::send, line, Pattern::message, own + next);
    const int32_t received = call(CallKind::recv, line, Pattern::message, own - next);
    auto& templates = builder.program.calls;
    templates[size_t(received)].phases = templates[size_t(sent)].phases;
    const bool sends = stage + 1 < stages, receives = stage > 0;
    if (!receives) templates.pop_back();
    if (!sends) {
      if (receives) std::swap(templates[size_t(sent)], templates[size_t(received)]);
      templates.pop_back();
    }
    if (receives) builder.call(recv, sends ? received : sent);
    for (const int32_t each : calls) {
      const int32_t before = builder.task(tensor, int64_t(random() % 5000) + 10 * stage);
      builder.call(stream, each, {scenes::after(before)});
    }
    if (sends) builder.call(send, sent);
    return builder.build();
  }
};

// Of every kind, with something odd, slow, dead or changing in most.
inline Training random_training(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t count) { return int64_t(random() % uint64_t(count)); };
  Training training;
  training.seed = seed;
  training.stages = 1 + below(4);
  training.in_pairs = below(3) == 0;
  training.replicas = training.in_pairs ? 4 + 2 * below(5) : 2 + below(12);
  training.ranks_per_chip = 1 + below(2);
  training.over_world = below(3) == 0;
  training.is_mixed = true;
  if (below(4) == 0) training.machine.fabric.tor.is_blocking = false;
  if (below(4) == 0) training.machine.fabric.leaf.is_blocking = false;
  const int64_t paths = below(6);
  if (paths < 2)
    training.machine.fabric.paths = paths == 0 ? machine::Paths::hashed : machine::Paths::sprayed;
  if (below(2) == 0) training.machine.fabric.tor.up_ports = 8;  // a plane for each chip of a pod
  for (int64_t i = below(3); i > 0; --i) {
    training.odd_ranks.push_back({below(training.ranks()), 1 << 15, below(2) * 777, {}});
    if (below(2) == 0) training.odd_ranks.back().changes = {{900, 3 << 15}};
  }
  const std::string chip = std::to_string(below(training.replicas * training.stages * 8));
  const bool is_sprayed = training.machine.fabric.paths == machine::Paths::sprayed;
  const std::vector<std::string> places{"nic up " + chip, "nic down " + chip,
                                        is_sprayed ? "tor 1>leaves 0" : "tor 1>leaf 1",
                                        is_sprayed ? "leaves 0>tor 0" : "leaf 2>tor 0"};
  const int64_t place = below(8);
  if (place < 4 && training.machine.fabric.tor.is_blocking) {
    const int64_t thirds = below(3);  // a wide link has none beside it
    const bool is_wide = is_sprayed && place > 1;
    training.faults.push_back({places[size_t(place)], Rational{is_wide ? thirds + 1 : thirds, 3}});
  }
  if (below(4) == 0) {
    training.changing_links.push_back({int32_t(below(48)), {{500, 1'000'000'000}}});
  }
  training.are_replicas_neighbours = below(2) == 0;
  return training;
}

}  // namespace trnsim::fold
