// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// One collective on a machine, or several at once, fluid and in steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fold/job.h"
#include "lower/collectives.h"
#include "lower/make.h"
#include "lower/ring_steps.h"
#include "scenes.h"

namespace trnsim::rings {

struct Called {
  workload::CallKind kind = workload::CallKind::all_reduce;
  int64_t bytes = 1 << 24;
  std::string algorithm = "ring";
  workload::RankPattern group = {};  // of the captured rank; all like it call too
};

struct Scene : Called {
  int64_t captured = 0;
  machine::Machine machine;
  machine::Placement placement;
  std::vector<Called> beside = {};  // each on a stream of its own
  bool in_a_row = false;            // all on one stream, in order
  int64_t computes_ps = 0;          // before the calls: what a factor stretches
  std::vector<fold::OddRank> odd_ranks = {};
  std::vector<machine::LinkFault> faults = {};
};

inline machine::Placement on_chips(int64_t chips, int64_t ranks_per_chip = 1) {
  machine::Placement placement;
  placement.chips = chips;
  placement.ranks_per_chip = ranks_per_chip;
  placement.ranks = chips * ranks_per_chip;
  return placement;
}

// All ranks of the first chips in one group.
inline Scene all_of(const machine::Machine& machine, int64_t chips, const std::string& algorithm,
                    int64_t ranks_per_chip = 1) {
  Scene scene;
  scene.machine = machine;
  scene.placement = on_chips(chips, ranks_per_chip);
  scene.algorithm = algorithm;
  scene.group = {0, {{1, scene.placement.ranks}}, {}};
  return scene;
}

inline lower::Program fluid_program(const Scene& scene) {
  scenes::ProgramBuilder builder;
  builder.program.rank = scene.captured;
  const int32_t first_stream = builder.queue(lower::QueueKind::collective, 0);
  const int32_t engine = builder.queue(lower::QueueKind::tensor, 0);
  const int32_t computed = builder.task(engine, scene.computes_ps);
  std::vector<Called> calls{scene};
  calls.insert(calls.end(), scene.beside.begin(), scene.beside.end());
  for (const Called& called : calls) {
    workload::Call call;
    call.kind = called.kind;
    call.group = int32_t(builder.program.groups.size());
    call.bytes = called.bytes;
    call.peer = 0;
    builder.program.groups.push_back({"group " + std::to_string(call.group), called.group});
    const auto shapes = lower::shapes_of(called.group, scene.machine, scene.placement);
    const int32_t made =
        builder.call_template(lower::make_call(call, 0, shapes, scene.machine, called.algorithm));
    const int32_t stream = scene.in_a_row || call.group == 0
                               ? first_stream
                               : builder.queue(lower::QueueKind::collective, call.group);
    builder.call(stream, made, {scenes::after(computed)});
  }
  return builder.program;
}

inline std::shared_ptr<const fold::System> system_of(const Scene& scene, lower::Program program) {
  const auto topology =
      machine::make_topology(scene.machine, scene.placement.chips, {scene.faults, 0});
  fold::Job job = fold::one_role(std::make_shared<const lower::Program>(std::move(program)),
                                 scene.machine, *topology, scene.placement, scene.placement.ranks);
  job.odd_ranks = scene.odd_ranks;
  return std::make_shared<const fold::System>(fold::make_system(job));
}
inline std::shared_ptr<const fold::System> fluid(const Scene& scene) {
  return system_of(scene, fluid_program(scene));
}
inline std::shared_ptr<const fold::System> stepped(const Scene& scene) {
  return system_of(scene, lower::in_steps(fluid_program(scene), scene.machine, scene.placement));
}

inline int64_t makespan(const std::shared_ptr<const fold::System>& system) {
  return simulate::simulate_step(system, {}).makespan_ps;
}

}  // namespace trnsim::rings
