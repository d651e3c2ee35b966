// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The Signature of a call, as workload.h defines it: inputs are the device tensors among the
// arguments (a CPU scalar is an immediate and left out), scalars the other arguments.
#pragma once

#include "capture/aten/shape_cache.h"
#include "workload/workload.h"

namespace trnsim::capture {

// Inputs and scalars; must be made before the op runs, which may resize an out= argument.
workload::Signature signature_of_arguments(const OpFacts& facts, const torch::jit::Stack& stack,
                                           const TensorArguments& tensors);
// Adds the outputs and interns it.
int32_t finish_signature(workload::Signature signature, const OpFacts& facts,
                         const CallPlan& plan);

}  // namespace trnsim::capture
