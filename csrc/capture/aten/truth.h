// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Flags of unknown values that phantom mode reads as True, where others read False: unknown values
// are finite and equal to themselves, and arguments of a distribution are valid. Or a script would
// end at its first check.
#pragma once

#include "capture/aten/shape_cache.h"

namespace trnsim::capture {

// Whether the op's result is True all over, of arguments that are not all known.
using TruthRule = bool (*)(const TensorArguments& tensors, const torch::jit::Stack& stack);
TruthRule truth_rule(const std::string& op);  // null for most ops

void take_as_true(const at::Tensor& flags);
bool taken_as_true(const at::Tensor& flags);

// What torch.distributions asks of its checks, and nothing else does.
at::Tensor is_all_true(const at::Tensor& self);

}  // namespace trnsim::capture
