// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "make.h"

#include <algorithm>

#include "lower/collectives.h"

namespace trnsim::lower::testing {

using workload::RecordKind;

static machine::Machine common(const std::string& name) {
  machine::Machine machine;
  machine.name = name;
  machine.chip.name = name;
  return machine;
}

machine::Machine trainium(int64_t planes) {
  machine::Machine machine = common("trn2-golden");
  machine::NeuronCore& core = machine.chip.neuron;
  core.cores = 8;
  core.cores_per_logical = 2;
  core.tensor_clock_Hz = Rational::parse("2.4e9");
  core.vector_clock_Hz = Rational::parse("0.96e9");
  core.scalar_clock_Hz = core.gpsimd_clock_Hz = Rational::parse("1.2e9");
  core.tensor_rows = core.tensor_columns = core.partitions = 128;
  core.moving_max = 512;
  core.min_cycles = 64;
  core.tensor_fp32_factor = 4;
  core.gpsimd_start_cycles = 150;
  core.dynamic_cycles = 600;
  core.sbuf_partition_bytes = 212728;
  core.psum_partition_bytes = 16384;
  core.dma_engines = 16;
  core.dma_descriptor_ps = 35000;
  core.dma_engine_peak_Bps = Rational::parse("27.2e9");
  core.dma_engine_Bps = Rational::parse("23e9");
  core.dma_sbuf_to_sbuf_Bps = Rational::parse("217.6e9");
  core.dge_ps = 600'000;
  core.dge_count = 2;
  core.fill_ps = core.drain_ps = 1'900'000;
  core.tensor_fp8_speedup = 2;
  core.narrow_copy_speedup = 4;
  core.vector_tt16_speedup = core.vector_tt32_speedup = {1, 1};
  core.tensor_efficiency = core.tensor_small_tile_efficiency = {1, 1};
  core.sbuf_resident_fraction = Rational::parse("0.4");
  core.launch_ps = 13'000'000;
  core.collective_streams = 2;
  machine.chip.hbm = {96LL << 30, 0, Rational::parse("2.9e12"), {1, 1}};
  for (const char* dtype : {"bfloat16", "float16"}) {
    machine.chip.peaks.published_flops[dtype] = Rational::parse("667e12");
    machine.chip.peaks.physical_flops[dtype] = Rational::parse("629.1456e12");
  }
  machine.chip.peaks.published_flops["float32"] = Rational::parse("181e12");
  machine.chip.peaks.physical_flops["float32"] = Rational::parse("157.2864e12");
  machine::Collectives& library = machine.chip.collectives;
  library.library = "neuron";
  library.mesh_step_ps = library.rdh_step_ps = library.ring_step_ps = 1'500'000;
  library.kanga_step_ps = 2'000'000;
  library.mesh_efficiency = Rational::parse("0.5");
  library.rdh_efficiency = library.link_efficiency = {1, 1};
  library.in_chip_copy_Bps = Rational::parse("736e9");
  machine.chip.ranks_per_chip_allowed = {1, 4, 8};
  machine.server.chips = 16;
  machine.server.host_link_Bps = Rational::parse("31e9");
  machine.torus = {4, 4, planes};
  machine.torus_axis_Bps = {Rational::parse("128e9"), Rational::parse("128e9"),
                            Rational::parse("64e9")};
  machine.hop_ps = 1'000'000;
  return machine;
}

machine::Machine hopper() {
  machine::Machine machine = common("h100-golden");
  machine.chip.architecture = machine::Architecture::gpu;
  machine.scale_up = machine::ScaleUp::one_switch;
  machine.server.chips = 8;
  machine.server.host_link_Bps = Rational::parse("55e9");
  machine.chip.ranks_per_chip_allowed = {1};
  machine.chip.hbm = {80LL << 30, 0, Rational::parse("3.35e12"), Rational::parse("0.9")};
  machine.chip.peaks.published_flops["bfloat16"] = Rational::parse("989e12");
  machine.chip.peaks.published_flops["float32"] = Rational::parse("67e12");
  machine.chip.peaks.physical_flops = machine.chip.peaks.published_flops;
  machine::Gpu& gpu = machine.chip.gpu;
  gpu.multiprocessors = 132;
  gpu.tile_rows = 128;
  gpu.tile_columns = 256;
  gpu.gemm_efficiency["bfloat16"] = gpu.gemm_efficiency["float32"] = Rational::parse("0.82");
  gpu.vector_flops = Rational::parse("67e12");
  gpu.attention.used = "flash3";
  gpu.attention.rates["flash3"] = {{128, false, false, Rational::parse("655e12"), 206},
                                   {128, true, false, Rational::parse("640e12"), 610},
                                   {128, false, true, Rational::parse("580e12"), 428}};
  gpu.kernel_ps = 1'000'000;
  gpu.host_launch_ps = 5'000'000;
  gpu.collective_streams = 0;
  machine.chip.collectives.library = "nccl";
  machine.chip.collectives.ring_step_ps = 1'900'000;
  machine.chip.collectives.base_ps = 14'000'000;
  machine.chip.collectives.multicast_ps = 66'000'000;
  machine.chip.collectives.multicast_efficiency = Rational::parse("0.68");
  machine.chip.collectives.link_efficiency = Rational::parse("37/45");
  machine.switch_port_Bps = Rational::parse("450e9");
  return machine;
}

Script::Script() { workload.groups.push_back({"", workload::RankPattern::of({0})}); }

Script& Script::phase(workload::Phase phase) {
  phase_ = phase;
  return *this;
}

int32_t Script::storage(const std::string& name, int64_t bytes) {
  const auto [found, added] = storages_.try_emplace(name, int32_t(workload.storages.size()));
  if (added) {
    workload.storages.push_back(
        {bytes, int64_t(workload.records.size()), -1, workload::StorageKind::temporary});
  }
  return found->second;
}

Script& Script::stream(int32_t stream) {
  stream_ = stream;
  return *this;
}

Script& Script::region(const std::string& description) {
  region_ = description.empty() ? -1 : int32_t(workload.regions.size());
  if (!description.empty()) workload.regions.push_back(description);
  return *this;
}

workload::Record& Script::add(RecordKind kind) {
  workload::Record record;
  record.kind = kind;
  record.phase = phase_;
  record.stream = stream_;
  record.region = region_;
  record.uses_begin = int64_t(workload.uses.size());
  workload.records.push_back(record);
  return workload.records.back();
}

Script& Script::op(const std::string& text, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& outputs) {
  const workload::Signature signature = workload::Signature::parse(text);
  if (inputs.size() != signature.inputs.size() || outputs.size() != signature.outputs.size()) {
    throw Error(ErrorKind::workload, "names do not fit " + text);
  }
  std::vector<workload::TensorUse> uses;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int32_t id = storage(inputs[i], signature.inputs[i].meta.byte_count());
    uses.push_back({id, versions_[id]});
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int32_t id = storage(outputs[i], signature.outputs[i].meta.byte_count());
    uses.push_back({id, ++versions_[id]});
  }
  workload::Record& record = add(RecordKind::op);
  record.signature = workload::intern_signature(workload, signature, signatures_);
  record.uses_count = int32_t(uses.size());
  workload.uses.insert(workload.uses.end(), uses.begin(), uses.end());
  return *this;
}

Script& Script::call(workload::CallKind kind, int32_t group, int64_t bytes,
                     const std::string& name) {
  const int32_t id = storage(name, bytes);
  workload::Signature signature;
  signature.op = "c10d::call";
  workload::TensorSlot slot;
  slot.argument = "tensor";
  slot.mutated = true;
  slot.meta.sizes = {bytes / 4};
  slot.meta.strides = {1};
  signature.inputs.push_back(slot);
  workload::Call call;
  call.kind = kind;
  call.group = group;
  call.bytes = bytes;
  call.async = true;
  workload::Record& record = add(RecordKind::call);
  record.signature = workload::intern_signature(workload, signature, signatures_);
  record.payload = int32_t(workload.calls.size());
  record.uses_count = 2;
  workload.calls.push_back(call);
  workload.uses.push_back({id, versions_[id]});
  workload.uses.push_back({id, ++versions_[id]});
  return *this;
}

Script& Script::wait() {
  add(RecordKind::wait).payload = int32_t(workload.calls.size()) - 1;
  return *this;
}

Script& Script::host_read(const std::vector<std::string>& inputs) {
  workload::Record& record = add(RecordKind::host_read);
  record.uses_count = int32_t(inputs.size());
  for (const std::string& name : inputs) {
    const int32_t id = storages_.at(name);
    workload.uses.push_back({id, versions_[id]});
  }
  return *this;
}

Script& Script::marker(workload::MarkerKind kind) {
  workload::Record& record = add(RecordKind::marker);
  record.payload = int32_t(kind);
  record.value = 0;
  return *this;
}

Script& Script::free(const std::string& name) {
  workload.storages[size_t(storages_.at(name))].died = int64_t(workload.records.size());
  return *this;
}

int32_t Script::group(const std::vector<int64_t>& ranks) {
  workload.groups.push_back({"", workload::RankPattern::of(ranks)});
  return int32_t(workload.groups.size()) - 1;
}

Program Script::lower(const machine::Machine& machine, int64_t chips, int64_t ranks_per_chip,
                      const std::string& stack) const {
  machine::Placement placement;
  placement.chips = chips;
  placement.ranks_per_chip = ranks_per_chip;
  placement.ranks = chips * ranks_per_chip;
  placement.ranks_per_server = machine.server.chips * ranks_per_chip;
  return lower_step(workload, step(), machine, placement, {stack, ""});
}

std::vector<std::array<int64_t, 2>> run_alone(const Program& program,
                                              const machine::Machine& machine) {
  std::vector<std::array<int64_t, 2>> times(program.tasks.size());
  std::vector<int64_t> free_at(program.queues.size(), 0);
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    int64_t start = free_at[size_t(task.queue)], bound = 0;
    for (int32_t d = 0; d < task.deps_count; ++d) {
      const Dep& dep = program.deps[size_t(task.deps_begin + d)];
      const auto& other = times[size_t(dep.task)];
      if (dep.kind == DepKind::end) start = std::max(start, other[1] + dep.lag_ps);
      if (dep.kind == DepKind::start) start = std::max(start, other[0] + dep.lag_ps);
      if (dep.kind == DepKind::end_bound) bound = std::max(bound, other[1] + dep.lag_ps);
    }
    int64_t duration = task.duration_ps;
    if (task.call >= 0) duration = alone_ps(program.calls[size_t(task.call)], machine);
    times[i] = {start, std::max(start + duration, bound)};
    free_at[size_t(task.queue)] = times[i][1];
  }
  return times;
}

int64_t makespan(const Program& program, const machine::Machine& machine) {
  int64_t end = 0;
  for (const auto& time : run_alone(program, machine)) end = std::max(end, time[1]);
  return end;
}

}  // namespace trnsim::lower::testing
