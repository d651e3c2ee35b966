// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "machine/machine.h"

#include <algorithm>

#include "base/hash.h"
#include "machine/reader.h"

namespace trnsim::machine {
namespace {

using enum Dimension;

std::map<std::string, Rational> read_by_dtype(Reader& reader, const std::string& prefix,
                                              Dimension dimension, Range range) {
  static const std::vector<std::string> kDtypes = {
      "bfloat16",        "float16",       "tf32",        "float32",
      "float64",         "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
      "float8_e5m2fnuz", "int8"};
  std::map<std::string, Rational> values;
  for (const std::string& dtype : reader.children(prefix)) {
    const std::string key = prefix + "." + dtype;
    if (std::find(kDtypes.begin(), kDtypes.end(), dtype) == kDtypes.end()) {
      const std::string near = nearest(dtype, kDtypes);
      reader.fail(key, "is not of a dtype",
                  near.empty() ? "write a PyTorch dtype, or tf32" : "did you mean " + near + "?");
    }
    values[dtype] = reader.rational(key, dimension, range);
  }
  for (const char* dtype : {"bfloat16", "float32"}) {
    if (values.count(dtype) == 0) reader.rational(prefix + "." + dtype, dimension, range);
  }
  return values;
}

void read_peaks(Reader& reader, Peaks& peaks) {
  const std::string published = "chip.peak.published", physical = "chip.peak.physical";
  peaks.published_flops = read_by_dtype(reader, published, flops, Range::positive);
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

void read_neuroncore_engines(Reader& reader, NeuronCore& core) {
  const std::string at = "chip.neuroncore.";
  core.cores = reader.whole(at + "cores", number);
  core.cores_per_logical = reader.whole(at + "cores_per_logical", number);
  if (core.cores_per_logical > 0 && core.cores % core.cores_per_logical != 0) {
    reader.fail(at + "cores_per_logical", "does not divide the cores", "write a divisor of cores");
  }
  core.tensor_clock_Hz = reader.rational(at + "tensor_clock", frequency);
  core.vector_clock_Hz = reader.rational(at + "vector_clock", frequency);
  core.scalar_clock_Hz = reader.rational(at + "scalar_clock", frequency);
  core.gpsimd_clock_Hz = reader.rational(at + "gpsimd_clock", frequency);
  core.tensor_rows = reader.whole(at + "tensor_rows", number);
  core.tensor_columns = reader.whole(at + "tensor_columns", number);
  core.moving_max = reader.whole(at + "moving_max", number);
  core.min_cycles = reader.whole(at + "min_cycles", number);
  core.tensor_fp32_factor = reader.whole(at + "tensor_fp32_factor", number);
  core.gpsimd_start_cycles = reader.whole(at + "gpsimd_start_cycles", number);
  core.dynamic_cycles = reader.whole(at + "dynamic_cycles", number);
  core.vector_tt16_speedup = reader.rational(at + "vector_tt16_speedup", number);
  core.vector_tt32_speedup = reader.rational(at + "vector_tt32_speedup", number);
  core.tensor_efficiency = reader.rational(at + "tensor_efficiency", number, Range::share);
  core.tensor_small_tile_efficiency =
      reader.rational(at + "tensor_small_tile_efficiency", number, Range::share);
}

void read_neuroncore_memory(Reader& reader, NeuronCore& core) {
  const std::string at = "chip.neuroncore.";
  core.partitions = reader.whole(at + "partitions", number);
  core.sbuf_partition_bytes = reader.whole(at + "sbuf_partition", bytes);
  core.sbuf_resident_fraction =
      reader.rational(at + "sbuf_resident_fraction", number, Range::share);
  core.psum_partition_bytes = reader.whole(at + "psum_partition", bytes);
  core.dma_engines = reader.whole(at + "dma_engines", number);
  core.dma_engine_peak_Bps = reader.rational(at + "dma_engine_peak", bandwidth);
  core.dma_engine_Bps = reader.rational(at + "dma_engine_bandwidth", bandwidth);
  core.dma_sbuf_to_sbuf_Bps = reader.rational(at + "dma_sbuf_to_sbuf_bandwidth", bandwidth);
  core.dma_descriptor_ps = reader.time_ps(at + "dma_descriptor_latency");
  core.dge_ps = reader.time_ps(at + "dge_latency");
  core.dge_count = reader.whole(at + "dge_count", number);
  core.fill_ps = reader.time_ps(at + "fill_latency");
  core.drain_ps = reader.time_ps(at + "drain_latency");
  core.launch_ps = reader.time_ps(at + "launch_latency");
  core.collective_streams = reader.whole(at + "collective_streams", number);
}

void read_attention(Reader& reader, std::vector<AttentionRate>& rates) {
  const std::string prefix = "chip.gpu.attention";
  for (const std::string& size : reader.children(prefix)) {
    const bool number_after_d = size.size() > 1 && size.size() < 6 && size[0] == 'd' &&
                                size.find_first_not_of("0123456789", 1) == std::string::npos;
    for (const std::string& pass : reader.children(prefix + "." + size)) {
      const std::string at = prefix + "." + size + "." + pass;
      const std::vector<std::string> passes = {"forward", "forward_causal", "backward",
                                               "backward_causal"};
      if (!number_after_d || std::find(passes.begin(), passes.end(), pass) == passes.end()) {
        throw Error(ErrorKind::machine,
                    reader.machine_name() + ": " + at + " is not an attention rate",
                    "write chip.gpu.attention.d<head size>.forward, forward_causal, backward or "
                    "backward_causal");
      }
      AttentionRate rate;
      rate.head_size = std::stoll(size.substr(1));
      rate.backward = pass.starts_with("backward");
      rate.causal = pass.ends_with("_causal");
      rate.flops_inf = reader.rational(at + ".rate", flops);
      rate.half_length = reader.whole(at + ".half_length", number, Range::not_negative);
      rates.push_back(rate);
    }
  }
}

void read_gpu(Reader& reader, Gpu& gpu) {
  const std::string at = "chip.gpu.";
  gpu.multiprocessors = reader.whole(at + "multiprocessors", number);
  gpu.tile_rows = reader.whole(at + "tile_rows", number);
  gpu.tile_columns = reader.whole(at + "tile_columns", number);
  gpu.vector_flops = reader.rational(at + "vector_rate", flops);
  gpu.kernel_ps = reader.time_ps(at + "kernel_latency");
  gpu.host_launch_ps = reader.time_ps(at + "host_launch_latency");
  gpu.collective_streams = reader.whole(at + "collective_streams", number, Range::not_negative);
  gpu.gemm_efficiency = read_by_dtype(reader, at + "gemm_efficiency", number, Range::share);
  read_attention(reader, gpu.attention);
}

void read_collectives(Reader& reader, Collectives& collectives) {
  collectives.library = reader.deciding_word("collectives.library", {"neuron", "nccl"});
  collectives.ring_step_ps = reader.time_ps("collectives.ring_step_latency");
  collectives.link_efficiency =
      reader.rational("collectives.link_efficiency", number, Range::share);
  if (collectives.library == "nccl") {
    collectives.base_ps = reader.time_ps("collectives.base_latency");
    collectives.multicast_ps = reader.time_ps("collectives.multicast_latency");
    collectives.multicast_efficiency =
        reader.rational("collectives.multicast_efficiency", number, Range::share);
    const char* tree = "collectives.tree_efficiency";
    if (reader.has(tree)) collectives.tree_efficiency = reader.rational(tree, number, Range::share);
    return;
  }
  collectives.mesh_step_ps = reader.time_ps("collectives.mesh_step_latency");
  collectives.rdh_step_ps = reader.time_ps("collectives.rdh_step_latency");
  collectives.kanga_step_ps = reader.time_ps("collectives.kanga_step_latency");
  collectives.mesh_efficiency =
      reader.rational("collectives.mesh_efficiency", number, Range::share);
  collectives.rdh_efficiency = reader.rational("collectives.rdh_efficiency", number, Range::share);
  collectives.in_chip_copy_Bps = reader.rational("collectives.in_chip_copy_bandwidth", bandwidth);
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

void read_chip(Reader& reader, Chip& chip) {
  chip.name = reader.word("chip.name");
  const std::string architecture = reader.deciding_word("chip.architecture", {"neuroncore", "gpu"});
  chip.architecture = architecture == "gpu" ? Architecture::gpu : Architecture::neuroncore;
  read_peaks(reader, chip.peaks);
  read_hbm(reader, chip.hbm);
  if (chip.architecture == Architecture::gpu) {
    read_gpu(reader, chip.gpu);
  } else {
    read_neuroncore_engines(reader, chip.neuron);
    read_neuroncore_memory(reader, chip.neuron);
  }
  read_collectives(reader, chip.collectives);
  read_interference(reader, chip.interference);
  for (const char* engine : kEngines) {
    const std::string key = std::string("chip.engine.") + engine;
    if (reader.has(key)) chip.engine_names[engine] = reader.word(key);
  }
  chip.ranks_per_chip_allowed = reader.list("chip.ranks_per_chip");
  const int64_t parts = chip.architecture == Architecture::gpu ? 1 : chip.neuron.cores;
  for (const int64_t ranks : chip.ranks_per_chip_allowed) {
    if (parts > 0 && parts % ranks != 0) {
      reader.fail("chip.ranks_per_chip", "does not divide the chip's cores",
                  "write divisors of " + std::to_string(parts));
    }
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
  read_price_and_power(reader, machine);
  machine.stack = read_stack(reader);
  reader.finish();
  machine.hash = hash_of(machine);
  return machine;
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
