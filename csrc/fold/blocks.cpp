// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/blocks.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <unordered_map>

#include "base/hash.h"

namespace trnsim::fold {
namespace {

// A number for each sequence of values: the same for equal ones, by value. Blocks that are alike
// ask the same again and again, so the last answers are kept at hand.
class Histories {
 public:
  using Values = std::array<int64_t, 3>;
  int32_t extend(int32_t history, const Values& values) {
    const Key key{history, values};
    Answer& recent = recent_[Hash()(key) % recent_.size()];
    if (recent.next == 0 || recent.key != key) {
      recent = {key, known_.try_emplace(key, int32_t(known_.size()) + 1).first->second};
    }
    return recent.next;
  }

 private:
  struct Key {
    int32_t history = 0;
    Values values = {};
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return mix64(uint64_t(key.values[0]) * 0x9e3779b97f4a7c15u +
                   uint64_t(key.values[1]) * 0xbf58476d1ce4e5b9u +
                   uint64_t(key.values[2]) * 0x94d049bb133111ebu + uint64_t(key.history));
    }
  };
  struct Answer {
    Key key;
    int32_t next = 0;
  };
  std::unordered_map<Key, int32_t, Hash> known_;
  std::array<Answer, 4096> recent_;
};

// What one communicator of a shape uses, in each block or in all of them at once.
struct Item {
  bool is_across = false;
  std::vector<const Footprint*> footprints;
  std::vector<int32_t> first_above;  // in uses: links above the blocks have the highest ids
  std::span<const LinkUse> above(int32_t block) const {
    return std::span(footprints[size_t(block)]->uses).subspan(size_t(first_above[size_t(block)]));
  }
};

class Classer {
 public:
  Classer(const Job& job, const Layout& layout, Traces& traces)
      : job_(job),
        layout_(layout),
        traces_(traces),
        owners_(job, layout),
        blocks_(size_t(layout.count), 0),
        links_(size_t(job.topology.link_count()), 0),
        sums_(links_.size(), 0) {}

  std::optional<Blocks> find() {
    find_odd();
    result_.leaves_pod.assign(layout_.tiles.size(), 0);
    std::set<std::pair<int32_t, Shape>> seen;
    for (size_t tile = 0; tile < layout_.tiles.size(); ++tile) {
      result_.leaves_pod[tile] = leaves_pod(layout_.tiles[tile]);
      if (!result_.leaves_pod[tile]) continue;
      for (const int32_t call : layout_.tiles[tile].calls) {
        const size_t phases = phases_of(int32_t(tile), call);
        for (size_t phase = 0; phase < phases; ++phase) {
          const Shape shape = traces_.shape_of_phase(int32_t(tile), call, phase);
          if (!seen.insert({int32_t(tile), shape}).second) continue;
          if (!add_item(int32_t(tile), shape)) return {};
        }
      }
    }
    refine();
    number_classes();
    return std::move(result_);
  }

 private:
  size_t phases_of(int32_t tile, int32_t call) const {
    const int64_t first = layout_.tiles[size_t(tile)].members[0] % layout_.size;
    const int32_t role = layout_.role_of[size_t(first)];
    return job_.roles[size_t(role)].program->calls[size_t(call)].phases.size();
  }

  bool leaves_pod(const Tile& tile) const {
    if (tile.is_across) return true;
    const auto pod = [&](int32_t rank) {
      return job_.topology.pod_of(int32_t(job_.placement.chip_of(rank)));
    };
    return std::any_of(tile.members.begin(), tile.members.end(),
                       [&](int32_t rank) { return pod(rank) != pod(tile.members[0]); });
  }

  // Blocks with something odd in them are told apart from all others.
  void find_odd() {
    const auto mark = [&](int32_t block) {
      if (block >= 0) blocks_[size_t(block)] = histories_.extend(0, {-1, block, 0});
    };
    for (const OddRank& odd : job_.odd_ranks) mark(int32_t(odd.rank / layout_.size));
    for (const auto& [link, factor] : job_.topology.faults()) mark(owners_.of(link).block);
    for (size_t i = 0; i < job_.changing_links.size(); ++i) {
      const int32_t link = job_.changing_links[i].first, owner = owners_.of(link).block;
      mark(owner);
      if (owner >= 0) continue;
      links_[size_t(link)] = histories_.extend(0, {-2, int64_t(i), 0});
    }
  }

  void extend_block(int32_t block, const Histories::Values& values) {
    blocks_[size_t(block)] = histories_.extend(blocks_[size_t(block)], values);
  }
  void extend_link(int32_t link, const Histories::Values& values) {
    int32_t& history = links_[size_t(link)];
    if (history == 0) history = histories_.extend(0, {-3, job_.topology.link(link).rate, 0});
    history = histories_.extend(history, values);
  }

  bool add_item(int32_t tile, const Shape& shape) {
    const bool is_across = layout_.tiles[size_t(tile)].is_across;
    const int64_t number = int64_t(items_.size());
    Item& item = items_.emplace_back();
    item.is_across = is_across;
    for (int32_t block = 0; block < (is_across ? 1 : layout_.count); ++block) {
      const Footprint& footprint = traces_.of(tile, shape, block);
      item.footprints.push_back(&footprint);
      if (!is_across) extend_block(block, {-4, footprint.hops, footprint.critical_count});
      size_t i = 0;
      for (; i < footprint.uses.size(); ++i) {
        const LinkUse& use = footprint.uses[i];
        const LinkOwners::Place owner = owners_.of(use.link);
        if (owner.block < 0) break;
        if (!is_across && owner.block != block) return false;
        extend_block(owner.block, {number, owner.place, use.weight});
      }
      item.first_above.push_back(int32_t(i));
      if (!is_across) continue;
      for (const LinkUse& use : item.above(0)) extend_link(use.link, {number, 0, use.weight});
    }
    return true;
  }

  // Links follow from the classes of blocks, so that nothing more happens when these stay.
  void refine() {
    for (size_t before = 0; before != count(blocks_);) {
      before = count(blocks_);
      refine_links();
      refine_blocks();
    }
  }

  static size_t count(std::vector<int32_t> classes) {
    std::sort(classes.begin(), classes.end());
    return size_t(std::unique(classes.begin(), classes.end()) - classes.begin());
  }
  // Sums over the blocks of a class, class by class in the order of their lowest block.
  void refine_links() {
    std::map<int32_t, std::vector<int32_t>> members;
    std::vector<int32_t> order;
    for (size_t block = 0; block < blocks_.size(); ++block) {
      auto& of = members[blocks_[block]];
      if (of.empty()) order.push_back(blocks_[block]);
      of.push_back(int32_t(block));
    }
    std::vector<int32_t> touched;
    for (size_t number = 0; number < items_.size(); ++number) {
      const Item& item = items_[number];
      if (item.is_across) continue;
      for (size_t c = 0; c < order.size(); ++c) {
        for (const int32_t block : members[order[c]]) {
          for (const LinkUse& use : item.above(block)) {
            if (sums_[size_t(use.link)] == 0) touched.push_back(use.link);
            sums_[size_t(use.link)] += use.weight;
          }
        }
        for (const int32_t link : touched) {
          extend_link(link, {int64_t(number), int64_t(c), sums_[size_t(link)]});
          sums_[size_t(link)] = 0;
        }
        touched.clear();
      }
    }
  }

  // The set of classes of links above that each communicator of the block sees.
  void refine_blocks() {
    std::vector<int32_t> classes;
    for (size_t number = 0; number < items_.size(); ++number) {
      const Item& item = items_[number];
      if (item.is_across) continue;
      for (int32_t block = 0; block < layout_.count; ++block) {
        classes.clear();
        for (const LinkUse& use : item.above(block)) {
          classes.push_back(links_[size_t(use.link)]);
        }
        std::sort(classes.begin(), classes.end());
        classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
        extend_block(block, {-5, int64_t(number), 0});
        for (const int32_t c : classes) extend_block(block, {-6, c, 0});
      }
    }
  }

  void number_classes() {
    std::unordered_map<int32_t, int32_t> blocks, links;
    for (size_t block = 0; block < blocks_.size(); ++block) {
      const auto [found, is_new] =
          blocks.try_emplace(blocks_[block], int32_t(result_.representative.size()));
      if (is_new) result_.representative.push_back(int32_t(block));
      result_.class_of.push_back(found->second);
    }
    result_.lowest_like.assign(links_.size(), -1);
    for (size_t link = 0; link < links_.size(); ++link) {
      if (links_[link] == 0) continue;
      result_.lowest_like[link] = links.try_emplace(links_[link], int32_t(link)).first->second;
    }
  }

  const Job& job_;
  const Layout& layout_;
  Traces& traces_;
  LinkOwners owners_;
  Histories histories_;
  std::vector<int32_t> blocks_, links_;  // history of each; 0 = nothing is known
  std::vector<int64_t> sums_;            // by link, scratch
  std::vector<Item> items_;
  Blocks result_;
};

}  // namespace

Traces::Traces(const Job& job, const Layout& layout)
    : layout_(layout),
      job_(job),
      geometry_{job.topology, job.placement, machine::used_torus(job.machine, job.placement.chips)},
      tracer_(geometry_) {}

const Footprint& Traces::of(int32_t tile, const Shape& shape, int32_t block) {
  auto& of_block = footprints_[{tile, shape}];
  const Tile& traced = layout_.tiles[size_t(tile)];
  if (of_block.empty()) of_block.resize(traced.is_across ? 1 : size_t(layout_.count));
  auto& footprint = of_block[size_t(block)];
  if (!footprint) footprint = tracer_.trace(shape, layout_.ranks_of(traced, block));
  return *footprint;
}

Shape Traces::shape_of_phase(int32_t tile, int32_t call, size_t phase) const {
  const int64_t first = layout_.tiles[size_t(tile)].members[0] % layout_.size;
  const lower::Program& program = *job_.roles[size_t(layout_.role_of[size_t(first)])].program;
  const lower::CallTemplate& called = program.calls[size_t(call)];
  const workload::RankPattern& ranks = program.groups[size_t(called.group)].ranks;
  const int64_t root = called.peer < 0 ? 0 : std::max<int64_t>(0, ranks.index_of(called.peer));
  return shape_of(called.phases[phase], root);
}

LinkOwners::LinkOwners(const Job& job, const Layout& layout)
    : topology_(job.topology),
      fabric_from_(topology_.pod_count() * topology_.pod_link_count()),
      above_from_(topology_.link_count()) {
  for (int64_t low = fabric_from_; low < above_from_;) {
    const int64_t middle = (low + above_from_) / 2;
    if (chip_of(middle) >= 0) {
      low = middle + 1;
    } else {
      above_from_ = middle;
    }
  }
  const int64_t chips = topology_.chip_count();
  const int64_t links_of_chip = (above_from_ - fabric_from_) / chips;
  for (int64_t i = 0; i < links_of_chip; ++i) {
    TRN_ASSERT(chip_of(fabric_from_ + i) == 0 && chip_of(above_from_ - 1 - i) == chips - 1,
               "a fabric numbers the links of chips first, chip by chip");
  }
  const int64_t chips_of_block = layout.size / job.placement.ranks_per_chip;
  links_of_block_ = chips_of_block * topology_.pod_link_count() / topology_.pod_chips();
  fabric_links_of_block_ = chips_of_block * links_of_chip;
}

int64_t LinkOwners::chip_of(int64_t link) const {
  const machine::Link at = topology_.link(int32_t(link));
  return std::max({at.from_node, at.to_node, -1});
}

LinkOwners::Place LinkOwners::of(int32_t link) const {
  if (link >= above_from_) return {};
  if (link < fabric_from_) return {int32_t(link / links_of_block_), link % links_of_block_};
  constexpr int64_t kFabric = int64_t(1) << 40;
  const int64_t index = link - fabric_from_;
  return {int32_t(index / fabric_links_of_block_), kFabric + index % fabric_links_of_block_};
}

int32_t LinkOwners::moved(int32_t link, int64_t blocks) const {
  return int32_t(link + blocks * (link < fabric_from_ ? links_of_block_ : fabric_links_of_block_));
}

Blocks one_block(const Layout& layout) {
  return {{0}, {0}, {}, std::vector<uint8_t>(layout.tiles.size(), 0)};
}

std::optional<Blocks> class_blocks(const Job& job, const Layout& layout, Traces& traces) {
  return Classer(job, layout, traces).find();
}

}  // namespace trnsim::fold
