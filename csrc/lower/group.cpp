// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "lower/group.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "lower/rules/families.h"

namespace trnsim::lower {
namespace {

// A transposing DMA from HBM reaches at most this share of its rate.
constexpr Rational kDmaTransposeShare{9, 10};

struct Load {
  int64_t bytes = 0, run_bytes = 0, timed_bytes = 0;
  bool is_weight = false;
};

// value, offset, touched bytes: two readers of the same piece load it once.
using PieceKey = std::tuple<int32_t, int64_t, int64_t>;

class GroupCoster {
 public:
  GroupCoster(const Plan& plan, int32_t unit, const workload::Workload& workload,
              const Target& target)
      : plan_(plan), unit_(unit), workload_(workload), target_(target) {}

  GroupCost run() {
    for (const Member& member : plan_.units[size_t(unit_)].members) add(member);
    finish_dma();
    finish_engines();
    return std::move(group_);
  }

 private:
  void add(const Member& member) {
    const Cost& cost = *member.cost;
    cycles_[0] += cost.tensor_cycles;
    cycles_[1] += cost.vector_cycles;
    cycles_[2] += cost.scalar_cycles;
    cycles_[3] += cost.gpsimd_cycles;
    dma_copy_ps_ += cost.dma_copy_ps;
    least_dma_ps_ += cost.least_dma_ps + cost.host_link_ps;
    group_.host_link_ps += cost.host_link_ps;
    if (cost.evacuation_cycles > 0 && has_epilogue(member)) cycles_[1] -= cost.evacuation_cycles;
    for (const int32_t value : member.inputs) note_producer(value);
    for (const Stream& stream : cost.streams) {
      if (stream.slot < 0) {
        add_own(stream);
      } else if (stream.is_write) {
        add_store(member, stream);
      } else {
        add_load(member, stream);
      }
    }
  }

  // The anchor's output is read by a member: that pass takes the place of the evacuation.
  bool has_epilogue(const Member& anchor) const {
    if (anchor.written.empty()) return false;
    for (const Member& member : plan_.units[size_t(unit_)].members) {
      if (&member == &anchor || member.cost->vector_cycles + member.cost->scalar_cycles == 0) {
        continue;
      }
      for (const int32_t value : member.inputs) {
        if (value >= 0 && value == anchor.written[0]) return true;
      }
    }
    return false;
  }

  void note_producer(int32_t value) {
    if (value < 0) return;
    const int32_t producer = plan_.values[size_t(value)].producer;
    if (producer < 0 || producer == unit_) return;
    group_.producers.push_back(producer);
  }

  void add_own(const Stream& stream) {
    (stream.is_write ? stores_ : loads_).add(stream.bytes, stream.run_bytes, target_);
    (stream.is_write ? group_.write_bytes : group_.read_bytes) += stream.bytes;
  }

  void add_load(const Member& member, const Stream& stream) {
    const int32_t index = member.inputs[size_t(stream.slot)];
    const auto& slot = workload_.signature_of(workload_.records[size_t(member.record)])
                           .inputs[size_t(stream.slot)];
    const int64_t touched = rules::touched_bytes(slot.meta);
    int64_t timed = stream.bytes;
    bool is_weight = true;
    if (index >= 0) {
      const Value& value = plan_.values[size_t(index)];
      if (value.producer == unit_) return;
      is_weight = value.producer < 0;
      const bool resident = stays_on_chip(plan_, value, unit_, target_);
      if (stream.transpose_blocks > 0 && !is_weight) {
        add_transpose(stream.transpose_blocks, slot.meta, resident && from_gemm(value));
      }
      if (resident) return;
    }
    if (stream.transpose_blocks > 0 && is_weight) {
      timed = scale_up(timed, Rational{1, 1} / kDmaTransposeShare);
    }
    Load& load = pieces_[{index, slot.meta.offset, touched}];
    if (stream.bytes > load.bytes) load.bytes = stream.bytes;
    load.timed_bytes = std::max(load.timed_bytes, timed);
    load.run_bytes =
        load.run_bytes == 0 ? stream.run_bytes : std::min(load.run_bytes, stream.run_bytes);
    load.is_weight = is_weight;
  }

  bool from_gemm(const Value& value) const {
    return plan_.units[size_t(value.producer)].has_anchor;
  }

  // A GEMM can emit its result transposed; anything else is transposed by the tensor engine, 128
  // cycles a block, and evacuated like a tensor_copy from PSUM.
  void add_transpose(int64_t blocks, const workload::TensorMeta& meta, bool emitted_transposed) {
    if (emitted_transposed || !target_.is_neuron()) return;
    const machine::NeuronCore& core = target_.core();
    const bool narrow = workload::dtype_bytes(meta.dtype) <= 2;
    cycles_[0] += blocks * core.partitions;
    cycles_[1] += blocks * (narrow ? core.partitions / 2 : core.partitions);
  }

  void add_store(const Member& member, const Stream& stream) {
    const auto& signature = workload_.signature_of(workload_.records[size_t(member.record)]);
    const int32_t index = value_of_write(member, signature, stream);
    if (index >= 0 && !is_written(plan_.values[size_t(index)])) return;
    stores_.add(stream.bytes, stream.run_bytes, target_);
    group_.write_bytes += stream.bytes;
  }

  static int32_t value_of_write(const Member& member, const workload::Signature& signature,
                                const Stream& stream) {
    if (stream.is_output) return member.written[size_t(stream.slot)];
    size_t index = signature.outputs.size();
    for (int32_t i = 0; i < stream.slot; ++i) index += signature.inputs[size_t(i)].mutated;
    return member.written[index];
  }

  bool is_written(const Value& value) const {
    if (value.must_write || !plan_.units[size_t(unit_)].fused) return true;
    return std::any_of(value.readers.begin(), value.readers.end(), [&](int32_t reader) {
      return !stays_on_chip(plan_, value, reader, target_);
    });
  }

  void finish_dma() {
    DmaLoad weights, all;
    for (const auto& [key, load] : pieces_) {
      if (load.is_weight) weights.add(load.timed_bytes, load.run_bytes, target_);
      loads_.add(load.timed_bytes, load.run_bytes, target_);
      group_.read_bytes += load.bytes;
    }
    all = loads_;
    all.merge(stores_);
    group_.load_weights_ps = weights.duration_ps(target_);
    const int64_t loads_ps = loads_.duration_ps(target_);
    const int64_t all_ps = all.duration_ps(target_);
    group_.load_ps = loads_ps - group_.load_weights_ps + dma_copy_ps_;
    group_.store_ps = all_ps - loads_ps;
    group_.load_ps += std::max<int64_t>(0, least_dma_ps_ - group_.dma_ps());
    std::sort(group_.producers.begin(), group_.producers.end());
    group_.producers.erase(std::unique(group_.producers.begin(), group_.producers.end()),
                           group_.producers.end());
  }

  void finish_engines() {
    if (target_.is_tpu()) return finish_tpu();
    if (target_.is_gpu()) {
      const Cost& cost = *plan_.units[size_t(unit_)].members.front().cost;
      const GpuKernel kernel = gpu_kernel(cost, group_.read_bytes + group_.write_bytes, target_);
      group_.gpu_ps = kernel.time_ps;
      group_.gpu_bound = kernel.bound;
      return;
    }
    const machine::NeuronCore& core = target_.core();
    const std::array<Rational, 4> clocks{core.tensor_clock_Hz, core.vector_clock_Hz,
                                         core.scalar_clock_Hz, core.gpsimd_clock_Hz};
    for (size_t i = 0; i < 4; ++i) group_.engine_ps[i] = duration_ps(cycles_[i], clocks[i]);
    const bool idle =
        group_.dma_ps() == 0 && std::all_of(group_.engine_ps.begin(), group_.engine_ps.end(),
                                            [](int64_t ps) { return ps == 0; });
    if (idle) group_.engine_ps[1] = duration_ps(core.min_cycles, clocks[1]);
  }

  void finish_tpu() {
    int64_t matrix_ps = 0;
    for (const Member& member : plan_.units[size_t(unit_)].members) {
      matrix_ps += tpu_matrix_ps(*member.cost, target_);
    }
    const int64_t least_ps = target_.chip.tpu.fusion_ps;
    if (matrix_ps > 0) {
      group_.engine_ps[0] = matrix_ps + least_ps +
                            tpu_first_blocks_ps(group_.read_bytes + group_.write_bytes, target_);
    } else if (group_.dma_ps() < least_ps) {
      group_.engine_ps[1] = least_ps;
    }
  }

  const Plan& plan_;
  const int32_t unit_;
  const workload::Workload& workload_;
  const Target& target_;
  GroupCost group_;
  std::array<int64_t, 4> cycles_{};
  std::map<PieceKey, Load> pieces_;
  DmaLoad loads_, stores_;
  int64_t dma_copy_ps_ = 0, least_dma_ps_ = 0;
};

}  // namespace

GroupCost cost_group(const Plan& plan, int32_t unit, const workload::Workload& workload,
                     const Target& target) {
  return GroupCoster(plan, unit, workload, target).run();
}

namespace {

constexpr size_t kNamesShown = 4;

std::string group_name(const Unit& unit, const workload::Workload& workload) {
  std::string name;
  for (size_t i = 0; i < std::min(unit.members.size(), kNamesShown); ++i) {
    const auto& record = workload.records[size_t(unit.members[i].record)];
    name += (i ? " + " : "") + workload.signature_of(record).op;
  }
  if (unit.members.size() > kNamesShown) {
    name += " + " + std::to_string(unit.members.size() - kNamesShown) + " more";
  }
  return name;
}

const Member& anchor_of(const Unit& unit) {
  for (const Member& member : unit.members) {
    if (member.cost->fusion == Fusion::anchor) return member;
  }
  return unit.members.front();
}

// The longest engine alone.
void set_bound(Op& op, const GroupCost& group, const Target& target) {
  if (target.is_gpu()) {
    op.bound_ps = group.gpu_ps;
    op.bound = group.gpu_bound;
    return;
  }
  op.bound_ps = group.dma_ps();
  op.bound = group.host_link_ps > 0 && group.host_link_ps == op.bound_ps ? QueueKind::host
                                                                         : QueueKind::dma;
  for (size_t i = 0; i < 4; ++i) {
    if (group.engine_ps[i] > op.bound_ps) {
      op.bound_ps = group.engine_ps[i];
      op.bound = QueueKind(size_t(QueueKind::tensor) + i);
    }
  }
}

// What is computed again, and what an optimizer multiplies (Muon), is no work of the model.
bool counts_for_model(workload::Phase phase) {
  return phase != workload::Phase::recomputation && phase != workload::Phase::optimizer;
}

}  // namespace

Op make_op(const Plan& plan, int32_t unit_index, const workload::Workload& workload,
           const GroupCost& group, const Target& target) {
  const Unit& unit = plan.units[size_t(unit_index)];
  const Member& anchor = anchor_of(unit);
  Op op;
  op.name = group_name(unit, workload);
  op.rule = anchor.cost->rule;
  op.rule_class = RuleClass::formula;
  op.module = workload.records[size_t(anchor.record)].module;
  op.phase = unit.phase;
  op.read_bytes = group.read_bytes;
  op.write_bytes = group.write_bytes;
  int128 executed = 0;
  for (const Member& member : unit.members) {
    op.records.push_back(member.record);
    if (member.cost->rule_class == RuleClass::fallback) op.rule_class = RuleClass::fallback;
    executed += member.cost->executed_flops;
    if (!member.cost->dtype.empty()) op.dtype = member.cost->dtype;
    if (!counts_for_model(unit.phase)) continue;
    op.model_flops += member.cost->model_flops;
    op.model_flops_causal += member.cost->model_flops_causal;
  }
  set_bound(op, group, target);
  op.floor_ps = std::max(group.host_link_ps,
                         duration_ps(op.read_bytes + op.write_bytes, target.hbm_peak_Bps));
  const auto& peaks = target.chip.peaks.physical_flops;
  const auto peak = peaks.find(op.dtype);
  if (executed > 0 && peak != peaks.end()) {
    const Rational share = peak->second * Rational::of(1, target.ranks_per_chip);
    op.floor_ps = std::max(op.floor_ps, duration_ps(executed, share));
  }
  return op;
}

}  // namespace trnsim::lower
