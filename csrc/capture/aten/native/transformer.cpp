// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The ops that nn.TransformerEncoderLayer and nn.MultiheadAttention take for inference, composed of
// ops that have a cost: as one op they would be a kernel that only CUDA has.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>

#include "capture/aten/native/kernels.h"

namespace trnsim::capture {
namespace {

// [batch, heads, length, size of a head]
at::Tensor split_heads(const at::Tensor& projected, int64_t heads) {
  return projected.unflatten(-1, {heads, -1}).transpose(1, 2);
}

// Masks come as "is left out", or as numbers that are added and are 0 or -inf; mask_type: 0 of
// queries and keys, 1 of the keys of each sample, 2 of both.
std::optional<at::Tensor> takes_part(const std::optional<at::Tensor>& mask,
                                     std::optional<int64_t> mask_type) {
  if (!mask) return std::nullopt;
  const at::Tensor kept = mask->to(at::kBool).logical_not();
  return mask_type == 1 ? kept.view({kept.size(0), 1, 1, kept.size(1)}) : kept;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> native_multi_head_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t embed_dim,
    int64_t heads, const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
    const at::Tensor& proj_weight, const at::Tensor& proj_bias,
    const std::optional<at::Tensor>& mask, bool need_weights, bool average_weights,
    std::optional<int64_t> mask_type) {
  const auto project = [&](const at::Tensor& of, int64_t part, int64_t parts) {
    const auto rows = [&](const at::Tensor& all) {
      return all.narrow(0, part * embed_dim, parts * embed_dim);
    };
    return at::linear(of, rows(qkv_weight), rows(qkv_bias));
  };
  at::Tensor q, k, v;
  if (query.is_same(key) && key.is_same(value)) {
    const auto parts = project(query, 0, 3).chunk(3, -1);
    q = parts[0], k = parts[1], v = parts[2];
  } else {
    q = project(query, 0, 1), k = project(key, 1, 1), v = project(value, 2, 1);
  }
  q = split_heads(q, heads), k = split_heads(k, heads), v = split_heads(v, heads);
  const std::optional<at::Tensor> kept = takes_part(mask, mask_type);
  at::Tensor mixed, weights;
  if (need_weights) {
    weights = (q / std::sqrt(double(q.size(-1)))).matmul(k.transpose(-2, -1));
    if (kept) weights = weights.masked_fill(kept->logical_not(), -INFINITY);
    weights = weights.softmax(-1);
    mixed = weights.matmul(v);
    if (average_weights) weights = weights.mean(1);
  } else {
    mixed = at::scaled_dot_product_attention(q, k, v, kept);
  }
  return {at::linear(mixed.transpose(1, 2).flatten(-2), proj_weight, proj_bias), weights};
}

at::Tensor transformer_encoder_layer(const at::Tensor& src, int64_t embed_dim, int64_t heads,
                                     const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                                     const at::Tensor& proj_weight, const at::Tensor& proj_bias,
                                     bool use_gelu, bool norm_first, double eps,
                                     const at::Tensor& norm_weight_1, const at::Tensor& norm_bias_1,
                                     const at::Tensor& norm_weight_2, const at::Tensor& norm_bias_2,
                                     const at::Tensor& ffn_weight_1, const at::Tensor& ffn_bias_1,
                                     const at::Tensor& ffn_weight_2, const at::Tensor& ffn_bias_2,
                                     const std::optional<at::Tensor>& mask,
                                     std::optional<int64_t> mask_type) {
  const auto norm_1 = [&](const at::Tensor& x) {
    return at::layer_norm(x, {embed_dim}, norm_weight_1, norm_bias_1, eps);
  };
  const auto norm_2 = [&](const at::Tensor& x) {
    return at::layer_norm(x, {embed_dim}, norm_weight_2, norm_bias_2, eps);
  };
  const auto attend = [&](const at::Tensor& x) {
    return std::get<0>(native_multi_head_attention(x, x, x, embed_dim, heads, qkv_weight, qkv_bias,
                                                   proj_weight, proj_bias, mask, false, false,
                                                   mask_type));
  };
  const auto feed = [&](const at::Tensor& x) {
    const at::Tensor wide = at::linear(x, ffn_weight_1, ffn_bias_1);
    return at::linear(use_gelu ? at::gelu(wide) : at::relu(wide), ffn_weight_2, ffn_bias_2);
  };
  if (norm_first) {
    const at::Tensor x = src + attend(norm_1(src));
    return x + feed(norm_2(x));
  }
  const at::Tensor x = norm_1(src + attend(src));
  return norm_2(x + feed(x));
}

bool nested_tensor_from_mask_left_aligned(const at::Tensor&, const at::Tensor&) { return false; }

}  // namespace trnsim::capture
