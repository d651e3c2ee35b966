// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Torus of up to three axes, of which the first chips are present, or a slice of it, which is all
// there and of which some axes are lines. Routes go by dimension order X,
// Y, Z, each axis the shorter way round; a tie at half a ring goes + from even and - from odd
// coordinates. A link is there if both its chips are, so absent neighbours leave a line without
// wrap. A ring of two has one link in each direction between its chips, not two. Links are found
// through a table [chip][axis][direction], -1 for none. Making one costs O(chips), a route O(hops).
//
// Where a chip is absent or a link dead, an axis goes the other way round if the preferred way is
// broken; if the order X, Y, Z breaks both ways, the next order in XZY, YXZ, YZX, ZXY, ZYX is
// tried.
//
// With absent chips alone some order always goes through. Chips are numbered row by row and plane
// by plane, so only the last plane in use, and in it only the last row, can be cut. Of two chips in
// different planes, the one of the lower plane moves freely in X and Y there, and between the
// planes the column of the other is present; so Z last works from the lower, Z first from the
// higher. Within one plane the same holds for rows and Y, and within a row the chips in between are
// present one way round.
#include "machine/piece.h"

namespace trnsim::machine {
namespace {

constexpr int kPlus = 0, kMinus = 1;
constexpr int kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
constexpr const char* kLabels[3][2] = {{"x+", "x-"}, {"y+", "y-"}, {"z+", "z-"}};

class Torus final : public Piece {
 public:
  Torus(const Machine& machine, int64_t chips) : extents_(machine.torus) {
    chip_count_ = chips;
    if (!machine.slices.empty()) {  // a box of its own
      extents_ = used_torus(machine, chips);
      for (int axis = 0; axis < 3; ++axis) closes_[size_t(axis)] = axis_wraps(machine, chips, axis);
    }
    for (size_t axis = 0; axis < 3; ++axis) rates_[axis] = link_rate(machine.torus_axis_Bps[axis]);
    link_of_.assign(size_t(chips) * 6, -1);
    ends_.reserve(size_t(chips) * 6);
    for (int32_t chip = 0; chip < chips; ++chip) {
      for (int axis = 0; axis < 3; ++axis) {
        add_link(chip, axis, kPlus);
        if (extents_[size_t(axis)] > 2) add_link(chip, axis, kMinus);
      }
    }
    link_count_ = int64_t(ends_.size());
  }

  Link link(int32_t id) const override {
    const End& end = ends_[size_t(id)];
    const int64_t rate = rates_[end.axis];
    return {end.from, end.to, Tier(end.axis), rate, rate};
  }
  Tier tier(int32_t id) const override { return Tier(ends_[size_t(id)].axis); }
  int64_t rate(Tier tier) const override { return rates_[size_t(tier)]; }
  const char* link_label(int32_t id) const override {
    const End& end = ends_[size_t(id)];
    return kLabels[end.axis][end.direction];
  }

  void links_from(int32_t node, std::vector<int32_t>& links) const override {
    for (size_t i = 0; i < 6; ++i) {
      const int32_t link = link_of_[size_t(node) * 6 + i];
      if (link >= 0) links.push_back(link);
    }
  }

  bool route(int32_t from_chip, int32_t to_chip, const Alive& alive,
             std::vector<int32_t>& links) const override {
    const size_t start = links.size();
    for (const auto& order : kOrders) {
      int32_t chip = from_chip;
      bool through = true;
      for (int i = 0; i < 3 && through; ++i) {
        through = walk_axis(chip, to_chip, order[i], alive, links);
      }
      if (through) return true;
      links.resize(start);
    }
    return false;
  }

  std::vector<Tier> tiers() const override {
    std::array<bool, 3> used{};
    for (const End& end : ends_) used[end.axis] = true;
    std::vector<Tier> tiers;
    for (int8_t axis = 0; axis < 3; ++axis) {
      if (used[size_t(axis)]) tiers.push_back(Tier(axis));
    }
    return tiers;
  }

 private:
  struct End {
    int32_t from, to;
    uint8_t axis, direction;
  };

  int64_t coordinate(int64_t chip, int axis) const {
    if (axis == 0) return chip % extents_[0];
    if (axis == 1) return chip / extents_[0] % extents_[1];
    return chip / (extents_[0] * extents_[1]);
  }

  int64_t neighbour(int64_t chip, int axis, int direction) const {
    const int64_t extent = extents_[size_t(axis)], at = coordinate(chip, axis);
    const int64_t stride = axis == 0 ? 1 : axis == 1 ? extents_[0] : extents_[0] * extents_[1];
    const int64_t next = (at + (direction == kPlus ? 1 : extent - 1)) % extent;
    return chip + (next - at) * stride;
  }

  int32_t& link_of(int64_t chip, int axis, int direction) {
    return link_of_[size_t(chip * 6 + axis * 2 + direction)];
  }
  int32_t link_of(int64_t chip, int axis, int direction) const {
    return link_of_[size_t(chip * 6 + axis * 2 + direction)];
  }

  void add_link(int32_t chip, int axis, int direction) {
    const int64_t other = neighbour(chip, axis, direction);
    if (other == chip || other >= chip_count_) return;
    if (!closes_[size_t(axis)] && extents_[size_t(axis)] > 2 && goes_round(chip, axis, direction)) {
      return;
    }
    link_of(chip, axis, direction) = int32_t(ends_.size());
    ends_.push_back({chip, int32_t(other), uint8_t(axis), uint8_t(direction)});
  }

  bool goes_round(int64_t chip, int axis, int direction) const {
    const int64_t last = extents_[size_t(axis)] - 1;
    return coordinate(chip, axis) == (direction == kPlus ? last : 0);
  }

  // The way round a full ring: the shorter; at half a ring + from even and - from odd coordinates.
  // A ring of two has + links only.
  int preferred_direction(int64_t from, int64_t to, int64_t extent) const {
    const int64_t forward = (to - from + extent) % extent;
    if (extent == 2 || 2 * forward < extent) return kPlus;
    if (2 * forward > extent) return kMinus;
    return from % 2 == 0 ? kPlus : kMinus;
  }

  // Moves `chip` along the axis to the coordinate of `to_chip`, appending links; false, with
  // nothing moved or appended, if both ways round are broken.
  bool walk_axis(int32_t& chip, int32_t to_chip, int axis, const Alive& alive,
                 std::vector<int32_t>& links) const {
    const int64_t target = coordinate(to_chip, axis);
    const int64_t from = coordinate(chip, axis);
    if (from == target) return true;
    const int preferred = preferred_direction(from, target, extents_[size_t(axis)]);
    for (const int direction : {preferred, 1 - preferred}) {
      const size_t start = links.size();
      int32_t at = chip;
      while (coordinate(at, axis) != target) {
        const int32_t link = link_of(at, axis, direction);
        if (link < 0 || !alive(link)) break;
        links.push_back(link);
        at = ends_[size_t(link)].to;
      }
      if (coordinate(at, axis) == target) {
        chip = at;
        return true;
      }
      links.resize(start);
    }
    return false;
  }

  std::array<int64_t, 3> extents_;
  std::array<bool, 3> closes_{true, true, true};
  std::array<int64_t, 3> rates_{};
  std::vector<End> ends_;         // by link
  std::vector<int32_t> link_of_;  // [chip][axis][direction], -1 = none
};

}  // namespace

std::unique_ptr<Piece> make_torus(const Machine& machine, int64_t chips) {
  return std::make_unique<Torus>(machine, chips);
}

}  // namespace trnsim::machine
