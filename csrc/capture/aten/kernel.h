// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// AtenKernel: the boxed kernel of one aten op on the device, in both modes.
//
//   1 plan     the outputs' layout, from the shape cache (see shape_cache.h)
//   2 values   if every input's value is known (always in compute mode), the CPU kernel runs on
//              aliases of the blocks' host storages; else the outputs are unknown
//   3 results  tensors with the planned layout, around the CPU kernel's storages without a copy
//              where they agree
//   4 record   the plan's signature with the storages that were read and written
//
// Both modes make the same allocations in the same order and the same records.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "capture/aten/facts.h"
#include "capture/aten/shape_cache.h"
#include "capture/aten/special.h"
#include "capture/aten/truth.h"
#include "workload/workload.h"

namespace trnsim::capture {

class AtenKernel final : public c10::OperatorKernel {
 public:
  explicit AtenKernel(const c10::OperatorHandle& op);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  struct Call;

  const CallPlan* plan(Call& call);
  std::unique_ptr<CallPlan> make_plan(Call& call);
  bool prepare_indices(torch::jit::Stack& stack) const;
  bool values_known(const Call& call, const CallPlan* plan) const;
  bool runs_on_host(const Call& call) const;
  void run_on_host(Call& call);
  void collect_results(Call& call, const CallPlan& plan);
  void record(const Call& call, const CallPlan& plan) const;

  OpFacts facts_;
  SpecialOp special_;
  int mask_position_ = -1;  // of the indices argument, where masks become index tensors
  bool puts_by_index_ = false;
  bool is_custom_ = false;  // of another library: kernels may be missing
  bool has_host_kernel_ = true;  // an op of aten may have none for the CPU
  bool is_scaled_product_ = false;
  // Only written, with a number that the script reads on the host next: see amp in kernel.cpp.
  bool keeps_found_inf_ = false;
  TruthRule is_true_ = nullptr;
  bool chooses_ = false;  // topk: what it chooses decides shapes where tokens go to experts
  ShapeCache cache_;
};

// For messages about a native read of device memory: the op this thread runs, or "".
const char* running_op();

}  // namespace trnsim::capture
