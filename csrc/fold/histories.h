// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Histories: a number for each sequence of values, the same for equal sequences, by value. Private
// to fold/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace trnsim::fold {

class Histories {
 public:
  using Values = std::array<int64_t, 3>;
  // Of the sequence with these values after those of `history`; 0 is the empty one.
  int32_t extend(int32_t history, const Values& values) {
    const Key key{history, values};
    // What is alike asks the same again and again, so the last answers are kept at hand.
    Answer& recent = recent_[Hash()(key) % recent_.size()];
    if (recent.next == 0 || recent.key != key) {
      const auto [found, is_new] = known_.try_emplace(key, int32_t(known_.size()) + 1);
      if (is_new) entries_.push_back(key);
      recent = {key, found->second};
    }
    return recent.next;
  }
  // What a history that is not empty extends, and by what.
  std::pair<int32_t, Values> last_of(int32_t history) const {
    const Key& key = entries_[size_t(history) - 1];
    return {key.history, key.values};
  }

 private:
  struct Key {
    int32_t history = 0;
    Values values = {};
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return mix64(uint64_t(key.values[0]) * 0x9e3779b97f4a7c15u +
                   uint64_t(key.values[1]) * 0xbf58476d1ce4e5b9u +
                   uint64_t(key.values[2]) * 0x94d049bb133111ebu + uint64_t(key.history));
    }
  };
  struct Answer {
    Key key;
    int32_t next = 0;
  };
  std::unordered_map<Key, int32_t, Hash> known_;
  std::vector<Key> entries_;
  std::array<Answer, 4096> recent_;
};

}  // namespace trnsim::fold
