// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/aten/special.h"

namespace trnsim::capture {

SpecialOp special_op(const std::string& name) {
  for (const SpecialOps& table :
       {attention_ops(), embedding_ops(), loss_ops(), normalization_ops(), policy_ops(),
        recurrent_ops()}) {
    for (size_t i = 0; i < table.count; ++i) {
      if (name == table.first[i].name) return table.first[i];
    }
  }
  return {name.c_str()};
}

}  // namespace trnsim::capture
