// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>
#include <map>
#include <tuple>

#include "fold/expand.h"
#include "fold/system.h"

namespace trnsim::fold {
namespace {

using lower::CallTemplate;
using lower::PhaseTemplate;
using lower::Program;

// The translates of the captured rank's group that tile ranks [0, world). The smallest rank that is
// not covered yet can only be the smallest member of its group, so the tiling is unique.
std::vector<std::vector<int32_t>> tile_world(const workload::Group& group, int64_t world) {
  const auto fail = [&]() -> Error {
    return Error(ErrorKind::simulate,
                 "group '" + group.name + "' of ranks " + group.ranks.text() +
                     " does not tile the " + std::to_string(world) + " ranks",
                 "use groups of one shape that together hold every rank once");
  };
  std::vector<int64_t> members;
  for (int64_t i = 0; i < group.ranks.size(); ++i) members.push_back(group.ranks.rank_at(i));
  const int64_t least = *std::min_element(members.begin(), members.end());
  std::vector<std::vector<int32_t>> family;
  std::vector<bool> covered(size_t(world), false);
  bool has_captured = false;
  for (int64_t rank = 0; rank < world; ++rank) {
    if (covered[size_t(rank)]) continue;
    has_captured |= rank == least;
    auto& translate = family.emplace_back();
    for (const int64_t member : members) {
      const int64_t moved = member - least + rank;
      if (moved < 0 || moved >= world || covered[size_t(moved)]) throw fail();
      covered[size_t(moved)] = true;
      translate.push_back(int32_t(moved));
    }
  }
  if (!has_captured) throw fail();
  return family;
}

class Maker {
 public:
  Maker(const std::shared_ptr<const Program>& program, const Geometry& geometry, int64_t ranks)
      : program_(*program), geometry_(geometry) {
    system_.roles = {program};
    for (int32_t id = 0; id < geometry.topology.link_count(); ++id) {
      const machine::Link link = geometry.topology.link(id);
      system_.links.push_back(
          {geometry.topology.link_name(id), link.rate, int8_t(link.tier), {}, link.healthy_rate});
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Rank& at = system_.ranks.emplace_back();
      at.chip = int32_t(geometry.placement.chip_of(rank));
      at.communicator_of_slot.assign(program_.groups.size(), -1);
    }
  }

  System make() {
    for (size_t call = 0; call < program_.calls.size(); ++call) {
      const CallTemplate& called = program_.calls[call];
      form_family(called.group);
      if (is_message(called.kind)) form_messages(int32_t(call));
    }
    for (size_t index = 0; index < system_.communicators.size(); ++index) {
      for (size_t call = 0; call < program_.calls.size(); ++call) {
        plan_call(int32_t(index), int32_t(call));
      }
    }
    mark_private(system_);
    check_system(system_);
    return std::move(system_);
  }

 private:
  int32_t add_communicator(int32_t slot, std::vector<int32_t> members, const std::string& name) {
    system_.communicators.push_back({slot, std::move(members), name});
    system_.plan.emplace_back(program_.calls.size());
    return int32_t(system_.communicators.size()) - 1;
  }

  void form_family(int32_t slot) {
    if (system_.ranks[0].communicator_of_slot[size_t(slot)] >= 0) return;
    const workload::Group& group = program_.groups[size_t(slot)];
    const std::string name = group.name.empty() ? "group " + std::to_string(slot) : group.name;
    for (const auto& members : tile_world(group, int64_t(system_.ranks.size()))) {
      const int32_t index = add_communicator(slot, members, name);
      for (const int32_t rank : members) {
        system_.ranks[size_t(rank)].communicator_of_slot[size_t(slot)] = index;
      }
    }
  }

  // The peer of the captured rank is so many places on in the group; so is everybody's.
  void form_messages(int32_t call) {
    const CallTemplate& called = program_.calls[size_t(call)];
    const workload::RankPattern& ranks = program_.groups[size_t(called.group)].ranks;
    const int64_t count = ranks.size();
    const int64_t own = ranks.index_of(program_.rank), peer = ranks.index_of(called.peer);
    TRN_CHECK(own >= 0 && peer >= 0, simulate,
              "a message of rank " + std::to_string(program_.rank) + " with rank " +
                  std::to_string(called.peer) + " leaves its group " + ranks.text(),
              "send and receive inside one group");
    const bool sends = called.kind == workload::CallKind::send;
    for (size_t rank = 0; rank < system_.ranks.size(); ++rank) {
      Rank& at = system_.ranks[rank];
      at.communicator_of_message.resize(program_.calls.size(), -1);
      const auto members =
          system_.communicators[size_t(at.communicator_of_slot[size_t(called.group)])].members;
      const int64_t index =
          std::find(members.begin(), members.end(), int32_t(rank)) - members.begin();
      const int32_t other = members[size_t((index + peer - own + count) % count)];
      const int32_t from = sends ? int32_t(rank) : other, to = sends ? other : int32_t(rank);
      const auto key = std::tuple(called.group, from, to, called.tag);
      auto found = messages_.find(key);
      if (found == messages_.end()) {
        const std::string name = "message " + std::to_string(from) + ">" + std::to_string(to);
        found = messages_.emplace(key, add_communicator(called.group, {from, to}, name)).first;
      }
      at.communicator_of_message[size_t(call)] = found->second;
    }
  }

  bool plans(int32_t communicator, int32_t call) const {
    const CallTemplate& called = program_.calls[size_t(call)];
    const Communicator& on = system_.communicators[size_t(communicator)];
    if (called.kind == workload::CallKind::recv || on.members.size() < 2) return false;
    return communicator_of(system_, on.members[0], call) == communicator;
  }

  void plan_call(int32_t communicator, int32_t call) {
    if (!plans(communicator, call)) return;
    const CallTemplate& called = program_.calls[size_t(call)];
    const auto& ranks = program_.groups[size_t(called.group)].ranks;
    const int64_t root = called.peer < 0 ? 0 : std::max<int64_t>(0, ranks.index_of(called.peer));
    for (size_t phase = 0; phase < called.phases.size(); ++phase) {
      const Footprint& footprint = footprint_of(called.phases[phase], communicator, root);
      Variable variable = weigh_phase(called.phases[phase], footprint, system_.links);
      variable.communicator = communicator;
      variable.call = call;
      variable.phase = int32_t(phase);
      system_.plan[size_t(communicator)][size_t(call)].push_back(int32_t(system_.variables.size()));
      system_.variables.push_back(std::move(variable));
    }
  }

  // Routes do not depend on bytes: calls of one shape share them.
  const Footprint& footprint_of(const PhaseTemplate& phase, int32_t communicator, int64_t root) {
    const auto key =
        std::tuple(communicator, phase.pattern, phase.axis, phase.axes_mask, phase.distance, root);
    auto found = footprints_.find(key);
    if (found == footprints_.end()) {
      const auto& members = system_.communicators[size_t(communicator)].members;
      found = footprints_.emplace(key, trace_phase(phase, members, root, geometry_)).first;
    }
    return found->second;
  }

  const Program& program_;
  const Geometry& geometry_;
  System system_;
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, int32_t> messages_;
  std::map<std::tuple<int32_t, lower::Pattern, int8_t, uint8_t, int64_t, int64_t>, Footprint>
      footprints_;
};

}  // namespace

System make_system(std::shared_ptr<const Program> program, const machine::Machine& machine,
                   const machine::Topology& topology, const machine::Placement& placement,
                   int64_t used_ranks) {
  TRN_CHECK(used_ranks >= 1 && used_ranks <= placement.ranks, simulate,
            std::to_string(used_ranks) + " ranks do not fit a placement of " +
                std::to_string(placement.ranks),
            "use as many ranks as were placed, or 1 for a script without process groups");
  const Geometry geometry{topology, placement, machine::used_torus(machine, placement.chips)};
  return Maker(program, geometry, used_ranks).make();
}

}  // namespace trnsim::fold
