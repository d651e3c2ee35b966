// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>
#include <map>

#include "fold/made.h"

namespace trnsim::fold {
namespace {

// The System of one block of each class: every rank of the job when all is one block.
class Maker {
 public:
  Maker(const Job& job, const Layout& layout, const Blocks& blocks, Profiles& profiles,
        bool has_all_links)
      : job_(job),
        layout_(layout),
        blocks_(blocks),
        profiles_(profiles),
        owners_(job, layout),
        has_all_links_(has_all_links),
        blocks_of_class_(blocks.representative.size()) {
    for (size_t block = 0; block < blocks.class_of.size(); ++block) {
      blocks_of_class_[size_t(blocks.class_of[block])].push_back(int32_t(block));
    }
  }

  Made make() {
    made_.system.roles.resize(job_.roles.size());
    number_communicators();
    make_ranks();
    for (const Family& family : layout_.families) {
      for (int32_t c = 0; c < (family.is_across ? 1 : classes()); ++c) {
        for (int32_t i = 0; i < family.count; ++i) make_communicator(family.first + i, c);
      }
    }
    make_links();
    made_.link_made.resize(index_of_link_.size());
    for (size_t link = 0; link < index_of_link_.size(); ++link) {
      const int32_t like = is_whole() ? int32_t(link) : link_like(int32_t(link));
      made_.link_made[link] = like < 0 ? -1 : index_of_link_[size_t(like)];
    }
    return std::move(made_);
  }

 private:
  int32_t classes() const { return int32_t(blocks_.representative.size()); }
  bool is_whole() const { return layout_.count == 1; }
  const Tile& tile(int32_t index) const { return layout_.tiles[size_t(index)]; }

  // A family's communicators stand together, class by class.
  void number_communicators() {
    int32_t next = 0;
    first_of_tile_.resize(layout_.tiles.size());
    step_of_tile_.resize(layout_.tiles.size());
    for (const Family& family : layout_.families) {
      for (int32_t i = 0; i < family.count; ++i) {
        first_of_tile_[size_t(family.first + i)] = next + i;
        step_of_tile_[size_t(family.first + i)] = family.is_across ? 0 : family.count;
      }
      next += family.count * (family.is_across ? 1 : classes());
    }
  }
  int32_t communicator(int32_t tile, int32_t c) const {
    return first_of_tile_[size_t(tile)] + c * step_of_tile_[size_t(tile)];
  }

  // In the System, whose ranks are in the order of the job's.
  int64_t rank_made(int32_t c, int64_t place) const {
    return Stripes{layout_.ranks.width, classes()}.at(c, place);
  }

  void make_ranks() {
    std::map<int64_t, const OddRank*> odd;
    for (const OddRank& at : job_.odd_ranks) odd[at.rank] = &at;
    made_.system.ranks.resize(size_t(classes() * layout_.size));
    for (int32_t c = 0; c < classes(); ++c) {
      for (int64_t place = 0; place < layout_.size; ++place) {
        const int64_t rank = layout_.ranks.at(blocks_.representative[size_t(c)], place);
        Rank& at = made_.system.ranks[size_t(rank_made(c, place))];
        at.role = layout_.role_of[size_t(place)];
        at.chip = int32_t(job_.placement.chip_of(rank));
        at.count = int64_t(blocks_of_class_[size_t(c)].size());
        if (const auto found = odd.find(rank); found != odd.end()) {
          at.factor = found->second->factor;
          at.start_ps = found->second->start_ps;
          at.changes = found->second->changes;
        }
        at.communicator_of_slot = layout_.tile_of_slot[size_t(place)];
        at.communicator_of_message = layout_.tile_of_message[size_t(place)];
        for (auto* table : {&at.communicator_of_slot, &at.communicator_of_message}) {
          for (int32_t& index : *table) index = index < 0 ? -1 : communicator(index, c);
        }
      }
    }
  }

  void make_communicator(int32_t index, int32_t c) {
    const Tile& of = tile(index);
    Communicator& made = made_.system.communicators.emplace_back();
    made.slot = of.slot;
    made.name = of.name;
    if (of.is_across) {
      std::vector<bool> seen(made_.system.ranks.size(), false);
      for (const int32_t rank : of.members) {
        const int32_t block_class = blocks_.class_of[size_t(layout_.ranks.block_of(rank))];
        const int64_t at = rank_made(block_class, layout_.ranks.place_of(rank));
        if (!seen[size_t(at)]) made.members.push_back(int32_t(at));
        seen[size_t(at)] = true;
      }
    } else {
      for (const int32_t place : of.members) {
        made.members.push_back(int32_t(rank_made(c, place)));
      }
    }
    if (of.is_message) {
      const auto ranks = layout_.ranks_of(of, blocks_.representative[size_t(c)]);
      made.name = "message " + std::to_string(ranks[0]) + ">" + std::to_string(ranks[1]);
    }
    plan(index, c);
  }

  void plan(int32_t index, int32_t c) {
    System& system = made_.system;
    const auto number = int32_t(system.communicators.size()) - 1;
    const int32_t role = system.ranks[size_t(system.communicators.back().members[0])].role;
    const lower::Program& program = *job_.roles[size_t(role)].program;
    auto& plan = system.plan.emplace_back(program.calls.size());
    const PhaseShapes& shapes = profiles_.shapes_of(index);
    const auto first_load = int32_t(made_.loads.size());
    if (!tile(index).calls.empty()) add_loads(index, c);
    for (const int32_t call : tile(index).calls) {
      const auto& of_phase = shapes.of_phase.at(call);
      for (size_t phase = 0; phase < of_phase.size(); ++phase) {
        plan[size_t(call)].push_back(int32_t(system.variables.size()));
        system.variables.push_back({number, call, int32_t(phase), 0, 0, {}, false});
        made_.load_of.push_back(first_load + of_phase[phase]);
      }
    }
  }

  // Of each shape, on the links of the System: the block's own, and the lowest of each class of
  // links above, with what all blocks of the class put on it.
  void add_loads(int32_t index, int32_t c) {
    const bool is_across = tile(index).is_across;
    const int32_t block = is_across ? 0 : blocks_.representative[size_t(c)];
    if (is_whole()) {
      const Profile profile = profiles_.trace(index, block);
      return add_loads(profile.sizes, profile.uses);
    }
    add_loads(profiles_.of(profiles_.first_like(index), block).sizes, uses_of(index, c));
  }

  // Ascending by link, and then by kind.
  std::vector<Profile::Use> uses_of(int32_t index, int32_t c) {
    const int32_t first = profiles_.first_like(index);
    if (!profiles_.are_places_alike() || !profiles_.leaves_pod(index)) return find_uses(index, c);
    const auto [found, is_new] = uses_of_first_.try_emplace({first, c});
    if (is_new) found->second = find_uses(first, c);
    std::vector<Profile::Use> uses = found->second;
    for (Profile::Use& use : uses) use.link = profiles_.moved(index, use.link);
    return uses;
  }

  std::vector<Profile::Use> find_uses(int32_t index, int32_t c) {
    const bool is_across = tile(index).is_across;
    const int32_t block = is_across ? 0 : blocks_.representative[size_t(c)];
    std::vector<Profile::Use> uses;
    const auto add = [&](int32_t of_block) {
      profiles_.visit(index, of_block, [&](const Profile::Use& use) {
        if (owners_.is_above(use.link)) {
          if (blocks_.lowest_like[size_t(use.link)] == use.link) uses.push_back(use);
          return;
        }
        const int32_t owner = owners_.of(use.link).block;
        if (!is_across && of_block != block) return;
        if (blocks_.representative[size_t(blocks_.class_of[size_t(owner)])] == owner) {
          uses.push_back(use);
        }
      });
    };
    add(block);
    if (!is_across && profiles_.leaves_pod(index)) {
      for (const int32_t other : blocks_of_class_[size_t(c)]) {
        if (other != block) add(other);
      }
      std::sort(uses.begin(), uses.end());
    }
    return uses;
  }

  void add_loads(const std::vector<FootprintSize>& sizes, const std::vector<Profile::Use>& uses) {
    const size_t first = made_.loads.size();
    for (const FootprintSize& size : sizes) made_.loads.push_back({size, {}});
    for (size_t i = 0, next = 0; i < uses.size(); i = next) {
      while (next < uses.size() && uses[next] == uses[i]) ++next;
      for (const auto& [shape, sends] : profiles_.sends_of(uses[i].kind)) {
        made_.loads[first + size_t(shape)].on.push_back({uses[i].link, sends, int64_t(next - i)});
      }
    }
  }

  // The one that was made for it: at its place in the lowest block of the class, or the lowest of
  // the links above that are alike; -1 for none.
  int32_t link_like(int32_t link) const {
    const int32_t block = owners_.of(link).block;
    if (block < 0) return blocks_.lowest_like[size_t(link)];
    const int32_t lowest = blocks_.representative[size_t(blocks_.class_of[size_t(block)])];
    return owners_.moved(link, lowest - block);
  }

  // All links of the topology, or those that are used, by id.
  void make_links() {
    const machine::Topology& topology = job_.topology;
    auto& index = index_of_link_;
    index.assign(size_t(topology.link_count()), has_all_links_ ? 0 : -1);
    for (const Load& load : made_.loads) {
      for (const Load::On& on : load.on) index[size_t(on.link)] = 0;
    }
    for (int32_t id = 0; id < topology.link_count(); ++id) {
      if (index[size_t(id)] < 0) continue;
      index[size_t(id)] = int32_t(made_.system.links.size());
      made_.system.links.push_back({topology.link_name(id), 0, topology.tier(id), {}});
      made_.link_of_made.push_back(id);
    }
    if (has_all_links_) return;
    for (Load& load : made_.loads) {
      for (Load::On& on : load.on) on.link = index[size_t(on.link)];
    }
  }

  const Job& job_;
  const Layout& layout_;
  const Blocks& blocks_;
  Profiles& profiles_;
  LinkOwners owners_;
  bool has_all_links_;
  std::vector<std::vector<int32_t>> blocks_of_class_;
  std::vector<int32_t> first_of_tile_, step_of_tile_;  // communicators of a tile, by class
  std::map<std::pair<int32_t, int32_t>, std::vector<Profile::Use>> uses_of_first_;  // and class
  std::vector<int32_t> index_of_link_;  // in the System, by link of the topology; -1 for none
  Made made_;
};

}  // namespace

Made make_blocks(const Job& job, const Layout& layout, const Blocks& blocks, Profiles& profiles,
                 bool has_all_links) {
  return Maker(job, layout, blocks, profiles, has_all_links).make();
}

namespace {

std::vector<LinkUse> weigh(const Load& load, int64_t critical) {
  std::vector<LinkUse> uses;
  uses.reserve(load.on.size());
  for (const Load::On& on : load.on) {
    const int64_t weight = on.communicators * weight_of(on.sends, critical);
    if (!uses.empty() && uses.back().link == on.link) {
      uses.back().weight += weight;
    } else {
      uses.push_back({on.link, weight});
    }
  }
  return uses;
}

}  // namespace

void complete(const Job& job, const Made& made, System& system) {
  const TierRates rates = rates_of(job.topology);
  system.speeds = job.machine.chip.interference;
  for (size_t role = 0; role < job.roles.size(); ++role) {
    system.roles[role] = job.roles[role].program;
  }
  for (size_t i = 0; i < system.links.size(); ++i) {
    system.links[i].rate = job.topology.link(made.link_of_made[i]).rate;
  }
  for (const auto& [link, changes] : job.changing_links) {
    const auto at = std::lower_bound(made.link_of_made.begin(), made.link_of_made.end(), link);
    if (at == made.link_of_made.end() || *at != link) continue;
    system.links[size_t(at - made.link_of_made.begin())].changes = changes;
  }
  std::vector<int64_t> criticals;  // by load
  std::vector<std::vector<LinkUse>> uses;
  for (const Load& load : made.loads) {
    criticals.push_back(critical_sends(load.size, rates));
    uses.push_back(weigh(load, criticals.back()));
  }
  for (size_t i = 0; i < system.variables.size(); ++i) {
    Variable& variable = system.variables[i];
    const Communicator& on = system.communicators[size_t(variable.communicator)];
    const int32_t role = system.ranks[size_t(on.members[0])].role;
    const lower::CallTemplate& call = system.roles[size_t(role)]->calls[size_t(variable.call)];
    const auto load = size_t(made.load_of[i]);
    const Variable sized = size_phase(call.phases[size_t(variable.phase)],
                                      made.loads[load].size.hops, criticals[load]);
    variable.bytes = sized.bytes;
    variable.latency_ps = sized.latency_ps;
    variable.uses = uses[load];
  }
  mark_private(system);
}

}  // namespace trnsim::fold
