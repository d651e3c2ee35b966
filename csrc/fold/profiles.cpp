// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/profiles.h"

#include <algorithm>

namespace trnsim::fold {

Profiles::Profiles(const Job& job, const Layout& layout)
    : job_(job),
      layout_(layout),
      geometry_{job.topology, job.placement, machine::used_torus(job.machine, job.placement.chips)},
      tracer_(geometry_),
      profiles_(layout.tiles.size()),
      kind_of_link_(size_t(job.topology.link_count()), 0),
      used_(kind_of_link_.size()) {
  for (const Tile& tile : layout.tiles) leaves_pod_.push_back(has_many_pods(tile));
  find_likes();
}

bool Profiles::has_many_pods(const Tile& tile) const {
  for (size_t i = 1; i < tile.members.size(); ++i) {
    if (job_.topology.pod_of(chip_of(tile, i)) != job_.topology.pod_of(chip_of(tile, 0))) {
      return true;
    }
  }
  return false;
}

const PhaseShapes& Profiles::shapes_of(int32_t index) {
  const Tile& tile = layout_.tiles[size_t(index)];
  const int32_t role = layout_.role_of[size_t(layout_.place_of(tile, 0))];
  const auto [found, is_new] = shapes_.try_emplace({role, tile.calls});
  PhaseShapes& of = found->second;
  if (!is_new) return of;
  const lower::Program& program = *job_.roles[size_t(role)].program;
  std::map<std::pair<Shape, bool>, int32_t> known;
  for (const int32_t call : tile.calls) {
    const lower::CallTemplate& called = program.calls[size_t(call)];
    const workload::RankPattern& ranks = program.groups[size_t(called.group)].ranks;
    const int64_t root = called.peer < 0 ? 0 : std::max<int64_t>(0, ranks.index_of(called.peer));
    std::vector<int32_t>& of_phase = of.of_phase[call];
    for (const lower::PhaseTemplate& phase : called.phases) {
      const std::pair<Shape, bool> shape{shape_of(phase, root), phase.bytes > 0};
      const auto [at, is_unseen] = known.try_emplace(shape, int32_t(of.shapes.size()));
      if (is_unseen) of.shapes.push_back(shape);
      of_phase.push_back(at->second);
    }
  }
  return of;
}

void Profiles::find_likes() {
  for (int32_t tile = 0; tile < int32_t(layout_.tiles.size()); ++tile) {
    likes_.push_back({tile, {}});
  }
  if (layout_.count == 1) return;
  // Only tiles with the same shapes whose first members are in one pod can be alike.
  std::map<std::pair<const PhaseShapes*, int64_t>, std::vector<int32_t>> firsts;
  for (int32_t tile = 0; tile < int32_t(layout_.tiles.size()); ++tile) {
    const Tile& of = layout_.tiles[size_t(tile)];
    if (of.calls.empty() || !leaves_pod(tile)) continue;
    const int64_t pod = job_.topology.pod_of(chip_of(of, 0));
    auto& earlier = firsts[{&shapes_of(tile), pod}];
    for (const int32_t first : earlier) {
      const auto shift = shift_between(layout_.tiles[size_t(first)], of);
      if (!shift) continue;
      likes_[size_t(tile)] = {first, shift};
      break;
    }
    if (likes_[size_t(tile)].first == tile) earlier.push_back(tile);
  }
  find_shifts();
}

void Profiles::find_shifts() {
  const auto is_between_switches = [&](int32_t link) {
    return job_.topology.tier(link) >= machine::Tier::tor_up;
  };
  for (const auto& [link, factor] : job_.topology.faults()) {
    if (is_between_switches(link)) return;
  }
  for (const auto& [link, changes] : job_.changing_links) {
    if (is_between_switches(link)) return;
  }
  using Counts = std::map<machine::LinkShift, int64_t>;  // tiles by shift
  std::map<int32_t, Counts> of_first;
  std::map<int64_t, machine::LinkShift> of_plane;
  for (int32_t tile = 0; tile < int32_t(layout_.tiles.size()); ++tile) {
    const Tile& of = layout_.tiles[size_t(tile)];
    if (of.calls.empty() || !leaves_pod(tile)) continue;
    const machine::LinkShift shift = likes_[size_t(tile)].shift.value_or(machine::LinkShift{});
    ++of_first[first_like(tile)][shift];
    for (int64_t block = 0; block < (of.is_across ? 1 : layout_.count); ++block) {
      for (size_t i = 0; i < of.members.size(); ++i) {
        const int32_t chip = chip_of(of, i, block);
        if (of_plane.try_emplace(job_.topology.plane_to(chip), shift).first->second != shift)
          return;
      }
    }
  }
  if (of_first.empty()) return;
  const Counts& some = of_first.begin()->second;
  for (const auto& [first, counts] : of_first) {
    const auto is_like = [&](const auto& a, const auto& b) {
      return a.first == b.first && a.second == counts.begin()->second;
    };
    if (!std::equal(counts.begin(), counts.end(), some.begin(), some.end(), is_like)) return;
  }
  for (const auto& [shift, count] : some) {
    if (shift != machine::LinkShift{}) shifts_.push_back(shift);
  }
}

// Of tiles with at most one member a pod, all at one place, that stand in the same pods.
std::optional<machine::LinkShift> Profiles::shift_between(const Tile& from, const Tile& to) const {
  if (from.is_across != to.is_across || from.members.size() != to.members.size()) return {};
  const machine::Topology& topology = job_.topology;
  const auto at = [&](const Tile& tile, size_t i) {
    return topology.position_in_pod(chip_of(tile, i));
  };
  for (size_t i = 0; i < from.members.size(); ++i) {
    const bool same_pod = topology.pod_of(chip_of(from, i)) == topology.pod_of(chip_of(to, i));
    if (!same_pod || at(from, i) != at(from, 0) || at(to, i) != at(to, 0)) return {};
  }
  std::optional<machine::LinkShift> shift;
  for (int64_t block = 0; block < (from.is_across ? 1 : layout_.count); ++block) {
    for (size_t i = 0; i < from.members.size(); ++i) {
      const auto own = topology.shift_between(chip_of(from, i, block), chip_of(to, i, block));
      if (!own || (shift && *own != *shift)) return {};
      shift = own;
    }
  }
  return shift;
}

const Profile& Profiles::of(int32_t tile, int32_t block) {
  auto& of_block = profiles_[size_t(tile)];
  if (of_block.empty()) {
    of_block.resize(layout_.tiles[size_t(tile)].is_across ? 1 : size_t(layout_.count));
  }
  auto& profile = of_block[size_t(block)];
  if (!profile) profile = trace(tile, block);
  return *profile;
}

Profile Profiles::trace(int32_t index, int32_t block) {
  const PhaseShapes& shapes = shapes_of(index);
  const std::vector<int32_t> members = layout_.ranks_of(layout_.tiles[size_t(index)], block);
  Profile profile;
  size_t size = 0;
  for (size_t i = 0; i < shapes.shapes.size(); ++i) {
    const auto& [shape, has_bytes] = shapes.shapes[i];
    const Footprint footprint = tracer_.trace(shape, members);
    profile.sizes.push_back(footprint);
    if (!has_bytes) continue;
    for (const LinkLoad& load : footprint.loads) {
      int32_t& kind = kind_of_link_[size_t(load.link)];
      if (kind == 0) {
        used_.add(load.link);
        ++size;
      }
      kind = kinds_.extend(kind, {int64_t(i), load.sends, 0});
    }
  }
  profile.uses.reserve(size);
  used_.take([&](int32_t link) {
    profile.uses.push_back({link, std::exchange(kind_of_link_[size_t(link)], 0)});
  });
  return profile;
}

const std::vector<std::pair<int32_t, int64_t>>& Profiles::sends_of(int32_t kind) {
  const auto [found, is_new] = sends_.try_emplace(kind);
  auto& sends = found->second;
  for (int32_t left = kind; is_new && left != 0;) {
    const auto [before, values] = kinds_.last_of(left);
    sends.emplace_back(int32_t(values[0]), values[1]);
    left = before;
  }
  if (is_new) std::reverse(sends.begin(), sends.end());
  return sends;
}

}  // namespace trnsim::fold
