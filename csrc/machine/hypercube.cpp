// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Hypercube of up to four axes, of which the first chips are present: bit i of a chip's number is
// its coordinate on axis i, and a link flips one bit. The 16 chips of four axes have the links of a
// 4x4 torus, whose rings of four are squares (Gray code).
//
// A route flips the bits that differ, lowest first; where a chip is absent or a link dead, the next
// order of those bits is tried, in lexicographic order. With absent chips alone one always goes
// through: clearing bits first passes only numbers below the start, setting the others then only
// numbers up to the end.
#include <algorithm>
#include <bit>

#include "machine/piece.h"

namespace trnsim::machine {
namespace {

constexpr Tier kTierOfAxis[] = {Tier::x, Tier::y, Tier::z, Tier::w};

class Hypercube final : public Piece {
 public:
  Hypercube(const Machine& machine, int64_t chips)
      : axes_(int(machine.hypercube_axes)), rate_(link_rate(machine.hypercube_Bps)) {
    chip_count_ = chips;
    link_of_.assign(size_t(chips * axes_), -1);
    for (int32_t chip = 0; chip < chips; ++chip) {
      for (int axis = 0; axis < axes_; ++axis) {
        if ((chip ^ (1 << axis)) >= chips) continue;
        link_of_[size_t(chip * axes_ + axis)] = int32_t(ends_.size());
        ends_.push_back({chip, axis});
      }
    }
    link_count_ = int64_t(ends_.size());
  }

  Link link(int32_t id) const override {
    const auto [chip, axis] = ends_[size_t(id)];
    return {chip, chip ^ (1 << axis), kTierOfAxis[axis], rate_, rate_};
  }
  Tier tier(int32_t id) const override { return kTierOfAxis[ends_[size_t(id)].second]; }
  int64_t rate(Tier) const override { return rate_; }
  const char* link_label(int32_t id) const override {
    return tier_name(kTierOfAxis[ends_[size_t(id)].second]);
  }

  void links_from(int32_t node, std::vector<int32_t>& links) const override {
    for (int axis = 0; axis < axes_; ++axis) {
      const int32_t link = link_of_[size_t(node * axes_ + axis)];
      if (link >= 0) links.push_back(link);
    }
  }

  bool route(int32_t from_chip, int32_t to_chip, const Alive& alive,
             std::vector<int32_t>& links) const override {
    std::array<int, 4> order{};
    int count = 0;
    for (int axis = 0; axis < axes_; ++axis) {
      if (((from_chip ^ to_chip) >> axis & 1) != 0) order[size_t(count++)] = axis;
    }
    const size_t start = links.size();
    do {
      int32_t chip = from_chip;
      int flipped = 0;
      for (; flipped < count; ++flipped) {
        const int axis = order[size_t(flipped)];
        const int32_t link = link_of_[size_t(chip * axes_ + axis)];
        if (link < 0 || !alive(link)) break;
        links.push_back(link);
        chip ^= 1 << axis;
      }
      if (flipped == count) return true;
      links.resize(start);
    } while (std::next_permutation(order.begin(), order.begin() + count));
    return false;
  }

  std::vector<Tier> tiers() const override {
    std::vector<Tier> tiers;
    for (int axis = 0; axis < axes_ && chip_count_ > (1 << axis); ++axis) {
      tiers.push_back(kTierOfAxis[axis]);
    }
    return tiers;
  }

 private:
  int axes_;
  int64_t rate_;
  std::vector<std::pair<int32_t, int>> ends_;  // by link: the chip that it leaves, its axis
  std::vector<int32_t> link_of_;               // [chip][axis], -1 = none
};

}  // namespace

std::unique_ptr<Piece> make_hypercube(const Machine& machine, int64_t chips) {
  return std::make_unique<Hypercube>(machine, chips);
}

}  // namespace trnsim::machine
