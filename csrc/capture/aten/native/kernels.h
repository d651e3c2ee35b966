// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Kernels that are not boxed: factories, views, copies and reads by the host. register.cpp binds
// them to their ops.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>
#include <tuple>

namespace trnsim::capture {

// Factories: allocate only, nothing is recorded.
at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> memory_format);
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory);

// Views and changes of storage: pure aliases, nothing is recorded.
at::Tensor lazy_clone(const at::Tensor& self);  // copies at once
const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format);
at::Tensor& set_storage_(at::Tensor& self, at::Storage source);
at::Tensor& set_storage_offset_(at::Tensor& self, at::Storage source, int64_t offset,
                                c10::IntArrayRef size, c10::IntArrayRef stride);
at::Tensor& set_tensor_(at::Tensor& self, const at::Tensor& source);
at::Tensor& set_nothing_(at::Tensor& self);
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from);

// Copies between host and device, and on the device.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
// aten::copy_, where torch's own does not come to copy_from by itself.
at::Tensor& copy_(at::Tensor& target, const at::Tensor& source, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target);

// Reads by the host.
at::Scalar local_scalar_dense(const at::Tensor& self);
bool equal(const at::Tensor& self, const at::Tensor& other);
void linalg_check_errors(const at::Tensor& info, std::string_view api_name, bool is_matrix);
void record_stream(at::Tensor& self, at::Stream stream);

// Inference of nn.TransformerEncoderLayer and nn.MultiheadAttention, in parts that are recorded.
std::tuple<at::Tensor, at::Tensor> native_multi_head_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t embed_dim,
    int64_t heads, const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
    const at::Tensor& proj_weight, const at::Tensor& proj_bias,
    const std::optional<at::Tensor>& mask, bool need_weights, bool average_weights,
    std::optional<int64_t> mask_type);
at::Tensor transformer_encoder_layer(const at::Tensor& src, int64_t embed_dim, int64_t heads,
                                     const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                                     const at::Tensor& proj_weight, const at::Tensor& proj_bias,
                                     bool use_gelu, bool norm_first, double eps,
                                     const at::Tensor& norm_weight_1, const at::Tensor& norm_bias_1,
                                     const at::Tensor& norm_weight_2, const at::Tensor& norm_bias_2,
                                     const at::Tensor& ffn_weight_1, const at::Tensor& ffn_bias_1,
                                     const at::Tensor& ffn_weight_2, const at::Tensor& ffn_bias_2,
                                     const std::optional<at::Tensor>& mask,
                                     std::optional<int64_t> mask_type);
// Never: padded batches stay dense, since there are no nested tensors on the device.
bool nested_tensor_from_mask_left_aligned(const at::Tensor& t, const at::Tensor& mask);

// RuntimeError, in torch's words, where the op's `count` arguments begin with a tensor and indices
// that are neither on the CPU nor on its device.
void check_index_devices(const torch::jit::Stack& stack, size_t count);
// Advanced indexing with masks: turns masks among the indices at `position` of the op's `count`
// arguments into index tensors, as the CUDA kernels do: a nonzero and a read by the host.
void expand_masks(torch::jit::Stack& stack, size_t count, size_t position);
// Values have self's device, or are a number from another one, which goes to a self on the CPU:
// true when that was done. RuntimeError, in torch's words, otherwise.
bool index_put_on_host(torch::jit::Stack& stack);
// self[mask] = number is a masked_fill_ without that read; true when it was done.
bool index_put_as_masked_fill(torch::jit::Stack& stack);

}  // namespace trnsim::capture
