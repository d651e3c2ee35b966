// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// From a job to its cohorts, two ways: every rank, then the fold, and the classes directly.
//
// The job: replicas of a pipeline of pods, 4 x 4 x 4 chips each, under a Clos of ToRs, leaves and
// spines. A pod is a tensor-parallel group (8 calls of three patterns), replicas are data-parallel
// (4 calls, rings both ways), stages exchange messages forward and back. With `odd` one chip and
// one NIC are slow.
//
//   fold PODS STAGES ODD WAY    prints CSV: classes of ranks, CPU time of each part, peak memory
//                               (WAY: ranks or classes)
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "fold/job.h"
#include "simulate/timeline.h"

namespace {

using namespace trnsim;
using lower::Pattern;
using workload::CallKind;
using workload::RankPattern;

constexpr int64_t kPod = 64;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

double peak_MiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) / 1024;
}

machine::Machine make_machine() {
  machine::Machine machine;
  machine.name = "pods";
  machine.server.chips = 16;
  machine.torus = {4, 4, 4};
  for (Rational& axis : machine.torus_axis_Bps) axis = Rational{64'000'000'000, 1};
  machine.chip.ranks_per_chip_allowed = {1};
  machine.fabric.pods = 8192;
  machine.fabric.nic_Bps = machine.fabric.port_Bps = Rational{25'000'000'000, 1};
  machine.fabric.tor = {32, 32, true};
  machine.fabric.leaf = {64, 64, true};
  machine.fabric.spine_ports = 256;
  return machine;
}

std::shared_ptr<const lower::Program> make_program(int64_t stage, int64_t stages, int64_t ranks) {
  auto program = std::make_shared<lower::Program>();
  program->role = "stage " + std::to_string(stage);
  program->rank = stage * kPod;
  program->queues = {{lower::QueueKind::tensor, 0},
                     {lower::QueueKind::collective, 0},
                     {lower::QueueKind::send, 0},
                     {lower::QueueKind::recv, 0}};
  const int64_t replica = stages * kPod;
  program->groups = {{"tp", {program->rank, {{1, kPod}}, {}}},
                     {"dp", {program->rank, {{replica, ranks / replica}}, {}}},
                     {"pp", {0, {{kPod, stages}}, {}}}};
  const auto call = [&](CallKind kind, int32_t group, Pattern pattern, int64_t peer, int32_t tag) {
    lower::CallTemplate made;
    made.kind = kind;
    made.group = group;
    made.bytes = (1 << 20) + 64 * tag;
    made.peer = int32_t(peer);
    made.tag = tag;
    made.phases.resize(1);
    made.phases[0].pattern = pattern;
    made.phases[0].bytes = made.bytes;
    made.phases[0].steps = 1;
    made.phases[0].step_ps = 1'000'000;
    made.phases[0].distance = pattern == Pattern::exchange ? 1 : 0;
    program->calls.push_back(made);
    lower::Task task;
    task.kind = lower::TaskKind::call;
    task.queue = kind == CallKind::send ? 2 : kind == CallKind::recv ? 3 : 1;
    task.call = int32_t(program->calls.size()) - 1;
    program->tasks.push_back(task);
  };
  const Pattern patterns[] = {Pattern::ring_both, Pattern::axis_ring, Pattern::exchange};
  for (const bool forward : {true, false}) {
    const int64_t next = program->rank + kPod, previous = program->rank - kPod;
    const bool is_first = forward ? stage == 0 : stage + 1 == stages;
    const bool is_last = forward ? stage + 1 == stages : stage == 0;
    const int32_t tag = forward ? 0 : 1;
    if (!is_first) call(CallKind::recv, 2, Pattern::message, forward ? previous : next, tag);
    for (int32_t i = 0; i < 4; ++i) {
      lower::Task compute;
      compute.duration_ps = 10'000'000;
      program->tasks.push_back(compute);
      call(CallKind::all_reduce, 0, patterns[i % 3], -1, i);
    }
    if (!is_last) call(CallKind::send, 2, Pattern::message, forward ? next : previous, tag);
  }
  for (int32_t i = 0; i < 4; ++i) call(CallKind::all_reduce, 1, Pattern::ring_both, -1, i);
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "fold PODS STAGES ODD WAY\n");
    return 2;
  }
  const int64_t pods = std::atoll(argv[1]), stages = std::atoll(argv[2]), ranks = pods * kPod;
  const bool is_odd = std::atoi(argv[3]) != 0, by_rank = std::string(argv[4]) == "ranks";
  const machine::Machine machine = make_machine();
  const double begin = cpu_seconds();
  machine::Conditions conditions;
  if (is_odd) conditions.faults.push_back({"nic up " + std::to_string(ranks / 2 + 7), {1, 2}});
  const auto topology = machine::make_topology(machine, ranks, conditions);
  machine::Placement placement;
  placement.chips = placement.ranks = ranks;
  fold::Job job{machine, *topology, placement, ranks, {}};
  if (is_odd) job.odd_ranks.push_back({5, 70000, 0, {}});
  for (int64_t stage = 0; stage < stages; ++stage) {
    job.roles.push_back({make_program(stage, stages, ranks),
                         {stage * kPod, {{1, kPod}, {stages * kPod, pods / stages}}, {}}});
  }
  fold::Cohorts cohorts;
  double made = cpu_seconds();
  if (by_rank) {
    const auto every = std::make_shared<const fold::System>(fold::make_system(job));
    made = cpu_seconds();
    cohorts = fold::fold_system(every);
  } else {
    cohorts = fold::make_cohorts(job);
  }
  const double folded = cpu_seconds();
  const auto timeline = simulate::simulate_step(cohorts.system, {});
  const double end = cpu_seconds();
  std::printf(
      "way,ranks,stages,odd,classes,make_cpu_s,fold_cpu_s,simulate_cpu_s,peak_MiB,timeline_hash\n");
  std::printf("%s,%ld,%ld,%d,%zu,%.3f,%.3f,%.3f,%.0f,%016lx\n", argv[4], long(ranks), long(stages),
              int(is_odd), cohorts.system->ranks.size(), made - begin, folded - made, end - folded,
              peak_MiB(), static_cast<unsigned long>(timeline.hash));
  return 0;
}
