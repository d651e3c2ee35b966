// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Cost: what one op asks of a rank, and the registry of rules that say so.
//
// A rule is a pure function (signature, target) -> Cost: no clock, no globals, no random numbers.
// On a NeuronCore machine it counts cycles of each engine of ONE core after the op was split over
// the rank's cores, and HBM bytes of the WHOLE rank, stream by stream, so that fusion can drop the
// streams that stay inside a group. On a GPU or TPU only streams, GEMM shapes and FLOPs matter.
//
// Rules are found by op name: "aten::add.Tensor" looks for that, then "aten::add", then the same
// without the underscore of an in-place form. Registering a name twice is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lower/program.h"

namespace trnsim::lower {

// The share of a chip that one rank has.
struct Target {
  machine::Architecture architecture = machine::Architecture::neuroncore;
  machine::Chip chip;
  int64_t ranks_per_chip = 1;
  int64_t cores = 1;  // physical cores of the rank; 1 on a GPU or TPU
  Rational hbm_Bps;   // of the rank, at the efficiency of long streams
  Rational hbm_peak_Bps, host_link_Bps;
  // Products of which one op has many: what they get of the rate, and how often the host launches
  // something for each of them, 0 where one launch is for all.
  Rational grouped_factor{1, 1}, grouped_launches{0, 1};
  bool copies_parameters = true;  // around the messages of FSDP, as machine::Stack says

  bool is_neuron() const { return architecture == machine::Architecture::neuroncore; }
  bool is_gpu() const { return architecture == machine::Architecture::gpu; }
  bool is_tpu() const { return architecture == machine::Architecture::tpu; }
  const machine::NeuronCore& core() const { return chip.neuron; }
  // Of a compiled graph: its launch, and what its first load and its last store take beside their
  // bytes.
  int64_t launch_ps() const;
  int64_t fill_ps() const { return is_neuron() ? core().fill_ps : 0; }
  int64_t drain_ps() const { return is_neuron() ? core().drain_ps : 0; }
  int64_t collective_streams() const;  // 0 = one a process group
};
Target make_target(const machine::Machine& machine, int64_t ranks_per_chip);

enum class Fusion : uint8_t {
  anchor,     // GEMM, convolution, attention: at most one a group, takes an epilogue
  pointwise,  // element in, element out
  rows,       // reads whole rows (norm, softmax, reduction of the last axis)
  alone,      // own kernel: nothing joins it
  nothing     // allocation only: no task
};

// HBM traffic of one tensor of the signature.
struct Stream {
  int32_t slot = -1;       // index in inputs, or in outputs; -1 = of the rule itself
  bool is_output = false;  // slot counts outputs
  bool is_write = false;
  int64_t bytes = 0;             // of the whole rank, reloads and copies for several cores included
  int64_t run_bytes = 0;         // of one DMA descriptor
  int64_t transpose_blocks = 0;  // 128 x 128 blocks, per core, if it has to be transposed
};

struct GemmShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t k_tiles = 0;       // tiles of the contraction, 0 = as many as k fills
  bool is_of_group = false;  // one of unequal products that one kernel makes; `batch` of them
};
struct AttentionShape {
  int64_t heads = 0;  // batch included
  int64_t query_length = 0, key_length = 0, head_size = 0, value_size = 0;
  bool causal = false, backward = false;
};

struct Cost {
  std::string rule;
  RuleClass rule_class = RuleClass::formula;
  Fusion fusion = Fusion::alone;
  // Cycles of one core.
  int64_t tensor_cycles = 0, vector_cycles = 0, scalar_cycles = 0, gpsimd_cycles = 0;
  int64_t evacuation_cycles = 0;  // part of vector_cycles that an epilogue takes over
  int64_t dma_copy_ps = 0;        // SBUF to SBUF, beside the streams
  int64_t least_dma_ps = 0;       // descriptor generation: no copy is faster
  int64_t host_link_ps = 0;       // on the link to the host, for a copy over it
  int8_t host_link = -1;          // which way: 0 to the host, 1 from it; -1 = no such copy
  std::vector<Stream> streams;
  // The domain: fusion joins equal ones.
  int64_t elements = 0, row_length = 0;
  // FLOPs of the rank.
  std::string dtype;
  int128 model_flops = 0, model_flops_causal = 0, executed_flops = 0;
  std::vector<GemmShape> gemms;             // for tiles and waves of a GPU, padding of a TPU
  std::optional<AttentionShape> attention;  // for the attention table of either
};

// What one op may count: far beyond any device, and small enough that neither the products of a
// rule nor the time of an op leaves 64 bits. A step of too many such ops is the simulation's to
// refuse.
inline constexpr int64_t kMostElements = int64_t{1} << 48;  // of one tensor
inline constexpr int64_t kMostBytes = int64_t{1} << 56;     // of one stream
inline constexpr int64_t kMostCycles = int64_t{1} << 52;
inline constexpr int64_t kMostFlops = int64_t{1} << 62;
// Throws LowerError that names the op and its shapes when `count` is above `most`.
void check_count(const workload::Signature& signature, const char* of, int128 count, int64_t most);

using CostFunction = std::function<Cost(const workload::Signature&, const Target&)>;
struct Rule {
  std::string op;      // "aten::mm", or with an overload
  std::string family;  // "matmul"
  std::string source;  // where the formula comes from
  CostFunction cost;
};

class Registry {
 public:
  void add(const Rule& rule);  // throws LowerError when the op has a rule
  const Rule* find(const std::string& op) const;
  const std::map<std::string, Rule>& rules() const { return rules_; }

 private:
  std::map<std::string, Rule> rules_;
};

const Registry& registry();  // all families, made once
// The op's rule, or the fallback: its bytes, on the vector engine and the HBM. Throws LowerError
// when the op counts more than one may.
Cost cost_of(const workload::Signature& signature, const Target& target);

// How a sort of more than a few values of a row is timed, which is not published: for a report in
// which it matters. Nothing for other ops.
std::optional<Guess> guess_of_sort(const workload::Signature& signature, const Target& target);

}  // namespace trnsim::lower
