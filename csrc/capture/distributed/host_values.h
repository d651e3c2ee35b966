// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The values behind a tensor, as CPU tensors that share its storage: what values.h works on.
#pragma once

#include <ATen/core/TensorBody.h>

#include <optional>

namespace trnsim::capture::distributed {

// A CPU alias of the tensor's values (the tensor itself when it is on the CPU), or nothing where
// phantom mode does not know them.
std::optional<at::Tensor> host_values(const at::Tensor& tensor);
// The same for a tensor that is about to be overwritten: its storage becomes known where it can
// (when the tensor covers it), and nothing is returned where it cannot.
std::optional<at::Tensor> host_values_to_write(const at::Tensor& tensor);
// The tensor's values are not known from here on (no effect where all values are computed).
void forget_values(const at::Tensor& tensor);
// True for CPU tensors and in compute mode.
bool values_are_computed(const at::Tensor& tensor);

}  // namespace trnsim::capture::distributed
