// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "base/error.h"

namespace trnsim {

void fail_assertion(const char* condition, const char* file, int line,
                    const std::string& message) {
  throw std::logic_error("trnsim invariant broken at " + std::string(file) + ":" +
                         std::to_string(line) + ": " + condition + ": " + message);
}

}  // namespace trnsim
