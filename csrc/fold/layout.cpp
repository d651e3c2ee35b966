// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "workload/messages.h"

namespace trnsim::fold {
namespace {

using lower::CallTemplate;
using lower::Program;
using Members = std::vector<int32_t>;

class LayoutMaker {
 public:
  LayoutMaker(const Job& job, const std::vector<int32_t>& role_of_rank, const Stripes& ranks)
      : job_(job), role_of_rank_(role_of_rank) {
    layout_.size = job.rank_count / ranks.count;
    layout_.count = ranks.count;
    layout_.ranks = ranks;
  }

  std::optional<Layout> make() {
    for (int64_t at = 0; at < layout_.size; ++at) {
      layout_.role_of.push_back(role_of_rank_[size_t(layout_.ranks.at(0, at))]);
    }
    for (int64_t rank = 0; rank < job_.rank_count; ++rank) {
      if (role_of_rank_[size_t(rank)] != layout_.role_of[size_t(place(rank))]) return {};
    }
    for (const int32_t role : layout_.role_of) {
      const Program& program = program_of(role);
      layout_.tile_of_slot.emplace_back(program.groups.size(), -1);
      layout_.tile_of_message.emplace_back(has_messages(program) ? program.calls.size() : 0, -1);
    }
    for (size_t role = 0; role < job_.roles.size(); ++role) {
      const Program& program = program_of(int32_t(role));
      formed_.assign(program.groups.size(), false);
      for (size_t call = 0; call < program.calls.size(); ++call) {
        if (!form_family(int32_t(role), program.calls[call].group)) return {};
        const bool message = is_message(program.calls[call].kind);
        if (message && !form_messages(int32_t(role), int32_t(call))) return {};
      }
    }
    for (size_t tile = 0; tile < layout_.tiles.size(); ++tile) find_calls(int32_t(tile));
    return std::move(layout_);
  }

 private:
  const Program& program_of(int32_t role) const { return *job_.roles[size_t(role)].program; }
  bool is_whole() const { return layout_.count == 1; }
  int32_t place(int64_t rank) const { return int32_t(layout_.ranks.place_of(rank)); }
  int64_t block(int64_t rank) const { return layout_.ranks.block_of(rank); }

  static bool has_messages(const Program& program) {
    return std::any_of(program.calls.begin(), program.calls.end(),
                       [](const CallTemplate& call) { return is_message(call.kind); });
  }

  // Whether the ranks are inside a block, or hold the same places of all blocks; `places` are those
  // of the block of the captured rank.
  bool find_places(const std::vector<int64_t>& ranks, int64_t captured, Members& places,
                   bool& is_across) const {
    std::vector<std::vector<int32_t>> of_block(size_t(layout_.count));
    for (const int64_t rank : ranks) {
      if (rank < 0 || rank >= job_.rank_count) return false;
      of_block[size_t(block(rank))].push_back(place(rank));
    }
    places = of_block[size_t(block(captured))];
    if (places.size() == ranks.size()) return true;
    is_across = true;
    const auto sorted = [](Members of) {
      std::sort(of.begin(), of.end());
      return of;
    };
    return std::all_of(of_block.begin(), of_block.end(),
                       [&](const Members& of) { return sorted(of) == sorted(places); });
  }

  // Whether ranks are as far apart as their places.
  bool is_in_one_stripe(int64_t a, int64_t b) const {
    return a / layout_.ranks.width == b / layout_.ranks.width;
  }

  // How far the group is moved for each of its likes in the block; nothing when they do not tile.
  std::optional<std::vector<int32_t>> tile(int32_t role, const Members& places) const {
    int32_t least = -1;
    for (const int32_t at : places) {
      if (layout_.role_of[size_t(at)] == role && (least < 0 || at < least)) least = at;
    }
    std::vector<bool> covered(size_t(layout_.size), false);
    std::vector<int32_t> shifts;
    for (int32_t at = 0; at < layout_.size; ++at) {
      if (layout_.role_of[size_t(at)] != role || covered[size_t(at)]) continue;
      const int32_t shift = at - least;
      for (const int32_t member : places) {
        const int64_t moved = int64_t(member) + shift;
        if (moved < 0 || moved >= layout_.size) return {};
        if (!is_in_one_stripe(member, moved)) return {};
        if (layout_.role_of[size_t(member)] != layout_.role_of[size_t(moved)]) return {};
        if (layout_.role_of[size_t(member)] != role) continue;
        if (covered[size_t(moved)]) return {};
        covered[size_t(moved)] = true;
      }
      shifts.push_back(shift);
    }
    if (std::find(shifts.begin(), shifts.end(), 0) == shifts.end()) return {};
    return shifts;
  }

  // The same where the group's members in the role do not tile it, as where one rank of a group
  // plays another role: the groups of all ranks, of which those are kept that hold some of the
  // role.
  std::optional<std::vector<int32_t>> tile_all(int32_t role, const Members& places) const {
    const int32_t least = *std::min_element(places.begin(), places.end());
    std::vector<bool> covered(size_t(layout_.size), false);
    std::vector<int32_t> shifts;
    bool is_there = false;
    for (int32_t at = 0; at < layout_.size; ++at) {
      if (covered[size_t(at)]) continue;
      const int32_t shift = at - least;
      bool is_ours = false;
      for (const int32_t member : places) {
        const int64_t moved = int64_t(member) + shift;
        if (moved < 0 || moved >= layout_.size || covered[size_t(moved)]) return {};
        covered[size_t(moved)] = true;
        is_ours |= layout_.role_of[size_t(moved)] == role;
      }
      if (is_ours) shifts.push_back(shift);
      is_there |= shift == 0;
    }
    if (!is_there) return {};
    return shifts;
  }

  bool form_family(int32_t role, int32_t slot) {
    if (formed_[size_t(slot)]) return true;
    formed_[size_t(slot)] = true;
    const workload::Group& group = program_of(role).groups[size_t(slot)];
    std::vector<int64_t> ranks;
    for (int64_t i = 0; i < group.ranks.size(); ++i) ranks.push_back(group.ranks.rank_at(i));
    Members places;
    bool is_across = false;
    const bool fits = find_places(ranks, program_of(role).rank, places, is_across);
    auto shifts = fits ? tile(role, places) : std::nullopt;
    if (!shifts && is_whole() && fits) shifts = tile_all(role, places);
    if (!shifts) {
      TRN_CHECK(!is_whole(), simulate,
                "group '" + group.name + "' of ranks " + group.ranks.text() +
                    " does not tile the " + std::to_string(ranks_of_role(role)) + " ranks",
                "use groups of one shape that together hold every rank once");
      return false;
    }
    const std::string name = group.name.empty() ? "group " + std::to_string(slot) : group.name;
    if (!is_across) ranks.assign(places.begin(), places.end());
    Family family{int32_t(layout_.tiles.size()), 0, is_across};
    for (const int32_t shift : *shifts) {
      Members members;
      for (const int64_t rank : ranks) members.push_back(int32_t(rank) + shift);
      const int32_t index = tile_of(slot, is_across, std::move(members), name, role);
      for (const int32_t at : places) {
        if (layout_.role_of[size_t(at + shift)] != role) continue;
        layout_.tile_of_slot[size_t(at + shift)][size_t(slot)] = index;
      }
    }
    close(family);
    return true;
  }

  int64_t ranks_of_role(int32_t role) const {
    return std::count(role_of_rank_.begin(), role_of_rank_.end(), role);
  }

  void close(Family family) {
    family.count = int32_t(layout_.tiles.size()) - family.first;
    if (family.count > 0) layout_.families.push_back(family);
  }

  // The one that another role has formed already, or a new one. A role's own slots never share.
  int32_t tile_of(int32_t slot, bool is_across, Members members, const std::string& name,
                  int32_t role) {
    auto& [index, roles] = known_.try_emplace({is_across, members, name}).first->second;
    int32_t& seen = roles[role];
    if (size_t(seen) >= index.size()) {
      index.push_back(int32_t(layout_.tiles.size()));
      layout_.tiles.push_back({slot, false, is_across, std::move(members), name, {}});
    }
    return index[size_t(seen++)];
  }

  // The peer of the captured rank is so many places on in the group; so is everybody's.
  bool form_messages(int32_t role, int32_t call) {
    const Program& program = program_of(role);
    const CallTemplate& called = program.calls[size_t(call)];
    const workload::RankPattern& ranks = program.groups[size_t(called.group)].ranks;
    const int64_t count = ranks.size();
    const int64_t own = ranks.index_of(program.rank), peer = ranks.index_of(called.peer);
    TRN_CHECK(own >= 0 && peer >= 0, simulate,
              "a message of rank " + std::to_string(program.rank) + " with rank " +
                  std::to_string(called.peer) + " leaves its group " + ranks.text(),
              "send and receive inside one group");
    const int64_t distance = (peer - own + count) % count;
    Family family{int32_t(layout_.tiles.size()), 0, false};
    for (int32_t at = 0; at < layout_.size; ++at) {
      if (layout_.role_of[size_t(at)] != role) continue;
      const int32_t group = layout_.tile_of_slot[size_t(at)][size_t(called.group)];
      const int32_t other = peer_of(at, group, distance);
      if (other < 0) return false;
      const bool sends = called.kind == workload::CallKind::send;
      const int32_t from = sends ? at : other, to = sends ? other : at;
      const auto [found, is_new] =
          messages_.try_emplace({group, from, to, called.tag}, int32_t(layout_.tiles.size()));
      if (is_new) layout_.tiles.push_back({called.group, true, false, {from, to}, "", {}});
      layout_.tile_of_message[size_t(at)][size_t(call)] = found->second;
    }
    close(family);
    return true;
  }

  // The place of the member `distance` places on; -1 when it is in another block, or not at one
  // place for all blocks.
  int32_t peer_of(int32_t at, int32_t group, int64_t distance) {
    const Tile& tile = layout_.tiles[size_t(group)];
    const auto& index_of = indices(group);
    const auto size = int64_t(tile.members.size());
    if (!tile.is_across) {
      return tile.members[size_t((index_of.at(at) + distance) % size)];
    }
    int32_t peer = -1;
    for (int64_t block = 0; block < layout_.count; ++block) {
      const int64_t index = index_of.at(int32_t(layout_.ranks.at(block, at)));
      const int32_t other = tile.members[size_t((index + distance) % size)];
      if (this->block(other) != block) return -1;
      if (peer >= 0 && place(other) != peer) return -1;
      peer = place(other);
    }
    return peer;
  }

  // Index in members, by member.
  const std::map<int32_t, int64_t>& indices(int32_t group) {
    auto [found, is_new] = indices_.try_emplace(group);
    if (is_new) {
      const Members& members = layout_.tiles[size_t(group)].members;
      for (size_t i = 0; i < members.size(); ++i) found->second[members[i]] = int64_t(i);
    }
    return found->second;
  }

  void find_calls(int32_t index) {
    Tile& tile = layout_.tiles[size_t(index)];
    if (tile.members.size() < 2) return;
    const size_t first = size_t(layout_.place_of(tile, 0));
    const Program& program = program_of(layout_.role_of[first]);
    for (size_t call = 0; call < program.calls.size(); ++call) {
      const CallTemplate& called = program.calls[call];
      if (called.kind == workload::CallKind::recv) continue;
      const int32_t on = is_message(called.kind)
                             ? layout_.tile_of_message[first][call]
                             : layout_.tile_of_slot[first][size_t(called.group)];
      if (on == index) tile.calls.push_back(int32_t(call));
    }
  }

  const Job& job_;
  const std::vector<int32_t>& role_of_rank_;
  Layout layout_;
  std::vector<bool> formed_;  // by slot of the present role
  struct Known {
    std::vector<int32_t> tiles;       // of these members and this name, in order of creation
    std::map<int32_t, int32_t> seen;  // by role, how many of them its slots have taken
  };
  std::map<std::tuple<bool, Members, std::string>, Known> known_;
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, int32_t> messages_;
  std::map<int32_t, std::map<int32_t, int64_t>> indices_;
};

}  // namespace

std::vector<int32_t> Layout::ranks_of(const Tile& tile, int64_t block) const {
  std::vector<int32_t> found = tile.members;
  if (!tile.is_across) {
    for (int32_t& rank : found) rank = int32_t(ranks.at(block, rank));
  }
  return found;
}

std::vector<int32_t> roles_of_ranks(const Job& job) {
  std::vector<int32_t> roles(size_t(job.rank_count), -1);
  for (size_t role = 0; role < job.roles.size(); ++role) {
    const workload::RankPattern& ranks = job.roles[role].ranks;
    for (int64_t i = 0; i < ranks.size(); ++i) {
      const int64_t rank = ranks.rank_at(i);
      TRN_CHECK(rank >= 0 && rank < job.rank_count && roles[size_t(rank)] < 0, simulate,
                "rank " + std::to_string(rank) + " of role " + job.roles[role].program->role +
                    " is not one of " + std::to_string(job.rank_count) +
                    " ranks, or plays another role too",
                "give each rank one role");
      roles[size_t(rank)] = int32_t(role);
    }
  }
  const auto none = std::find(roles.begin(), roles.end(), -1);
  TRN_CHECK(none == roles.end(), simulate,
            "rank " + std::to_string(none - roles.begin()) + " plays no role",
            "give each rank one role");
  return roles;
}

void check_odd(const Job& job) {
  for (const OddRank& odd : job.odd_ranks) {
    TRN_CHECK(odd.rank >= 0 && odd.rank < job.rank_count, simulate,
              "there is no rank " + std::to_string(odd.rank),
              "ranks go from 0 to " + std::to_string(job.rank_count - 1));
  }
  for (const auto& [link, changes] : job.changing_links) {
    TRN_CHECK(link >= 0 && link < job.topology.link_count(), simulate,
              "there is no link " + std::to_string(link),
              "links go from 0 to " + std::to_string(job.topology.link_count() - 1));
  }
}

std::optional<Layout> lay_out(const Job& job, const std::vector<int32_t>& role_of_rank,
                              const Stripes& ranks) {
  return LayoutMaker(job, role_of_rank, ranks).make();
}

Layout lay_out_whole(const Job& job, const std::vector<int32_t>& role_of_rank) {
  return *lay_out(job, role_of_rank, {job.rank_count, 1});
}

namespace {

// Of as many pods as it takes, that take turns in each `pods`.
std::optional<Layout> smallest_blocks(const Job& job, const std::vector<int32_t>& role_of_rank,
                                      int64_t pods, int64_t pod_ranks) {
  for (int64_t pods_of_block = 1; pods_of_block < pods; ++pods_of_block) {
    if (pods % pods_of_block != 0) continue;
    auto layout = lay_out(job, role_of_rank, {pods_of_block * pod_ranks, pods / pods_of_block});
    if (layout) return layout;
  }
  return {};
}

// Whether the ranks of each role are consecutive, and as many as those of every other.
bool have_equal_parts(const std::vector<int32_t>& role_of_rank, int64_t roles) {
  const size_t part = role_of_rank.size() / size_t(roles);
  for (size_t rank = 1; rank < role_of_rank.size(); ++rank) {
    const bool is_new = role_of_rank[rank] != role_of_rank[rank - 1];
    if (is_new != (rank % part == 0)) return false;
  }
  return true;
}

}  // namespace

std::optional<Layout> find_blocks(const Job& job, const std::vector<int32_t>& role_of_rank) {
  const int64_t pods = job.topology.pod_count();
  const int64_t pod_ranks = job.topology.pod_chips() * job.placement.ranks_per_chip;
  if (job.rank_count != pods * pod_ranks) return {};
  if (auto layout = smallest_blocks(job, role_of_rank, pods, pod_ranks)) return layout;
  const auto roles = int64_t(job.roles.size());
  if (roles < 2 || pods % roles != 0 || !have_equal_parts(role_of_rank, roles)) return {};
  return smallest_blocks(job, role_of_rank, pods / roles, pod_ranks);
}

Messages::Messages(const Job& job) {
  const std::vector<int32_t> roles = roles_of_ranks(job);
  std::optional<Layout> layout = find_blocks(job, roles);
  if (!layout) layout = lay_out_whole(job, roles);
  layout_ = std::make_shared<const Layout>(std::move(*layout));
}

int64_t Messages::number_of(int64_t rank, int32_t call) const {
  const int64_t block = layout_->ranks.block_of(rank), place = layout_->ranks.place_of(rank);
  return block * int64_t(layout_->tiles.size()) +
         layout_->tile_of_message[size_t(place)][size_t(call)];
}

}  // namespace trnsim::fold
