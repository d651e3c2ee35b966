// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Torus of up to three axes, of which the first chips are present. A link is there if both its
// chips are; neighbours are found through a table [chip][axis][direction] of link ids, -1 for none.
// Making one costs O(chips), a route O(hops).
//
// Some order of axes always goes through. Chips are numbered row by row and plane by plane, so only
// the last plane in use, and in it only the last row, can be cut. Of two chips in different planes,
// the one of the lower plane moves freely in X and Y there, and between the planes the column of
// the other is present; so Z last works from the lower, Z first from the higher. Within one plane
// the same holds for rows and Y, and within a row the chips in between are present one way round.
#include <limits>

#include "machine/topologies.h"

namespace trnsim::machine {
namespace {

constexpr int kPlus = 0, kMinus = 1;
constexpr int kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

class Torus final : public Topology {
 public:
  Torus(const Machine& machine, int64_t chips) : extents_(machine.torus) {
    chip_count_ = chips;
    neighbour_links_.assign(size_t(chips) * 6, -1);
    for (int32_t chip = 0; chip < chips; ++chip) {
      for (int axis = 0; axis < 3; ++axis) {
        const int64_t rate = link_rate(machine.torus_axis_Bps[size_t(axis)]);
        add_link(chip, axis, kPlus, rate);
        if (extents_[size_t(axis)] > 2) add_link(chip, axis, kMinus, rate);
      }
    }
  }

  void route(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const override {
    TRN_ASSERT(from_chip >= 0 && from_chip < chip_count_ && to_chip >= 0 && to_chip < chip_count_,
               "a route goes between chips in use");
    const size_t start = links.size();
    for (const auto& order : kOrders) {
      int32_t chip = from_chip;
      bool through = true;
      for (int i = 0; i < 3 && through; ++i) through = walk_axis(chip, to_chip, order[i], links);
      if (through) return;
      links.resize(start);
    }
    TRN_ASSERT(false, "the first chips of a torus are joined by some order of axes");
  }

 private:
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
    return neighbour_links_[size_t(chip * 6 + axis * 2 + direction)];
  }
  int32_t link_of(int64_t chip, int axis, int direction) const {
    return neighbour_links_[size_t(chip * 6 + axis * 2 + direction)];
  }

  void add_link(int32_t chip, int axis, int direction, int64_t rate) {
    const int64_t other = neighbour(chip, axis, direction);
    if (other == chip || other >= chip_count_) return;
    link_of(chip, axis, direction) = int32_t(links_.size());
    const std::string name = std::string(1, "xyz"[axis]) + (direction == kPlus ? "+ " : "- ") +
                             std::to_string(chip) + ">" + std::to_string(other);
    links_.push_back({chip, int32_t(other), int8_t(axis), rate, name});
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
  // nothing moved or appended, if both ways round meet an absent chip.
  bool walk_axis(int32_t& chip, int32_t to_chip, int axis, std::vector<int32_t>& links) const {
    const int64_t target = coordinate(to_chip, axis);
    const int64_t from = coordinate(chip, axis);
    if (from == target) return true;
    const int preferred = preferred_direction(from, target, extents_[size_t(axis)]);
    for (const int direction : {preferred, 1 - preferred}) {
      const size_t start = links.size();
      int32_t at = chip;
      while (coordinate(at, axis) != target) {
        const int32_t link = link_of(at, axis, direction);
        if (link < 0) break;
        links.push_back(link);
        at = links_[size_t(link)].to_chip;
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
  std::vector<int32_t> neighbour_links_;
};

}  // namespace

int64_t link_rate(Rational bandwidth_Bps) {
  const int128 rate =
      int128(bandwidth_Bps.numerator) * kRateUnitsPerBps / bandwidth_Bps.denominator;
  TRN_CHECK(rate <= std::numeric_limits<int64_t>::max(), machine,
            "a link's bandwidth does not fit 64 bits", "write less than 9 PB/s");
  return int64_t(rate);
}

std::unique_ptr<Topology> make_torus(const Machine& machine, int64_t chips) {
  return std::make_unique<Torus>(machine, chips);
}

}  // namespace trnsim::machine
