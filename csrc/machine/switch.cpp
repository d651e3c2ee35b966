// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// One switch that never blocks inside: chip c has the up link 2c and the down link 2c + 1, and
// every route is one up and one down.
#include "machine/topologies.h"

namespace trnsim::machine {
namespace {

constexpr int32_t kSwitch = -1;
constexpr int8_t kUp = 3, kDown = 4;

class Switch final : public Topology {
 public:
  Switch(const Machine& machine, int64_t chips) {
    chip_count_ = chips;
    const int64_t rate = link_rate(machine.switch_port_Bps);
    if (chips == 1) return;  // nobody to talk to
    for (int32_t chip = 0; chip < chips; ++chip) {
      links_.push_back({chip, kSwitch, kUp, rate, "up " + std::to_string(chip)});
      links_.push_back({kSwitch, chip, kDown, rate, "down " + std::to_string(chip)});
    }
  }

  void route(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const override {
    TRN_ASSERT(from_chip >= 0 && from_chip < chip_count_ && to_chip >= 0 && to_chip < chip_count_,
               "a route goes between chips in use");
    if (from_chip == to_chip) return;
    links.push_back(2 * from_chip);
    links.push_back(2 * to_chip + 1);
  }
};

}  // namespace

std::unique_ptr<Topology> make_switch(const Machine& machine, int64_t chips) {
  return std::make_unique<Switch>(machine, chips);
}

}  // namespace trnsim::machine
