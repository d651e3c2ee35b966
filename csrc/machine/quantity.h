// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Units of data files: which dimension a unit has, and the exact factor to the base unit.
#pragma once

#include <string>

#include "base/units.h"

namespace trnsim::machine {

// With its base unit: ps, Hz, byte, B/s, FLOP/s, W, USD/h, kg/kWh, 1.
enum class Dimension {
  time,
  frequency,
  bytes,
  bandwidth,
  flops,
  power,
  price,
  carbon,
  number,
  word,
  list
};

struct Unit {
  Dimension dimension;
  Rational factor;  // base units in one of this
};

// Null for an unknown unit.
const Unit* find_unit(const std::string& name);
// "GB/s, TB/s, ...": every unit of the dimension, for messages.
std::string units_of(Dimension dimension);
const char* dimension_name(Dimension dimension);

// The candidate nearest to `word` by edit distance (a candidate that ends in `word` is nearest), or
// an empty string if none is near: more than a third of the letters would have to change.
template <typename Strings>
std::string nearest(const std::string& word, const Strings& candidates);
// Insertions, deletions, replacements and swaps of neighbours that turn one into the other.
size_t edit_distance(const std::string& a, const std::string& b);

template <typename Strings>
std::string nearest(const std::string& word, const Strings& candidates) {
  std::string best;
  size_t best_distance = word.size() / 3 + 1;
  for (const std::string& candidate : candidates) {
    const bool ends =
        !word.empty() && candidate.size() > word.size() + 1 && candidate.ends_with("." + word);
    const size_t distance = ends ? 0 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace trnsim::machine
