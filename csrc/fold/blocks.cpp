// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/blocks.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace trnsim::fold {
namespace {

using Use = Profile::Use;

class Classer {
 public:
  Classer(const Job& job, const Layout& layout, Profiles& profiles)
      : job_(job),
        layout_(layout),
        profiles_(profiles),
        owners_(job, layout),
        blocks_(size_t(layout.count), 0),
        links_(size_t(job.topology.link_count()), 0),
        told_(blocks_.size()) {}

  std::optional<Blocks> find() {
    find_odd();
    for (int32_t tile = 0; tile < int32_t(layout_.tiles.size()); ++tile) {
      if (!profiles_.leaves_pod(tile)) continue;
      if (profiles_.are_places_alike() && profiles_.first_like(tile) != tile) continue;
      if (layout_.tiles[size_t(tile)].is_across) {
        look_across(tile);
      } else {
        if (!look_inside(tile)) return {};
      }
    }
    refine();
    number_classes();
    return std::move(result_);
  }

 private:
  // Blocks with something odd in them are told apart from all others.
  void find_odd() {
    const auto mark = [&](int32_t block) {
      if (block >= 0) blocks_[size_t(block)] = histories_.extend(0, {-1, block, 0});
    };
    for (const OddRank& odd : job_.odd_ranks) mark(int32_t(layout_.ranks.block_of(odd.rank)));
    for (const auto& [link, factor] : job_.topology.faults()) mark(owners_.of(link).block);
    for (size_t i = 0; i < job_.changing_links.size(); ++i) {
      const int32_t link = job_.changing_links[i].first, owner = owners_.of(link).block;
      mark(owner);
      if (owner >= 0) continue;
      links_[size_t(link)] = histories_.extend(first_of(link), {-2, int64_t(i), 0});
    }
  }

  // Tells blocks apart by what told_ says of each, and forgets it.
  void tell_apart(const Histories::Values& by) {
    const bool are_alike =
        std::all_of(told_.begin(), told_.end(), [&](const auto& of) { return of == told_[0]; });
    for (size_t block = 0; block < blocks_.size(); ++block) {
      auto& told = told_[block];
      if (!are_alike) {
        int32_t& history = blocks_[block];
        history = histories_.extend(history, by);
        for (const auto& values : told) history = histories_.extend(history, values);
      }
      told.clear();
    }
  }
  void extend_link(int32_t link, const Histories::Values& values) {
    int32_t& history = links_[size_t(link)];
    if (history == 0) history = first_of(link);
    history = histories_.extend(history, values);
  }
  // Its rate, whatever the rate of its tier.
  int32_t first_of(int32_t link) {
    const int32_t of_tier = histories_.extend(0, {-3, int64_t(job_.topology.tier(link)), 0});
    const auto fault = job_.topology.faults().find(link);
    if (fault == job_.topology.faults().end()) return of_tier;
    return histories_.extend(of_tier, {-4, fault->second.numerator, fault->second.denominator});
  }

  // A tile that is like an earlier one tells the same blocks apart.
  void look_across(int32_t tile) {
    const bool is_first = profiles_.first_like(tile) == tile;
    profiles_.visit(tile, 0, [&](const Use& use) {
      const LinkOwners::Place owner = owners_.of(use.link);
      if (owner.block < 0) {
        extend_link(use.link, {-5, tile, use.kind});
      } else if (is_first) {
        told_[size_t(owner.block)].push_back({owner.place, use.kind, 0});
      }
    });
    if (is_first) tell_apart({-6, tile, 0});
  }

  // False when it uses links of another block.
  bool look_inside(int32_t tile) {
    inside_.push_back(tile);
    const bool is_first = profiles_.first_like(tile) == tile;
    bool stays = true;
    for (int32_t block = 0; block < layout_.count && is_first; ++block) {
      auto& told = told_[size_t(block)];
      const Profile& profile = profiles_.of(tile, block);
      for (const FootprintSize& size : profile.sizes) {
        told.push_back({size.hops, 0, 0});
        for (const int64_t sends : size.most_sends) told.push_back({sends, 0, 0});
      }
      for (const Use& use : profile.uses) {
        const LinkOwners::Place owner = owners_.of(use.link);
        if (owner.block < 0) continue;
        stays &= owner.block == block;
        told.push_back({owner.place, use.kind, 1});
      }
    }
    if (is_first) tell_apart({-6, tile, 0});
    return stays;
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

  // What the blocks of a class send, class by class in the order of their lowest block.
  void refine_links() {
    std::unordered_map<int32_t, size_t> index;
    std::vector<std::vector<int32_t>> members;
    for (size_t block = 0; block < blocks_.size(); ++block) {
      const auto [found, is_new] = index.try_emplace(blocks_[block], members.size());
      if (is_new) members.emplace_back();
      members[found->second].push_back(int32_t(block));
    }
    std::map<int32_t, std::vector<Sent>> sent;  // by tile that is its own first
    for (const int32_t tile : inside_) {
      const int32_t first = profiles_.first_like(tile);
      if (first == tile) sent[tile] = find_sent(tile, members);
      for (const Sent& of : sent[first]) {
        extend_link(profiles_.moved(tile, of.link), {-7, tile, of.what});
      }
    }
  }

  // What the blocks of one class put on a link above, as a history of the class and the kinds.
  struct Sent {
    int32_t link = 0, what = 0;
  };
  std::vector<Sent> find_sent(int32_t tile, const std::vector<std::vector<int32_t>>& members) {
    std::vector<Sent> sent;
    std::vector<Use> uses;
    for (size_t c = 0; c < members.size(); ++c) {
      uses.clear();
      for (const int32_t block : members[c]) {
        visit_above(tile, block, [&](const Use& use) { uses.push_back(use); });
      }
      std::sort(uses.begin(), uses.end());
      for (size_t i = 0; i < uses.size(); ++i) {
        if (i == 0 || uses[i].link != uses[i - 1].link) {
          sent.push_back({uses[i].link, histories_.extend(0, {-8, int64_t(c), 0})});
        }
        sent.back().what = histories_.extend(sent.back().what, {uses[i].kind, 0, 0});
      }
    }
    return sent;
  }

  // The set of classes of links above that each communicator of the block sees by each shape.
  void refine_blocks() {
    std::vector<Use> seen;
    for (const int32_t tile : inside_) {
      for (int32_t block = 0; block < layout_.count; ++block) {
        seen.clear();
        visit_above(tile, block,
                    [&](const Use& use) { seen.push_back({links_[size_t(use.link)], use.kind}); });
        std::sort(seen.begin(), seen.end());
        seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
        for (const Use& of : seen) told_[size_t(block)].push_back({of.link, of.kind, 0});
      }
      tell_apart({-9, tile, 0});
    }
  }

  template <class Visit>
  void visit_above(int32_t tile, int32_t block, const Visit& visit) {
    profiles_.visit(tile, block, [&](const Use& use) {
      if (owners_.is_above(use.link)) visit(use);
    });
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
    std::vector<int32_t> used;
    for (size_t link = 0; link < links_.size(); ++link) {
      if (links_[link] == 0) continue;
      used.push_back(int32_t(link));
      result_.lowest_like[link] = links.try_emplace(links_[link], int32_t(link)).first->second;
    }
    for (const machine::LinkShift& shift : profiles_.shifts()) {
      for (const int32_t link : used) {
        const int32_t by = shift[size_t(job_.topology.tier(link))];
        result_.lowest_like[size_t(link + by)] = result_.lowest_like[size_t(link)] + by;
      }
    }
  }

  const Job& job_;
  const Layout& layout_;
  Profiles& profiles_;
  LinkOwners owners_;
  Histories histories_;
  std::vector<int32_t> blocks_, links_;               // history of each; 0 = nothing is known
  std::vector<int32_t> inside_;                       // tiles inside blocks that leave a pod
  std::vector<std::vector<Histories::Values>> told_;  // scratch, by block
  Blocks result_;
};

}  // namespace

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
  const int64_t width = layout.ranks.width / job.placement.ranks_per_chip;  // chips
  pod_links_ = {width * topology_.pod_link_count() / topology_.pod_chips(), layout.count};
  fabric_links_ = {width * links_of_chip, layout.count};
}

int64_t LinkOwners::chip_of(int64_t link) const {
  const machine::Link at = topology_.link(int32_t(link));
  return std::max({at.from_node, at.to_node, -1});
}

LinkOwners::Place LinkOwners::of(int32_t link) const {
  if (link >= above_from_) return {};
  if (link < fabric_from_) return {int32_t(pod_links_.block_of(link)), pod_links_.place_of(link)};
  constexpr int64_t kFabric = int64_t(1) << 40;
  const int64_t index = link - fabric_from_;
  return {int32_t(fabric_links_.block_of(index)), kFabric + fabric_links_.place_of(index)};
}

int32_t LinkOwners::moved(int32_t link, int64_t blocks) const {
  return int32_t(link + blocks * (link < fabric_from_ ? pod_links_.width : fabric_links_.width));
}

Blocks one_block() { return {{0}, {0}, {}}; }

std::optional<Blocks> class_blocks(const Job& job, const Layout& layout, Profiles& profiles) {
  return Classer(job, layout, profiles).find();
}

}  // namespace trnsim::fold
