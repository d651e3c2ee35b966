// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The figures of what computes on a chip, by its architecture, and of its collective library.
#include <algorithm>

#include "machine/reader.h"

namespace trnsim::machine {
namespace {

using enum Dimension;

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
  core.tensor_fp8_speedup = reader.whole(at + "tensor_fp8_speedup", number);
  core.narrow_copy_speedup = reader.whole(at + "narrow_copy_speedup", number);
  core.narrow_activation_speedup = reader.whole(at + "narrow_activation_speedup", number);
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

// "d128" is 128, anything else 0.
int64_t head_size_of(const std::string& part) {
  const bool is_size = part.size() > 1 && part.size() < 6 && part[0] == 'd' &&
                       part.find_first_not_of("0123456789", 1) == std::string::npos;
  return is_size ? std::stoll(part.substr(1)) : 0;
}

AttentionRate read_attention_rate(Reader& reader, const std::string& at, const std::string& size,
                                  const std::string& pass) {
  const std::vector<std::string> passes = {"forward", "forward_causal", "backward",
                                           "backward_causal"};
  AttentionRate rate;
  rate.head_size = head_size_of(size);
  if (rate.head_size == 0 || std::find(passes.begin(), passes.end(), pass) == passes.end()) {
    throw Error(ErrorKind::machine, reader.machine_name() + ": " + at + " is not an attention rate",
                "write <kernel>.d<head size>.forward, forward_causal, backward or backward_causal "
                "behind 'attention.'");
  }
  rate.backward = pass.starts_with("backward");
  rate.causal = pass.ends_with("_causal");
  rate.flops_inf = reader.rational(at + ".rate", flops);
  rate.half_length = reader.whole(at + ".half_length", number, Range::not_negative);
  return rate;
}

// Of chip.gpu or chip.tpu.
void read_attention(Reader& reader, const std::string& chip, AttentionKernels& kernels) {
  const std::string prefix = chip + ".attention";
  for (const std::string& kernel : reader.children(prefix)) {
    const std::string of_kernel = prefix + "." + kernel;
    if (head_size_of(kernel) > 0) {
      throw Error(
          ErrorKind::machine,
          reader.machine_name() + ": " + of_kernel + " names no attention kernel",
          "write " + prefix + ".<kernel>." + kernel + ", such as " + prefix + ".flash2." + kernel);
    }
    for (const std::string& size : reader.children(of_kernel)) {
      for (const std::string& pass : reader.children(of_kernel + "." + size)) {
        kernels.rates[kernel].push_back(
            read_attention_rate(reader, of_kernel + "." + size + "." + pass, size, pass));
      }
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, rates] : kernels.rates) names.push_back(name);
  const std::string used = chip + ".attention_kernel";
  kernels.used = reader.word(used, names);
  if (names.empty() && reader.has(used)) {
    reader.fail(used, "has no rates", "add " + prefix + "." + kernels.used + ".d128.forward");
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
  gpu.gemm_efficiency = reader.by_dtype(at + "gemm_efficiency", number, Range::share);
  read_attention(reader, "chip.gpu", gpu.attention);
}

void read_tpu(Reader& reader, Tpu& tpu) {
  const std::string at = "chip.tpu.";
  tpu.cores = reader.whole(at + "cores", number);
  tpu.mxu = reader.whole(at + "mxu", number);
  tpu.sublanes = reader.whole(at + "sublanes", number);
  tpu.vmem_bytes = reader.whole(at + "vmem", bytes);
  tpu.vmem_resident_fraction = reader.rational(at + "vmem_resident_fraction", number, Range::share);
  tpu.fusion_ps = reader.time_ps(at + "fusion_latency");
  tpu.launch_ps = reader.time_ps(at + "launch_latency");
  tpu.collective_streams = reader.whole(at + "collective_streams", number, Range::not_negative);
  tpu.gemm_efficiency = reader.by_dtype(at + "gemm_efficiency", number, Range::share);
  read_attention(reader, "chip.tpu", tpu.attention);
}

void read_neuron_collectives(Reader& reader, Collectives& collectives) {
  collectives.mesh_step_ps = reader.time_ps("collectives.mesh_step_latency");
  collectives.rdh_step_ps = reader.time_ps("collectives.rdh_step_latency");
  collectives.kanga_step_ps = reader.time_ps("collectives.kanga_step_latency");
  collectives.mesh_efficiency =
      reader.rational("collectives.mesh_efficiency", number, Range::share);
  collectives.rdh_efficiency = reader.rational("collectives.rdh_efficiency", number, Range::share);
  collectives.in_chip_copy_Bps = reader.rational("collectives.in_chip_copy_bandwidth", bandwidth);
}

}  // namespace

void read_compute(Reader& reader, Chip& chip) {
  switch (chip.architecture) {
    case Architecture::gpu:
      return read_gpu(reader, chip.gpu);
    case Architecture::tpu:
      return read_tpu(reader, chip.tpu);
    case Architecture::neuroncore:
      read_neuroncore_engines(reader, chip.neuron);
      read_neuroncore_memory(reader, chip.neuron);
  }
}

void read_multicast(Reader& reader, Machine& machine) {
  Collectives& collectives = machine.chip.collectives;
  const std::string latency = "collectives.multicast_latency";
  if (collectives.library != "nccl") return;
  const char* tree = "collectives.tree_efficiency";
  if (reader.has(tree)) collectives.tree_efficiency = reader.rational(tree, number, Range::share);
  if (reader.has("collectives.ll_efficiency")) {
    collectives.ll_efficiency = reader.rational("collectives.ll_efficiency", number, Range::share);
    collectives.ll_base_ps = reader.time_ps("collectives.ll_base_latency");
    collectives.ll_ring_step_ps = reader.time_ps("collectives.ll_ring_step_latency");
  }
  if (!machine.switch_multicasts && !reader.has(latency)) return;
  collectives.multicast_ps = reader.time_ps(latency);
  collectives.multicast_efficiency =
      reader.rational("collectives.multicast_efficiency", number, Range::share);
}

void read_collectives(Reader& reader, Chip& chip) {
  Collectives& collectives = chip.collectives;
  collectives.library = reader.deciding_word("collectives.library", {"neuron", "nccl", "tpu"});
  collectives.ring_step_ps = reader.time_ps("collectives.ring_step_latency");
  collectives.link_efficiency =
      reader.rational("collectives.link_efficiency", number, Range::share);
  const bool is_neuron = collectives.library == "neuron";  // where only a stack sheet may have it
  if (!is_neuron || reader.has("collectives.base_latency")) {
    collectives.base_ps = reader.time_ps("collectives.base_latency");
  }
  if (is_neuron) return read_neuron_collectives(reader, collectives);
  if (collectives.library != "tpu") return;
  if (!chip.ranks_per_chip_allowed.empty() && chip.ranks_per_chip_allowed.back() > 1) {
    collectives.in_chip_copy_Bps = reader.rational("collectives.in_chip_copy_bandwidth", bandwidth);
  }
}

}  // namespace trnsim::machine
