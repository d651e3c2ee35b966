// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The figures of the networks: inside a pod (server, scale_up) and, where a file has one, between
// pods (fabric).
#include <algorithm>
#include <sstream>

#include "machine/reader.h"
#include "machine/topology.h"

namespace trnsim::machine {
namespace {

using enum Dimension;

constexpr int64_t kMostChips = 1'000'000;

// "4*": an extent, and whether the axis closes. False for anything else.
bool parse_axis(const std::string& text, int64_t& extent, bool& wraps) {
  wraps = text.ends_with("*");
  const std::string digits = wraps ? text.substr(0, text.size() - 1) : text;
  if (digits.empty() || digits.size() > 6) return false;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return false;
  extent = std::stoll(digits);
  return extent > 0;
}

// "8x16*", of one to three axes that fit the torus.
bool parse_slice(const std::string& text, const Machine& machine, Slice& slice) {
  size_t axis = 0;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, 'x'); ++axis) {
    if (axis == 3 || !parse_axis(part, slice.extent[axis], slice.wraps[axis])) return false;
    if (slice.extent[axis] > machine.torus[axis]) return false;
  }
  return axis > 0;
}

// "2x2 2x4 8x16*": by their chips, ascending, one of each number.
void read_slices(Reader& reader, Machine& machine) {
  const std::string key = "scale_up.slices";
  std::istringstream texts(reader.word(key));
  for (std::string text; texts >> text;) {
    Slice slice;
    if (!parse_slice(text, machine, slice)) {
      reader.fail(key, "has the part '" + text + "', which is no box in the torus",
                  "write shapes such as 4x4 or 8x16*, where * marks an axis that closes");
    }
    if (!machine.slices.empty() && slice.chips() <= machine.slices.back().chips()) {
      reader.fail(key, "is not ascending at '" + text + "'",
                  "write the shapes by their chips, one of each number");
    }
    machine.slices.push_back(slice);
  }
  if (machine.slices.empty()) reader.fail(key, "is empty", "write shapes such as 4x4");
}

void read_torus(Reader& reader, Machine& machine) {
  int64_t chips = 1;
  for (size_t axis = 0; axis < 3; ++axis) {
    const std::string letter(1, "xyz"[axis]);
    int64_t& extent = machine.torus[axis];
    extent = reader.whole("scale_up.chips_" + letter, number);
    if (extent > kMostChips) {
      reader.fail("scale_up.chips_" + letter, "is too many", "write at most 1000000");
    }
    chips *= std::max<int64_t>(extent, 1);
    if (chips > kMostChips) {
      reader.fail("scale_up.chips_" + letter, "makes a torus of more than 1000000 chips",
                  "write fewer chips");
    }
    const std::string key = "scale_up.bandwidth_" + letter;
    if (extent > 1 || reader.has(key))
      machine.torus_axis_Bps[axis] = reader.rational(key, bandwidth);
  }
  if (machine.server.chips > 0 && chips % machine.server.chips != 0) {
    reader.fail("server.chips", "does not divide the torus of " + std::to_string(chips) + " chips",
                "change it, or scale_up.chips_x, _y, _z");
  }
  if (reader.has("scale_up.slices")) read_slices(reader, machine);
}

void read_hypercube(Reader& reader, Machine& machine) {
  machine.hypercube_axes = reader.whole("scale_up.axes", number);
  if (machine.hypercube_axes > 4) {
    reader.fail("scale_up.axes", "is too many", "write 1 to 4: 2 to 16 chips");
  }
  machine.hypercube_Bps = reader.rational("scale_up.bandwidth", bandwidth);
  const int64_t chips = int64_t(1) << machine.hypercube_axes;
  if (machine.server.chips > 0 && chips % machine.server.chips != 0) {
    reader.fail("server.chips", "does not divide the " + std::to_string(chips) + " chips",
                "change it, or scale_up.axes");
  }
}

bool read_choice(Reader& reader, const std::string& key, const std::string& yes,
                 const std::string& no) {
  return reader.word(key, {yes, no}) == yes;
}

// Servers that share one switch; without the figure each has its own.
void read_switch_chips(Reader& reader, Machine& machine) {
  const std::string key = "scale_up.chips";
  const int64_t server = machine.server.chips;
  if (!reader.has(key)) return;
  machine.switch_chips = reader.whole(key, number);
  if (machine.switch_chips > kMostChips || (server > 0 && machine.switch_chips % server != 0)) {
    reader.fail(key, "is not as many servers of " + std::to_string(server) + " chips",
                "write a multiple of server.chips");
  }
}

void read_job_chips(Reader& reader, Machine& machine) {
  const std::string key = "scale_up.job_chips";
  if (!reader.has(key) && machine.slices.empty()) return;
  machine.job_chips = reader.whole(key, number);
  const int64_t pod = pod_chips(machine);
  if (machine.job_chips == 0 || pod == 0) return;
  const auto& slices = machine.slices;
  const bool is_slice = std::any_of(slices.begin(), slices.end(), [&](const Slice& slice) {
    return slice.chips() == machine.job_chips;
  });
  const int64_t server = std::max<int64_t>(1, machine.server.chips);
  const bool fits = slices.empty() ? machine.job_chips % server == 0 : is_slice;
  if (machine.job_chips > pod || !fits) {
    reader.fail(key, "is no part of a pod that a job can have",
                slices.empty() ? "write whole servers, at most " + std::to_string(pod)
                               : "write the chips of one of scale_up.slices");
  }
}

void read_scale_up(Reader& reader, Machine& machine) {
  const std::string kind = reader.deciding_word("scale_up.kind", {"torus", "switch", "hypercube"});
  machine.server.chips = reader.whole("server.chips", number);
  machine.server.host_link_Bps = reader.rational("server.host_link_bandwidth", bandwidth);
  const std::string memory = "server.host_memory";
  if (reader.has(memory)) machine.server.host_memory_bytes = reader.whole(memory, Dimension::bytes);
  machine.hop_ps = reader.time_ps("scale_up.hop_latency");
  if (kind == "torus") {
    machine.scale_up = ScaleUp::torus;
    read_torus(reader, machine);
  } else if (kind == "hypercube") {
    machine.scale_up = ScaleUp::hypercube;
    read_hypercube(reader, machine);
  } else {
    machine.scale_up = ScaleUp::one_switch;
    machine.switch_port_Bps = reader.rational("scale_up.port_bandwidth", bandwidth);
    machine.switch_multicasts = read_choice(reader, "scale_up.multicast", "yes", "no");
    if (machine.server.chips > kMostChips) {
      reader.fail("server.chips", "is too many", "write at most 1000000");
    }
    read_switch_chips(reader, machine);
  }
  read_job_chips(reader, machine);
}

// radix = down + up, oversubscription = down/up.
SwitchTier read_tier(Reader& reader, const std::string& prefix) {
  const int64_t radix = reader.whole(prefix + ".radix", number);
  const Rational over = reader.rational(prefix + ".oversubscription", number);
  SwitchTier tier;
  const std::string power_key = prefix + ".power";
  if (reader.has(power_key)) tier.power_W = reader.rational(power_key, power, Range::not_negative);
  tier.is_blocking = read_choice(reader, prefix + ".links", "blocking", "non_blocking");
  if (radix == 0 || over.is_zero()) return tier;  // missing: `finish` says so
  if (radix > kMostChips) reader.fail(prefix + ".radix", "is too many", "write at most 1000000");
  const Rational up = Rational::of(radix, 1) / (over + Rational{1, 1});
  tier.up_ports = up.numerator / up.denominator;
  tier.down_ports = radix - tier.up_ports;
  if (up.denominator != 1 || tier.up_ports < 1 || tier.down_ports < 1) {
    reader.fail(prefix + ".oversubscription",
                "does not split " + std::to_string(radix) + " ports into whole ones down and up",
                "write down ports / up ports, such as 1 or 3");
  }
  return tier;
}

// The pods fit the ports.
void check_reach(Reader& reader, const Machine& machine) {
  const Fabric& fabric = machine.fabric;
  const SwitchTier& edge = fabric.has_tor ? fabric.tor : fabric.leaf;
  const int64_t server = machine.server.chips, pod = chips_of_each_pod(machine);
  if (fabric.pods == 0 || fabric.rails == 0 || server == 0 || edge.down_ports == 0) return;
  if (server % fabric.rails != 0) {
    reader.fail("fabric.rails",
                "does not divide the " + std::to_string(server) + " chips of a server",
                "write a divisor");
  }
  const int64_t servers = edge.down_ports / (server / fabric.rails);
  if (servers == 0) {
    reader.fail(fabric.has_tor ? "fabric.tor.radix" : "fabric.leaf.radix",
                "leaves too few ports down for one server",
                "write more ports, or more rails (fabric.rails)");
  }
  const int64_t blocks_below_spine =
      fabric.has_tor ? fabric.spine_ports * fabric.leaf.down_ports / fabric.rails
                     : fabric.spine_ports / fabric.rails;
  const int64_t most = int64_t(
      std::min<int128>(kMostChips / pod, int128(blocks_below_spine) * servers * server / pod));
  if (fabric.pods > most) {
    reader.fail("fabric.pods", "is more than the switches reach",
                "write at most " + std::to_string(most) + ", or more ports (fabric.spine.radix)");
  }
}

void read_transport(Reader& reader, Fabric& fabric) {
  const std::string at = "fabric.transport.";
  if (reader.children("fabric.transport").empty()) return;
  Transport& transport = fabric.transport;
  transport.is_known = true;
  transport.nic_Bps = fabric.nic_Bps;
  reader.word(at + "kind");
  transport.payload_bytes = reader.rational(at + "payload", bytes);
  transport.header_bytes = reader.rational(at + "header", bytes, Range::not_negative);
  transport.loss = reader.rational(at + "loss", number, Range::not_negative);
  transport.goes_back = read_choice(reader, at + "retransmit", "go_back_n", "selective");
  transport.round_trip_ps = reader.time_ps(at + "round_trip");
  transport.congestion_efficiency =
      reader.rational(at + "congestion_efficiency", number, Range::share);
  if (!(transport.loss < Rational{1, 2})) {
    reader.fail(at + "loss", "is no share of packets that a network loses",
                "write a share below 1/2, such as 1e-5");
  }
  if (transport.payload_bytes.is_zero()) return;  // missing: `finish` says so
  const Rational left = transport_shares(transport).all;
  if (left.is_zero()) {
    reader.fail(at + "loss", "leaves nothing of a link", "write fewer losses or a shorter way");
  }
  fabric.port_Bps = fabric.port_Bps * left;
  fabric.nic_Bps = fabric.nic_Bps * left;
}

void read_fabric(Reader& reader, Machine& machine) {
  Fabric& fabric = machine.fabric;
  const std::string kind = reader.deciding_word("fabric.kind", {"tor_leaf_spine", "leaf_spine"});
  fabric.has_tor = kind == "tor_leaf_spine";
  fabric.pods = reader.whole("fabric.pods", number);
  const int64_t nics = reader.whole("fabric.nic.count", number);
  fabric.nic_Bps = reader.rational("fabric.nic.bandwidth", bandwidth);
  if (machine.server.chips > 0) {
    fabric.nic_Bps = fabric.nic_Bps * Rational::of(nics, machine.server.chips);
  }
  fabric.port_Bps = reader.rational("fabric.port_bandwidth", bandwidth);
  fabric.rails = reader.whole("fabric.rails", number);
  if (fabric.has_tor) fabric.tor = read_tier(reader, "fabric.tor");
  fabric.leaf = read_tier(reader, "fabric.leaf");
  fabric.spine_ports = reader.whole("fabric.spine.radix", number);
  if (fabric.spine_ports > kMostChips) {
    reader.fail("fabric.spine.radix", "is too many", "write at most 1000000");
  }
  if (reader.has("fabric.spine.power")) {
    fabric.spine_power_W = reader.rational("fabric.spine.power", power, Range::not_negative);
  }
  const std::string paths = reader.word("fabric.ecmp", {"d_mod_k", "hashed", "sprayed"});
  if (paths != "d_mod_k") fabric.paths = paths == "hashed" ? Paths::hashed : Paths::sprayed;
  fabric.step_ps = reader.time_ps("fabric.step_latency");
  read_transport(reader, fabric);
  check_reach(reader, machine);
}

}  // namespace

void read_network(Reader& reader, Machine& machine) {
  read_scale_up(reader, machine);
  if (!reader.children("fabric").empty()) read_fabric(reader, machine);
}

}  // namespace trnsim::machine
