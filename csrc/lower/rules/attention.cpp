// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Fused attention in tiles of 128 queries x 512 keys. The probabilities are transposed by DMA
// inside the SBUF, so that attention is bound by the vector engine or by that DMA, not by the
// tensor engine. Causal tiles above the diagonal are skipped at 512 keys (scores, exp) and 128 keys
// (values).
#include <cmath>

#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Attention'; nki-library@d2ad3a57 core/attention/attention_cte.py and "
    "attention_bwd.py; nki.isa: aws-neuron-sdk@1db4d74e nki/api/nki/isa/__init__.py";

constexpr int64_t kLargeTile = 2048;  // keys between two rescalings of the accumulator

struct Tiles {
  int64_t groups = 0;    // of 128 queries
  int64_t scores = 0;    // of 128 x 512
  int64_t values = 0;    // of 128 x 128
  int64_t large = 0;     // of 128 x 2048
  int64_t diagonal = 0;  // score tiles that need a mask
};

Tiles count_tiles(int64_t queries, int64_t keys, bool causal, const machine::NeuronCore& core) {
  Tiles tiles;
  const int64_t rows = core.partitions;
  tiles.groups = ceil_div(queries, rows);
  for (int64_t group = 0; group < tiles.groups; ++group) {
    // The last query of the group sees this many keys.
    const int64_t seen =
        causal ? std::min(keys, std::max<int64_t>(1, (group + 1) * rows + keys - queries)) : keys;
    tiles.scores += ceil_div(seen, core.moving_max);
    tiles.values += ceil_div(seen, rows);
    tiles.large += ceil_div(seen, kLargeTile);
  }
  tiles.diagonal = causal ? tiles.groups : 0;
  return tiles;
}

struct Extras {
  bool bias = false, dropout = false, causal = false, wide = false;
};

void add_forward(Cost& cost, const AttentionShape& shape, int64_t heads, Extras extras,
                 const Target& target) {
  const machine::NeuronCore& core = target.core();
  const Tiles tiles = count_tiles(shape.query_length, shape.key_length, extras.causal, core);
  const int64_t width = std::min(core.moving_max, std::max(core.min_cycles, shape.key_length));
  const int64_t d = shape.head_size, dv = shape.value_size, mii = core.min_cycles;
  const int64_t factor = extras.wide ? core.tensor_fp32_factor : 1;
  const int64_t contractions = ceil_div(d, core.tensor_rows);
  cost.tensor_cycles =
      heads * factor * (tiles.scores * width * contractions + tiles.values * std::max(mii, dv));
  cost.vector_cycles = heads * (tiles.scores * (width + mii) + tiles.diagonal * width +
                                tiles.large * dv + tiles.groups * 3 * mii);
  cost.scalar_cycles = heads * (tiles.scores * (width + mii) + tiles.groups * dv);
  cost.gpsimd_cycles = heads * tiles.diagonal * (core.gpsimd_start_cycles + width);
  if (extras.bias) cost.vector_cycles += heads * tiles.scores * width;
  if (extras.dropout) {
    cost.vector_cycles += heads * tiles.scores * width;
    cost.gpsimd_cycles += heads * tiles.scores * (core.gpsimd_start_cycles + width);
  }
  const int128 moved = int128(heads) * tiles.scores * core.partitions * width * 2;
  cost.dma_copy_ps = duration_ps(moved, core.dma_sbuf_to_sbuf_Bps);
}

void add_backward(Cost& cost, const AttentionShape& shape, int64_t heads, Extras extras,
                  const Target& target) {
  const machine::NeuronCore& core = target.core();
  const Tiles tiles = count_tiles(shape.query_length, shape.key_length, extras.causal, core);
  const int64_t width = std::min(core.moving_max, std::max(core.min_cycles, shape.key_length));
  const int64_t quarter = ceil_div<int64_t>(width, 4), half = ceil_div<int64_t>(width, 2);
  const int64_t factor = extras.wide ? core.tensor_fp32_factor : 1;
  const int64_t contractions =
      ceil_div(std::max(shape.head_size, shape.value_size), core.tensor_rows);
  // Five products, the transposition of dS, and the transposed K once a group.
  cost.tensor_cycles = heads * factor * contractions * tiles.scores * (6 * width + quarter);
  // copy, (dP - D) * P, evacuation, dQ, dK + dV
  cost.vector_cycles = heads * tiles.scores * (width + 2 * width + 3 * half);
  cost.scalar_cycles = heads * tiles.scores * (width + quarter);
  if (extras.causal) {
    cost.gpsimd_cycles = heads * tiles.scores * (core.gpsimd_start_cycles + width);
  }
  if (extras.bias) cost.vector_cycles += heads * tiles.scores * width;
  if (extras.dropout) {
    cost.vector_cycles += heads * tiles.scores * 2 * width;
    cost.gpsimd_cycles += heads * tiles.scores * (core.gpsimd_start_cycles + width);
  }
}

bool is_causal(const Signature& signature) {
  return signature.int_or("is_causal", 0) != 0 || signature.int_or("causal", 0) != 0;
}

// A part of a causal attention over several ranks: the part above the diagonal that answers to it
// is skipped, as the upper half of a causal attention on one rank is.
bool is_below_diagonal(const Signature& signature) {
  return signature.int_or("below_diagonal", 0) != 0;
}

bool has_dropout(const Signature& signature) {
  const workload::Scalar* scalar = signature.scalar("dropout_p");
  const double* p = scalar ? std::get_if<double>(&scalar->value) : nullptr;
  return p && *p > 0;
}

// FlexAttention's mask: the share of the score tiles that it leaves, 1 when it is not known.
double density_of(const Signature& signature) {
  const workload::Scalar* scalar = signature.scalar("density");
  const double* density = scalar ? std::get_if<double>(&scalar->value) : nullptr;
  return density ? std::clamp(*density, 0.0, 1.0) : 1;
}

// Tiles that the mask leaves out are skipped, forward and backward.
void skip_masked_tiles(Cost& cost, double density) {
  constexpr int64_t kParts = 1 << 20;
  const auto share = int64_t(std::ceil(density * double(kParts)));
  for (int64_t* work : {&cost.tensor_cycles, &cost.vector_cycles, &cost.scalar_cycles,
                        &cost.gpsimd_cycles, &cost.dma_copy_ps}) {
    *work = int64_t(ceil_div(int128(*work) * share, int128(kParts)));
  }
  cost.executed_flops = cost.executed_flops * share / kParts;
  cost.model_flops_causal = cost.model_flops * share / kParts;
}

CostFunction attention(bool backward) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "attention", Fusion::anchor);
    const TensorMeta* query = meta_of(signature, "query");
    const TensorMeta* key = meta_of(signature, "key");
    const TensorMeta* value = meta_of(signature, "value");
    TRN_CHECK(query && key && value && query->sizes.size() >= 3, lower,
              signature.op + " has no query, key and value",
              "the Workload was made by another version of PyTorch");
    const size_t axes = query->sizes.size();
    AttentionShape shape;
    shape.query_length = query->sizes[axes - 2];
    shape.key_length = key->sizes[key->sizes.size() - 2];
    shape.head_size = query->sizes[axes - 1];
    shape.value_size = value->sizes.back();
    const int64_t rows = shape.query_length * shape.head_size;
    shape.heads = rows == 0 ? 0 : query->element_count() / rows;
    shape.causal = is_causal(signature);
    shape.backward = backward;
    cost.attention = shape;
    cost.dtype = workload::dtype_name(query->dtype);
    const int128 scores = int128(shape.heads) * shape.query_length * shape.key_length;
    const int128 forward = 2 * scores * (shape.head_size + shape.value_size);
    cost.model_flops = backward ? 2 * forward : forward;
    cost.executed_flops = backward ? forward * 5 / 2 : forward;  // the scores are made again
    cost.model_flops_causal = shape.causal ? cost.model_flops / 2 : cost.model_flops;
    if (is_below_diagonal(signature)) cost.model_flops *= 2;
    check_count(signature, "FLOPs", cost.model_flops, kMostFlops);
    if (!target.is_neuron() || scores == 0) return cost;
    const bool is_flex = signature.op.rfind("trnsim::flex_", 0) == 0;
    const Extras extras{is_flex || find_input(signature, "attn_bias") >= 0, has_dropout(signature),
                        shape.causal, workload::dtype_bytes(query->dtype) > 2};
    const Split split = split_over_cores(shape.heads, shape.query_length, 1, target);
    backward ? add_backward(cost, shape, split.batch, extras, target)
             : add_forward(cost, shape, split.batch, extras, target);
    // Fewer heads than cores: the queries are split too.
    for (int64_t* work : {&cost.tensor_cycles, &cost.vector_cycles, &cost.scalar_cycles,
                          &cost.gpsimd_cycles, &cost.dma_copy_ps}) {
      *work = int64_t(ceil_div(int128(*work) * split.rows, int128(shape.query_length)));
    }
    return cost;
  };
}

// Attention under a mask and a function of the scores that the script wrote: the kernel of
// attention with a bias, on the tiles that the mask leaves.
CostFunction flex_attention(bool backward) {
  return [plain = attention(backward)](const Signature& signature, const Target& target) {
    Cost cost = plain(signature, target);
    cost.rule = "flex_attention";
    skip_masked_tiles(cost, density_of(signature));
    return cost;
  };
}

}  // namespace

void register_attention(Registry& registry) {
  for (const char* op :
       {"_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math",
        "scaled_dot_product_attention"}) {
    registry.add({std::string("aten::") + op, "attention", kSource, attention(false)});
  }
  for (const char* op : {"_scaled_dot_product_fused_attention_overrideable_backward",
                         "_scaled_dot_product_flash_attention_backward",
                         "_scaled_dot_product_flash_attention_for_cpu_backward",
                         "_scaled_dot_product_efficient_attention_backward",
                         "_scaled_dot_product_cudnn_attention_backward"}) {
    registry.add({std::string("aten::") + op, "attention", kSource, attention(true)});
  }
  registry.add({"trnsim::flex_attention", "attention", kSource, flex_attention(false)});
  registry.add({"trnsim::flex_attention_backward", "attention", kSource, flex_attention(true)});
}

}  // namespace trnsim::lower::rules
