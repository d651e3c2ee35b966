// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>
#include <map>
#include <tuple>

#include "fold/blocks.h"
#include "fold/job.h"
#include "fold/refine.h"

namespace trnsim::fold {
namespace {

// The System of one block of each class: every rank of the job when all is one block.
class Maker {
 public:
  Maker(const Job& job, const Layout& layout, const Blocks& blocks, Traces& traces,
        bool has_all_links)
      : job_(job),
        layout_(layout),
        blocks_(blocks),
        traces_(traces),
        owners_(job, layout),
        has_all_links_(has_all_links),
        blocks_of_class_(blocks.representative.size()) {
    for (size_t block = 0; block < blocks.class_of.size(); ++block) {
      blocks_of_class_[size_t(blocks.class_of[block])].push_back(int32_t(block));
    }
  }

  System make() {
    for (const JobRole& role : job_.roles) system_.roles.push_back(role.program);
    number_communicators();
    make_ranks();
    for (const Family& family : layout_.families) {
      for (int32_t c = 0; c < (family.is_across ? 1 : classes()); ++c) {
        for (int32_t i = 0; i < family.count; ++i) make_communicator(family.first + i, c);
      }
    }
    make_links();
    mark_private(system_);
    check_system(system_);
    return std::move(system_);
  }

  // Of each variable of the System made, what its bytes and latency follow from.
  const std::vector<FootprintSize>& sizes() const { return sizes_; }

  // By link of the topology: the one of the System made that stands for it, -1 where nobody uses
  // it.
  std::vector<int32_t> links_made() const {
    std::vector<int32_t> made(index_of_link_.size());
    for (size_t link = 0; link < made.size(); ++link) {
      const int32_t like = is_whole() ? int32_t(link) : link_like(int32_t(link));
      made[link] = like < 0 ? -1 : index_of_link_[size_t(like)];
    }
    return made;
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

  void make_ranks() {
    std::map<int64_t, const OddRank*> odd;
    for (const OddRank& at : job_.odd_ranks) odd[at.rank] = &at;
    for (int32_t c = 0; c < classes(); ++c) {
      for (int64_t place = 0; place < layout_.size; ++place) {
        const int64_t rank = blocks_.representative[size_t(c)] * layout_.size + place;
        Rank& at = system_.ranks.emplace_back();
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
    Communicator& made = system_.communicators.emplace_back();
    made.slot = of.slot;
    made.name = of.name;
    if (of.is_across) {
      std::vector<bool> seen(system_.ranks.size(), false);
      for (const int32_t rank : of.members) {
        const int64_t block_class = blocks_.class_of[size_t(rank / layout_.size)];
        const int64_t at = block_class * layout_.size + rank % layout_.size;
        if (!seen[size_t(at)]) made.members.push_back(int32_t(at));
        seen[size_t(at)] = true;
      }
    } else {
      for (const int32_t place : of.members) {
        made.members.push_back(int32_t(c * layout_.size) + place);
      }
    }
    if (of.is_message) {
      const auto ranks = layout_.ranks_of(of, blocks_.representative[size_t(c)]);
      made.name = "message " + std::to_string(ranks[0]) + ">" + std::to_string(ranks[1]);
    }
    plan(index, c);
  }

  void plan(int32_t index, int32_t c) {
    const auto number = int32_t(system_.communicators.size()) - 1;
    const int32_t role = system_.ranks[size_t(system_.communicators.back().members[0])].role;
    const lower::Program& program = *system_.roles[size_t(role)];
    auto& plan = system_.plan.emplace_back(program.calls.size());
    std::map<Shape, std::vector<LinkUse>> uses;
    for (const int32_t call : tile(index).calls) {
      const auto& phases = program.calls[size_t(call)].phases;
      for (size_t phase = 0; phase < phases.size(); ++phase) {
        const Shape shape = traces_.shape_of_phase(index, call, phase);
        const int32_t block = tile(index).is_across ? 0 : blocks_.representative[size_t(c)];
        const FootprintSize size = traces_.of(index, shape, block);
        Variable variable = size_phase(phases[phase], size);
        variable.communicator = number;
        variable.call = call;
        variable.phase = int32_t(phase);
        if (variable.bytes > 0) {
          const auto [found, is_new] = uses.try_emplace(shape);
          if (is_new) found->second = uses_of(index, shape, c);
          variable.uses = found->second;
        }
        plan[size_t(call)].push_back(int32_t(system_.variables.size()));
        system_.variables.push_back(std::move(variable));
        sizes_.push_back(size);
      }
    }
  }

  // Weights on the links of the System: the block's own, and the lowest of each class of links
  // above, with what all blocks of the class put on it.
  std::vector<LinkUse> uses_of(int32_t index, const Shape& shape, int32_t c) {
    const bool is_across = tile(index).is_across;
    const int32_t block = is_across ? 0 : blocks_.representative[size_t(c)];
    const Footprint& own = traces_.of(index, shape, block);
    if (is_whole()) return own.uses;
    std::vector<LinkUse> uses;
    std::map<int32_t, int64_t> above;
    const auto add = [&](const Footprint& footprint) {
      for (const LinkUse& use : footprint.uses) {
        if (blocks_.lowest_like[size_t(use.link)] == use.link) above[use.link] += use.weight;
      }
    };
    for (const LinkUse& use : own.uses) {
      const int32_t owner = owners_.of(use.link).block;
      if (owner >= 0 && blocks_.representative[size_t(blocks_.class_of[size_t(owner)])] == owner) {
        uses.push_back(use);
      }
    }
    if (is_across) {
      add(own);
    } else if (blocks_.leaves_pod[size_t(index)]) {
      for (const int32_t other : blocks_of_class_[size_t(c)]) add(traces_.of(index, shape, other));
    }
    for (const auto& [link, weight] : above) uses.push_back({link, weight});
    std::sort(uses.begin(), uses.end(),
              [](const LinkUse& a, const LinkUse& b) { return a.link < b.link; });
    return uses;
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
    for (const Variable& variable : system_.variables) {
      for (const LinkUse& use : variable.uses) index[size_t(use.link)] = 0;
    }
    for (int32_t id = 0; id < topology.link_count(); ++id) {
      if (index[size_t(id)] < 0) continue;
      const machine::Link link = topology.link(id);
      index[size_t(id)] = int32_t(system_.links.size());
      system_.links.push_back(
          {topology.link_name(id), link.rate, int8_t(link.tier), {}, link.healthy_rate});
    }
    for (const auto& [link, changes] : job_.changing_links) {
      if (index[size_t(link)] < 0) continue;
      system_.links[size_t(index[size_t(link)])].changes = changes;
    }
    if (has_all_links_) return;
    for (Variable& variable : system_.variables) {
      for (LinkUse& use : variable.uses) use.link = index[size_t(use.link)];
    }
  }

  const Job& job_;
  const Layout& layout_;
  const Blocks& blocks_;
  Traces& traces_;
  LinkOwners owners_;
  bool has_all_links_;
  std::vector<std::vector<int32_t>> blocks_of_class_;
  std::vector<int32_t> first_of_tile_, step_of_tile_;  // communicators of a tile, by class
  std::vector<int32_t> index_of_link_;  // in the System, by link of the topology; -1 for none
  System system_;
  std::vector<FootprintSize> sizes_;
};

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

// Blocks of whole pods, the smallest that the job has.
std::optional<Layout> find_blocks(const Job& job, const std::vector<int32_t>& roles) {
  const int64_t pods = job.topology.pod_count();
  const int64_t pod_ranks = job.topology.pod_chips() * job.placement.ranks_per_chip;
  if (job.rank_count != pods * pod_ranks) return {};
  for (int64_t pods_of_block = 1; pods_of_block < pods; ++pods_of_block) {
    if (pods % pods_of_block != 0) continue;
    auto layout = lay_out(job, roles, pods_of_block * pod_ranks);
    if (layout) return layout;
  }
  return {};
}

}  // namespace

System make_system(const Job& job) {
  check_odd(job);
  const Layout layout = *lay_out(job, roles_of_ranks(job), job.rank_count);
  Traces traces(job, layout);
  return Maker(job, layout, one_block(layout), traces, true).make();
}

namespace {

// Whether topologies of the same number of chips have the same links, rates and routes.
bool has_same_network(const machine::Machine& a, const machine::Machine& b) {
  const auto tier = [](const machine::SwitchTier& t) {
    return std::tuple(t.down_ports, t.up_ports, t.is_blocking);
  };
  const auto of = [&](const machine::Machine& m) {
    const machine::Fabric& f = m.fabric;
    return std::tuple(
        std::tuple(m.server.chips, m.scale_up, m.torus, m.torus_axis_Bps, m.switch_port_Bps,
                   m.switch_multicasts, m.hypercube_axes, m.hypercube_Bps),
        std::tuple(f.pods, f.nic_Bps, f.port_Bps, f.rails, f.has_tor, tier(f.tor), tier(f.leaf),
                   f.spine_ports, f.is_hashed));
  };
  return of(a) == of(b);
}

// Whether two Programs call alike: they may differ in durations, bytes and latencies.
bool calls_alike(const lower::Program& a, const lower::Program& b) {
  const auto phase_alike = [](const lower::PhaseTemplate& x, const lower::PhaseTemplate& y) {
    return shape_of(x, 0) == shape_of(y, 0) && (x.bytes == 0) == (y.bytes == 0);
  };
  const auto call_alike = [&](const lower::CallTemplate& x, const lower::CallTemplate& y) {
    return std::tie(x.kind, x.group, x.peer, x.tag) == std::tie(y.kind, y.group, y.peer, y.tag) &&
           std::equal(x.phases.begin(), x.phases.end(), y.phases.begin(), y.phases.end(),
                      phase_alike);
  };
  return a.rank == b.rank && a.groups == b.groups &&
         std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(), call_alike);
}

}  // namespace

Mould::Mould(const Job& job)
    : machine_(job.machine),
      placement_(job.placement),
      rank_count_(job.rank_count),
      faults_(job.topology.faults()),
      roles_(job.roles),
      odd_ranks_(job.odd_ranks),
      changing_links_(job.changing_links) {
  check_odd(job);
  const std::vector<int32_t> roles = roles_of_ranks(job);
  std::optional<Layout> layout = find_blocks(job, roles);
  std::optional<Traces> traces;
  std::optional<Blocks> blocks;
  if (layout) {
    traces.emplace(job, *layout);
    blocks = class_blocks(job, *layout, *traces);
  }
  if (!blocks) {
    layout = lay_out(job, roles, job.rank_count);
    traces.emplace(job, *layout);
    blocks = one_block(*layout);
  }
  Maker maker(job, *layout, *blocks, *traces, false);
  made_ = maker.make();
  sizes_ = maker.sizes();
  link_made_ = maker.links_made();
  block_size_ = layout->size;
  class_of_block_ = blocks->class_of;
}

bool Mould::fits(const Job& job) const {
  return job.rank_count == rank_count_ && job.placement.chips == placement_.chips &&
         job.placement.ranks_per_chip == placement_.ranks_per_chip &&
         job.topology.faults() == faults_ && has_same_network(job.machine, machine_) &&
         job.odd_ranks == odd_ranks_ && job.changing_links == changing_links_ &&
         std::equal(job.roles.begin(), job.roles.end(), roles_.begin(), roles_.end(),
                    [](const JobRole& a, const JobRole& b) {
                      return a.ranks == b.ranks && calls_alike(*a.program, *b.program);
                    });
}

Cohorts Mould::cast(const Job& job) const {
  TRN_ASSERT(fits(job), "a mould serves jobs of one shape");
  auto system = std::make_shared<System>(made_);
  for (size_t role = 0; role < system->roles.size(); ++role) {
    system->roles[role] = job.roles[role].program;
  }
  for (size_t i = 0; i < system->variables.size(); ++i) {
    Variable& variable = system->variables[i];
    const Communicator& on = system->communicators[size_t(variable.communicator)];
    const int32_t role = system->ranks[size_t(on.members[0])].role;
    const lower::CallTemplate& call = system->roles[size_t(role)]->calls[size_t(variable.call)];
    const Variable sized = size_phase(call.phases[size_t(variable.phase)], sizes_[i]);
    variable.bytes = sized.bytes;
    variable.latency_ps = sized.latency_ps;
  }
  check_system(*system);
  Cohorts cohorts = fold_system(std::move(system), 64, false);
  std::vector<int32_t> class_of_rank, class_of_link;
  class_of_rank.reserve(size_t(rank_count_));
  for (int64_t rank = 0; rank < rank_count_; ++rank) {
    const int64_t block_class = class_of_block_[size_t(rank / block_size_)];
    const int64_t at = block_class * block_size_ + rank % block_size_;
    class_of_rank.push_back(cohorts.class_of_rank[size_t(at)]);
  }
  class_of_link.reserve(link_made_.size());
  for (const int32_t made : link_made_) {
    class_of_link.push_back(made < 0 ? -1 : cohorts.class_of_link[size_t(made)]);
  }
  return {std::move(cohorts.system), std::move(class_of_rank), {}, std::move(class_of_link)};
}

Cohorts make_cohorts(const Job& job) { return Mould(job).cast(job); }

Messages::Messages(const Job& job) {
  const std::vector<int32_t> roles = roles_of_ranks(job);
  std::optional<Layout> layout = find_blocks(job, roles);
  if (!layout) layout = lay_out(job, roles, job.rank_count);
  layout_ = std::make_shared<const Layout>(std::move(*layout));
}

int64_t Messages::number_of(int64_t rank, int32_t call) const {
  const int64_t block = rank / layout_->size, place = rank % layout_->size;
  return block * int64_t(layout_->tiles.size()) +
         layout_->tile_of_message[size_t(place)][size_t(call)];
}

Job one_role(std::shared_ptr<const lower::Program> program, const machine::Machine& machine,
             const machine::Topology& topology, const machine::Placement& placement,
             int64_t used_ranks) {
  TRN_CHECK(used_ranks >= 1 && used_ranks <= placement.ranks, simulate,
            std::to_string(used_ranks) + " ranks do not fit a placement of " +
                std::to_string(placement.ranks),
            "use as many ranks as were placed, or 1 for a script without process groups");
  const workload::RankPattern all{0, {{1, used_ranks}}, {}};
  return {machine, topology, placement, used_ranks, {{std::move(program), all}}};
}

System make_system(std::shared_ptr<const lower::Program> program, const machine::Machine& machine,
                   const machine::Topology& topology, const machine::Placement& placement,
                   int64_t used_ranks) {
  return make_system(one_role(std::move(program), machine, topology, placement, used_ranks));
}

}  // namespace trnsim::fold
