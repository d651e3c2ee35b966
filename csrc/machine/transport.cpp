// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What a transport leaves of the fabric's rates, and what the fabric's switches draw: arithmetic on
// figures.
#include <algorithm>

#include "machine/machine.h"

namespace trnsim::machine {
namespace {

constexpr Rational kOne{1, 1};
constexpr int64_t kShareUnits = 1'000'000;

// b <= a.
Rational minus(Rational a, Rational b) {
  return Rational::of(int128(a.numerator) * b.denominator - int128(b.numerator) * a.denominator,
                      int128(a.denominator) * b.denominator);
}

// Packets that a NIC sends in a round trip, the last one begun counted.
int64_t window_of(const Transport& transport) {
  const Rational packet = transport.payload_bytes + transport.header_bytes;
  const Rational packets =
      transport.nic_Bps / packet * Rational::of(transport.round_trip_ps, kPsPerSecond);
  return std::max<int64_t>(1, ceil_div(packets.numerator, packets.denominator));
}

Rational in_millionths(Rational share) {
  const int128 units = int128(share.numerator) * kShareUnits / share.denominator;
  return Rational::of(units, kShareUnits);
}

}  // namespace

TransportShares transport_shares(const Transport& transport) {
  TransportShares shares;
  if (!transport.is_known) return shares;
  shares.header = transport.payload_bytes / (transport.payload_bytes + transport.header_bytes);
  shares.window = window_of(transport);
  const Rational arrives = minus(kOne, transport.loss);
  const Rational again = transport.loss * Rational{shares.window, 1};
  shares.retransmit = transport.goes_back ? arrives / (arrives + again) : arrives;
  shares.congestion = transport.congestion_efficiency;
  // One after the other, so that no product leaves 64 bits.
  shares.all = in_millionths(in_millionths(shares.header) * in_millionths(shares.retransmit));
  shares.all = in_millionths(shares.all * in_millionths(shares.congestion));
  return shares;
}

std::optional<Rational> network_power_per_chip_W(const Fabric& fabric) {
  if (fabric.pods == 0) return {};
  // Links of a chip's width between what is below a switch and it, and their share of its ports.
  const auto of = [](Rational power, Rational links, int64_t ports) {
    return power * links / Rational{ports, 1};
  };
  const auto up_each = [](const SwitchTier& tier) {
    return Rational::of(tier.up_ports, tier.down_ports);
  };
  Rational links = kOne, total{0, 1};
  for (const SwitchTier* tier : {&fabric.tor, &fabric.leaf}) {
    if (tier == &fabric.tor && !fabric.has_tor) continue;
    if (tier->power_W.is_zero()) return {};
    total = total + of(tier->power_W, links, tier->down_ports);
    links = links * up_each(*tier);
  }
  if (fabric.spine_power_W.is_zero()) return {};
  return total + of(fabric.spine_power_W, links, fabric.spine_ports);
}

}  // namespace trnsim::machine
