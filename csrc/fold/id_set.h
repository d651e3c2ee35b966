// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// IdSet: small numbers, given in any order and taken out ascending, without a sort. A bit for each,
// and above each level of words a bit for each word that is not 0. Private to fold/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trnsim::fold {

class IdSet {
 public:
  explicit IdSet(std::size_t size) {
    do {
      size = size / 64 + 1;
      levels_.emplace_back(size, 0);
    } while (size > 1);
  }

  void add(int32_t id) {
    auto at = std::size_t(id);
    for (auto& words : levels_) {
      uint64_t& word = words[at / 64];
      const bool was_empty = word == 0;
      word |= uint64_t(1) << at % 64;
      if (!was_empty) return;
      at /= 64;
    }
  }

  // Calls visit(id) for each, ascending, and is empty then.
  template <class Visit>
  void take(const Visit& visit) {
    take(levels_.size() - 1, 0, visit);
  }

 private:
  template <class Visit>
  void take(std::size_t level, std::size_t word, const Visit& visit) {
    for (uint64_t bits = std::exchange(levels_[level][word], 0); bits != 0; bits &= bits - 1) {
      const std::size_t at = word * 64 + std::size_t(std::countr_zero(bits));
      level == 0 ? visit(int32_t(at)) : take(level - 1, at, visit);
    }
  }

  std::vector<std::vector<uint64_t>> levels_;
};

}  // namespace trnsim::fold
