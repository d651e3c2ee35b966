// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The shape cache: what an op returns for the shapes it is called with, without asking PyTorch.
//
// PyTorch's Meta kernels are mostly Python and cost 0.1 to 4 ms a call. The plan of a call depends
// on nothing but its key: dtype, offset, sizes and strides of every tensor and the value of every
// other argument (floating values that only scale are reduced to their type). So a plan is made
// once per key and holds the outputs' layout and the interned signature that a record needs. One
// cache per op, behind one mutex; a hit is one hash and one comparison of some dozen words.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "capture/aten/facts.h"

namespace trnsim::capture {

// A tensor argument of a call: lists are flattened.
struct TensorArgument {
  const at::Tensor* tensor = nullptr;
  int16_t argument = 0;
  int32_t index = -1;  // in a list argument
  bool mutated = false;
};
using TensorArguments = c10::SmallVector<TensorArgument, 12>;
// All defined tensors among the op's arguments, which lie on top of the stack.
TensorArguments tensor_arguments(const OpFacts& facts, const torch::jit::Stack& stack);

struct TensorPlan {
  enum class Kind : uint8_t { fresh, argument, view, none };
  Kind kind = Kind::fresh;
  int32_t argument = -1;  // position among the tensor arguments, of Kind::argument and view
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t offset = 0, bytes = 0;
  c10::SmallVector<int64_t, 6> sizes, strides;
};

// One return of the schema: a tensor, a list of tensors, or a value.
struct ReturnPlan {
  bool is_list = false, is_tensor = true;
  std::vector<TensorPlan> tensors;
  c10::IValue value;
};

struct ResizePlan {
  int32_t argument = -1;
  TensorPlan to;
};

struct CallPlan {
  std::vector<int64_t> key;
  std::vector<ReturnPlan> returns;
  std::vector<ResizePlan> resized;  // out= arguments that the op gives another shape
  int32_t signature = -1;
  std::unique_ptr<CallPlan> next;  // same hash
};

class ShapeCache {
 public:
  // Null on a miss. Plans live as long as the cache.
  const CallPlan* find(const std::vector<int64_t>& key, uint64_t hash);
  const CallPlan* add(std::unique_ptr<CallPlan> plan, uint64_t hash);

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<CallPlan>> plans_;
};

// Writes the key of a call into `key`; false when an argument has no key (then nothing is cached).
bool write_key(const OpFacts& facts, const torch::jit::Stack& stack, std::vector<int64_t>& key);
uint64_t hash_key(const std::vector<int64_t>& key);

// The plan as PyTorch's Meta kernels (or ours) have it. `stack` is not changed. Throws what the
// kernel throws.
std::unique_ptr<CallPlan> plan_by_meta(const c10::OperatorHandle& op, const OpFacts& facts,
                                       const torch::jit::Stack& stack,
                                       const TensorArguments& tensors);
// The plan of an op that only writes its arguments: they keep their shapes. Checks that the other
// arguments of a pointwise op broadcast to the first.
std::unique_ptr<CallPlan> plan_in_place(const OpFacts& facts, const TensorArguments& tensors);
// The plan that a CPU kernel's results show; `host` are the aliases of `tensors` after the call.
std::unique_ptr<CallPlan> plan_by_results(const TensorArguments& tensors,
                                          const std::vector<at::Tensor>& host,
                                          const std::vector<c10::IValue>& results);

}  // namespace trnsim::capture
