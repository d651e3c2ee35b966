// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "machine/machine.h"

#include <algorithm>

#include "base/hash.h"
#include "machine/line_rate.h"
#include "machine/reader.h"

namespace trnsim::machine {
namespace {

using enum Dimension;

void read_peaks(Reader& reader, Peaks& peaks) {
  const std::string published = "chip.peak.published", physical = "chip.peak.physical";
  peaks.published_flops = reader.by_dtype(published, flops, Range::positive);
  peaks.physical_flops = peaks.published_flops;
  for (const std::string& dtype : reader.children(physical)) {
    const std::string key = physical + "." + dtype;
    if (peaks.published_flops.count(dtype) == 0) {
      reader.fail(key, "has no published peak beside it", "add " + published + "." + dtype);
    }
    peaks.physical_flops[dtype] = reader.rational(key, flops);
  }
}

void read_hbm(Reader& reader, Hbm& hbm) {
  hbm.total_bytes = reader.whole("chip.hbm.total", bytes);
  hbm.reserved_bytes = reader.whole("chip.hbm.reserved", bytes, Range::not_negative);
  hbm.bandwidth_Bps = reader.rational("chip.hbm.bandwidth", bandwidth);
  hbm.efficiency = reader.rational("chip.hbm.efficiency", number, Range::share);
  if (hbm.reserved_bytes >= hbm.total_bytes && hbm.total_bytes > 0) {
    reader.fail("chip.hbm.reserved", "leaves no memory", "write less than chip.hbm.total");
  }
}

// A share of 0 in 2^-16 would never end: the least is 1.
int32_t speed_of(Rational share) {
  const int128 doubled = int128(share.numerator) * 2 * kFullSpeed + share.denominator;
  return std::max(1, int32_t(doubled / (2 * int128(share.denominator))));
}

void read_interference(Reader& reader, EngineSpeeds& speeds) {
  const std::string table = "chip.interference";
  const std::vector<std::string> engines(kEngines.begin(), kEngines.end());
  for (const std::string& engine : reader.children(table)) {
    const std::string key = table + "." + engine;
    const auto found = std::find(engines.begin(), engines.end(), engine);
    if (found == engines.end()) {
      const std::string near = nearest(engine, engines);
      reader.fail(key, "is not of an engine",
                  near.empty() ? "write tensor, vector, scalar, gpsimd or dma"
                               : "did you mean " + near + "?");
    }
    speeds[size_t(found - engines.begin())] = speed_of(reader.rational(key, number, Range::share));
  }
}

int64_t parts_of(const Chip& chip) {
  switch (chip.architecture) {
    case Architecture::neuroncore:
      return chip.neuron.cores;
    case Architecture::tpu:
      return chip.tpu.cores;
    case Architecture::gpu:
      break;
  }
  return 1;
}

void read_chip(Reader& reader, Chip& chip) {
  chip.name = reader.word("chip.name");
  const std::string architecture =
      reader.deciding_word("chip.architecture", {"neuroncore", "gpu", "tpu"});
  for (const Architecture known :
       {Architecture::neuroncore, Architecture::gpu, Architecture::tpu}) {
    if (architecture == architecture_name(known)) chip.architecture = known;
  }
  read_peaks(reader, chip.peaks);
  read_hbm(reader, chip.hbm);
  read_compute(reader, chip);
  read_interference(reader, chip.interference);
  for (const char* engine : kEngines) {
    const std::string key = std::string("chip.engine.") + engine;
    if (reader.has(key)) chip.engine_names[engine] = reader.word(key);
  }
  chip.ranks_per_chip_allowed = reader.list("chip.ranks_per_chip");
  read_collectives(reader, chip);
  const int64_t parts = parts_of(chip);
  for (const int64_t ranks : chip.ranks_per_chip_allowed) {
    if (parts > 0 && parts % ranks != 0) {
      reader.fail("chip.ranks_per_chip", "does not divide the chip's cores",
                  "write divisors of " + std::to_string(parts));
    }
  }
}

// The largest share of a link that an algorithm of the library's keeps busy inside of a pod.
Rational busiest_share(const Collectives& library) {
  Rational most = library.link_efficiency;
  for (const Rational& share :
       {library.mesh_efficiency, library.rdh_efficiency, library.multicast_efficiency}) {
    if (most < share) most = share;
  }
  return most;
}

void scale_links_in_pod(Machine& machine, Rational factor) {
  for (Rational* rate : {&machine.switch_port_Bps, &machine.hypercube_Bps}) *rate = *rate * factor;
  for (Rational& rate : machine.torus_axis_Bps) rate = rate * factor;
}

void scale_links_between(Machine& machine, Rational factor) {
  for (Rational* rate : {&machine.fabric.nic_Bps, &machine.fabric.port_Bps}) {
    *rate = *rate * factor;
  }
}

// What a training step gets of the rates of links.
void scale_links(Machine& machine) {
  scale_links_in_pod(machine, machine.stack.link_factor);
  scale_links_between(machine, machine.stack.network_factor);
}

// Of the place where the machine stands.
void read_site(Reader& reader, Machine& machine) {
  const std::string pue = "site.pue", grid = "site.grid_intensity";
  if (reader.has(pue)) {
    machine.pue = reader.rational(pue, number);
    if (machine.pue < Rational{1, 1}) {
      reader.fail(pue, "is below 1, and a site draws no less than what it houses",
                  "write the power of the site over that, such as 1.1");
    }
  }
  if (reader.has(grid)) {
    machine.grid_kg_per_kWh = reader.rational(grid, carbon, Range::not_negative);
  }
}

void read_price_and_power(Reader& reader, Machine& machine) {
  const auto read = [&](const char* key, Dimension dimension) {
    return reader.has(key) ? reader.rational(key, dimension, Range::not_negative) : Rational{};
  };
  machine.price_per_chip_hour_usd = read("price.per_chip_hour", price);
  const char* instance = "price.instance_chips";
  if (reader.has(instance)) machine.instance_chips = reader.whole(instance, number);
  machine.power_per_chip_W = read("power.per_chip", power);
  machine.power_package_W = read("power.package", power);
}

uint64_t hash_of(const Machine& machine) {
  uint64_t hash = hash_bytes("machine");
  for (const Figure& figure : machine.figures) {  // a sum: the order in the file says nothing
    hash += hash_bytes(figure.unit, hash_bytes(figure.value, hash_bytes(figure.key)));
  }
  return mix64(hash);
}

}  // namespace

const char* architecture_name(Architecture architecture) {
  switch (architecture) {
    case Architecture::neuroncore:
      return "neuroncore";
    case Architecture::gpu:
      return "gpu";
    case Architecture::tpu:
      return "tpu";
  }
  return "neuroncore";
}

const AttentionKernels* Chip::attention() const {
  if (architecture == Architecture::gpu) return &gpu.attention;
  return architecture == Architecture::tpu ? &tpu.attention : nullptr;
}

const char* confidence_name(Confidence confidence) {
  switch (confidence) {
    case Confidence::measured:
      return "measured";
    case Confidence::published:
      return "published";
    case Confidence::inferred:
      return "inferred";
    case Confidence::guessed:
      return "guessed";
    case Confidence::given:
      return "given";
  }
  return "guessed";
}

Confidence parse_confidence(const std::string& name) {
  for (const Confidence confidence :
       {Confidence::measured, Confidence::published, Confidence::inferred, Confidence::guessed,
        Confidence::given}) {
    if (name == confidence_name(confidence)) return confidence;
  }
  throw Error(ErrorKind::machine, "'" + name + "' is not a confidence",
              "write measured, published, inferred, guessed or given");
}

const Figure* Machine::figure(const std::string& key) const {
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const Figure& figure) { return figure.key == key; });
  return found == figures.end() ? nullptr : &*found;
}

std::string Machine::engine_name(const std::string& engine) const {
  if (engine == "host_link") return "link to the host";
  const auto found = chip.engine_names.find(engine);
  return found == chip.engine_names.end() ? engine + " engine" : found->second;
}

Machine make_machine(const std::string& name, const std::string& description,
                     const std::vector<Figure>& figures) {
  Machine machine;
  machine.name = name;
  machine.description = description;
  machine.figures = figures;
  Reader reader(name, machine.figures);
  read_chip(reader, machine.chip);
  read_network(reader, machine);
  read_multicast(reader, machine);
  read_price_and_power(reader, machine);
  read_site(reader, machine);
  machine.stack = read_stack(reader);
  scale_links(machine);
  reader.finish();
  machine.hash = hash_of(machine);
  return machine;
}

Machine at_line_rate(const Machine& machine) {
  const Rational most = busiest_share(machine.chip.collectives), one{1, 1};
  const Rational line = most.is_zero() ? one : Rational{most.denominator, most.numerator};
  const Stack& stack = machine.stack;
  if (!(line < stack.link_factor) && !(one < stack.network_factor)) return machine;
  Machine slower = machine;
  if (line < stack.link_factor) {
    scale_links_in_pod(slower, line / stack.link_factor);
    slower.stack.link_factor = line;
  }
  if (one < stack.network_factor) {
    scale_links_between(slower, one / stack.network_factor);
    slower.stack.network_factor = one;
  }
  return slower;
}

bool operator==(const Machine& a, const Machine& b) {
  const auto sorted = [](std::vector<Figure> figures) {
    std::sort(figures.begin(), figures.end(),
              [](const Figure& x, const Figure& y) { return x.key < y.key; });
    return figures;
  };
  return a.description == b.description && sorted(a.figures) == sorted(b.figures);
}

}  // namespace trnsim::machine
