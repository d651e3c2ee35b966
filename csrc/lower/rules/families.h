// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The families of cost rules, one file each, and what they share.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lower/cost.h"

namespace trnsim::lower::rules {

using workload::DType;
using workload::Signature;
using workload::TensorMeta;
using workload::TensorSlot;

void register_attention(Registry& registry);
void register_convolution(Registry& registry);
void register_indexing(Registry& registry);
void register_matmul(Registry& registry);
void register_movement(Registry& registry);
void register_named(Registry& registry);
void register_normalization(Registry& registry);
void register_optimizer(Registry& registry);
void register_pointwise(Registry& registry);
void register_pooling(Registry& registry);
void register_random(Registry& registry);
void register_reduction(Registry& registry);
void register_rnn(Registry& registry);
void register_softmax_loss(Registry& registry);
void register_sort(Registry& registry);
Cost fallback_cost(const Signature& signature, const Target& target);
// The cost that the script gave (trnsim.cost).
bool has_given_cost(const Signature& signature);
bool has_given_cycles(const Signature& signature);  // of Trainium's engines
Cost given_cost(const Signature& signature, const Target& target);

// Elements and bytes that are touched: an expanded axis (stride 0) counts once.
int64_t touched_elements(const TensorMeta& meta);
int64_t touched_bytes(const TensorMeta& meta);
// Bytes of the longest contiguous piece of memory, whatever the order of the axes.
int64_t run_bytes(const TensorMeta& meta);
bool is_dense(const TensorMeta& meta);  // a permutation of a contiguous tensor
int64_t last_size(const TensorMeta& meta);

// The tensor that says how much work there is: the first output, else the first written input,
// else the first input. Null when the op has no tensor.
const TensorMeta* domain(const Signature& signature);
// Element counts of a list op's tensors (of the domain alone for any other op).
std::vector<int64_t> element_counts(const Signature& signature);
// No large tensor is wider than 16 bits: the vector engine's fast modes. Statistics, indices and
// weights of a row, less than half of the largest tensor, do not count.
bool is_narrow(const Signature& signature);

// A Cost with the domain, and one stream a tensor: reads of every input but those overwritten
// whole, writes of every output and of written inputs that are not outputs.
Cost make_cost(const Signature& signature, const Target& target, const std::string& rule,
               Fusion fusion);
void add_read(Cost& cost, const Signature& signature, const Target& target, int32_t input);
void add_write(Cost& cost, const Signature& signature, const Target& target, int32_t output);

// Cycles of one instruction over n elements a partition (table in csrc/lower/README.md).
class Instructions {
 public:
  Instructions(const Target& target, bool narrow) : core_(target.core()), narrow_(narrow) {}
  int64_t at_least(int64_t cycles) const { return std::max(core_.min_cycles, cycles); }
  int64_t tensor_scalar(int64_t n) const { return quick(n, core_.narrow_copy_speedup); }
  int64_t tensor_tensor(int64_t n) const;                      // add, mul, sub
  int64_t select(int64_t n) const { return at_least(2 * n); }  // divide, compare, predicated copy
  int64_t reduce(int64_t n) const { return at_least(narrow_ ? ceil_div<int64_t>(n, 2) : n); }
  int64_t vector(int64_t n) const { return at_least(n); }
  int64_t activation(int64_t n) const { return quick(n, core_.narrow_activation_speedup); }
  int64_t activation_reduce(int64_t n) const { return activation(n) + core_.min_cycles; }
  int64_t gpsimd(int64_t n) const { return core_.gpsimd_start_cycles + n; }
  // bn_stats in pieces of moving_max, then bn_aggr over six numbers a piece.
  int64_t aggregate(int64_t n) const {
    return at_least(ceil_div<int64_t>(13 * 6 * ceil_div(n, core_.moving_max), 3));
  }

 private:
  int64_t quick(int64_t n, int64_t speedup) const {
    return at_least(narrow_ ? ceil_div(n, speedup) : n);
  }

  const machine::NeuronCore& core_;
  bool narrow_;
};

// The words of a text: names of ops.
std::vector<std::string> words(const char* text);

// Integers of a scalar list ("kernel_size"), empty when it is absent; a single integer is one.
std::vector<int64_t> int_list(const Signature& signature, const std::string& name);
// Index of the tensor argument, -1 when it is absent.
int32_t find_input(const Signature& signature, const std::string& argument);
const TensorMeta* meta_of(const Signature& signature, const std::string& argument);  // or null
// The stream that reads input `input`, or writes output `output`; null when there is none.
Stream* read_stream(Cost& cost, int32_t input);
Stream* write_stream(Cost& cost, int32_t output);

// Elements a partition when `elements` are spread over all partitions of all cores of the rank.
int64_t per_partition(int64_t elements, const Target& target);
// Row tiles of one core when rows are split over the cores.
int64_t row_tiles(int64_t rows, const Target& target);
// Whether rows on the partitions would leave half of them idle, or more.
bool leave_half_idle(int64_t rows, const Target& target);

// A dimension split over the cores: the largest of batch, rows and columns is halved while at least
// one batch, 128 rows or 512 columns remain, once for each doubling of cores.
struct Split {
  int64_t batch = 1, rows = 1, columns = 1;  // of one core
};
Split split_over_cores(int64_t batch, int64_t rows, int64_t columns, const Target& target);

// Adds one GEMM (batch x [m,k] x [k,n]) to a Cost: cycles, shape and executed FLOPs.
struct GemmPlan {
  int64_t tensor_cycles = 0, evacuation_cycles = 0, last_evacuation_cycles = 0;
  int64_t a_bytes = 0, b_bytes = 0, out_bytes = 0;  // of the whole rank
  int64_t run_limit = 0;               // largest descriptor of a blocked load, 0 = none
  int64_t a_blocks = 0, b_blocks = 0;  // 128 x 128 blocks of the operands, per core
};
GemmPlan plan_gemm(GemmShape shape, DType dtype, const Target& target);

}  // namespace trnsim::lower::rules
