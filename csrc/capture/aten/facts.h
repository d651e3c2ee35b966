// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// OpFacts: what an operator's schema and tags say, worked out once at load so that a call looks
// nothing up. One per registered op; immutable afterwards.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace trnsim::capture {

struct ArgumentFacts {
  std::string name;
  bool mutated = false;       // alias annotation with "!"
  bool is_out = false;        // an out= argument: written, never read
  // A number whose value costs nothing (alpha, value, lr, ...): a floating one is left out of
  // signatures, or every step of a schedule would be another op.
  bool value_only = false;
  bool placement = false;     // device, layout, pin_memory, generator: no part of a signature
};

struct OpFacts {
  std::string name;           // "aten::add.Tensor"
  std::vector<ArgumentFacts> arguments;
  std::vector<int> alias_of_return;  // argument that a return is, or -1
  int info_return = -1;       // the return "info" of a factorization: 0 where it went well
  bool mutates = false;
  bool in_place = false;      // writes its arguments, returns only them, keeps every shape
  bool pointwise = false;
  bool dynamic_shape = false; // the output's shape depends on values
  bool overwrites = false;    // writes the whole of self without reading it (fill_, normal_, ...)
  bool mixes_devices = false; // takes CPU tensors of any size beside device tensors
  bool is_random = false;
};

OpFacts facts_of(const c10::OperatorHandle& op);

}  // namespace trnsim::capture
