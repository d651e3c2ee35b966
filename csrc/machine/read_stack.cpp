// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "machine/reader.h"

namespace trnsim::machine {

Stack read_stack(Reader& reader) {
  Stack stack;
  const std::string at = "stack.";
  if (reader.has(at + "name")) stack.name = reader.word(at + "name");
  if (reader.has(at + "level")) {
    const std::string level = reader.word(at + "level", {"unknown", "eager", "fused"});
    if (level == "eager") stack.level = Level::eager;
    if (level == "fused") stack.level = Level::fused;
  }
  if (reader.has(at + "parameter_copies")) {
    stack.copies_parameters = reader.word(at + "parameter_copies", {"made", "none"}) == "made";
  }
  const auto factor = [&](const char* name, Rational& value) {
    const std::string key = at + name;
    if (reader.has(key)) value = reader.rational(key, Dimension::number);
  };
  factor("gemm_factor", stack.gemm_factor);
  factor("float8_factor", stack.float8_factor);
  factor("attention_factor", stack.attention_factor);
  factor("grouped_factor", stack.grouped_factor);
  factor("grouped_launches", stack.grouped_launches);
  factor("link_factor", stack.link_factor);
  factor("network_factor", stack.network_factor);
  factor("error", stack.error);
  factor("error_of_other_machines", stack.error_of_other_machines);
  return stack;
}

}  // namespace trnsim::machine
