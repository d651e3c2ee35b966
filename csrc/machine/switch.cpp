// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// One switch that never blocks inside: chip c has the up link 2c and the down link 2c + 1, and
// every route is one up and one down.
#include "machine/piece.h"

namespace trnsim::machine {
namespace {

constexpr int32_t kSwitch = -1;

class Switch final : public Piece {
 public:
  Switch(const Machine& machine, int64_t chips) : rate_(link_rate(machine.switch_port_Bps)) {
    chip_count_ = chips;
    if (chips == 1) return;  // nobody to talk to
    link_count_ = 2 * chips;
    switch_count_ = 1;
  }

  Link link(int32_t id) const override {
    const int32_t chip = id / 2;
    if (id % 2 == 0) return {chip, kSwitch, Tier::switch_up, rate_, rate_};
    return {kSwitch, chip, Tier::switch_down, rate_, rate_};
  }
  Tier tier(int32_t id) const override { return id % 2 == 0 ? Tier::switch_up : Tier::switch_down; }
  int64_t rate(Tier) const override { return rate_; }
  const char* link_label(int32_t id) const override { return id % 2 == 0 ? "up" : "down"; }

  void links_from(int32_t node, std::vector<int32_t>& links) const override {
    if (link_count_ == 0) return;
    if (node != kSwitch) {
      links.push_back(2 * node);
      return;
    }
    for (int32_t chip = 0; chip < chip_count_; ++chip) links.push_back(2 * chip + 1);
  }

  bool route(int32_t from_chip, int32_t to_chip, const Alive& alive,
             std::vector<int32_t>& links) const override {
    if (from_chip == to_chip) return true;
    const int32_t up = 2 * from_chip, down = 2 * to_chip + 1;
    if (!alive(up) || !alive(down)) return false;
    links.push_back(up);
    links.push_back(down);
    return true;
  }

  std::vector<Tier> tiers() const override {
    if (link_count_ == 0) return {};
    return {Tier::switch_up, Tier::switch_down};
  }

 private:
  int64_t rate_;
};

}  // namespace

std::unique_ptr<Piece> make_switch(const Machine& machine, int64_t chips) {
  return std::make_unique<Switch>(machine, chips);
}

}  // namespace trnsim::machine
