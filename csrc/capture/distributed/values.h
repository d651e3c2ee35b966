// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What a collective leaves in tensors under the uniform-rank reading: every rank holds what this
// one holds. So a sum over n ranks is n times the value, a gather repeats it, a scatter takes this
// rank's slice, and an average, a maximum or a broadcast changes nothing.
//
// Values that phantom mode does not know stay unknown: an output made from an unknown input becomes
// unknown. Nothing here is recorded and nothing allocates on the device: the work is done on CPU
// aliases of the storages, and costs what a copy costs, or nothing where the values are unknown.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace trnsim::capture::distributed {

// tensor = op over `ranks` equal copies of it. Sums and products of integers and of float16
// saturate at the largest finite value; an infinity or a NaN that was there before stays.
void reduce_in_place(const at::Tensor& tensor, const c10d::ReduceOp& op, int64_t ranks);

// output = input, repeated or cut to fill it. An output that covers its storage becomes known.
void fill_with(const at::Tensor& output, const at::Tensor& input);

// output = op over `ranks` copies of the `index`-th of `count` equal slices of input.
void reduce_slice(const at::Tensor& output, const at::Tensor& input, int64_t index, int64_t count,
                  const c10d::ReduceOp& op, int64_t ranks);

// What another role sends: unknown in phantom mode, zeros in compute mode.
void fill_from_elsewhere(const at::Tensor& output);

}  // namespace trnsim::capture::distributed
