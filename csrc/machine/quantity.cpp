// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "machine/quantity.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace trnsim::machine {
namespace {

using Table = std::vector<std::pair<std::string, Unit>>;

const Table& units() {
  static const Table table = [] {
    constexpr int64_t kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi;
    Table rows;
    const auto add = [&](const char* name, Dimension dimension, int64_t numerator,
                         int64_t denominator = 1) {
      rows.push_back({name, {dimension, Rational{numerator, denominator}}});
    };
    add("ps", Dimension::time, 1);
    add("ns", Dimension::time, 1'000);
    add("us", Dimension::time, 1'000'000);
    add("ms", Dimension::time, 1'000'000'000);
    add("s", Dimension::time, kPsPerSecond);
    add("MHz", Dimension::frequency, 1'000'000);
    add("GHz", Dimension::frequency, 1'000'000'000);
    add("bytes", Dimension::bytes, 1);
    add("KiB", Dimension::bytes, kKi);
    add("MiB", Dimension::bytes, kMi);
    add("GiB", Dimension::bytes, kGi);
    add("TiB", Dimension::bytes, kGi * 1'024);
    add("kB", Dimension::bytes, 1'000);
    add("MB", Dimension::bytes, 1'000'000);
    add("GB", Dimension::bytes, 1'000'000'000);
    add("TB", Dimension::bytes, 1'000'000'000'000);
    add("MB/s", Dimension::bandwidth, 1'000'000);
    add("GB/s", Dimension::bandwidth, 1'000'000'000);
    add("TB/s", Dimension::bandwidth, 1'000'000'000'000);
    add("GiB/s", Dimension::bandwidth, kGi);
    add("Gbps", Dimension::bandwidth, 125'000'000);
    add("GFLOP/s", Dimension::flops, 1'000'000'000);
    add("TFLOP/s", Dimension::flops, 1'000'000'000'000);
    add("PFLOP/s", Dimension::flops, 1'000'000'000'000'000);
    add("W", Dimension::power, 1);
    add("kW", Dimension::power, 1'000);
    add("USD/h", Dimension::price, 1);
    add("kg/kWh", Dimension::carbon, 1);
    add("g/kWh", Dimension::carbon, 1, 1'000);
    add("1", Dimension::number, 1);
    add("word", Dimension::word, 1);
    add("list", Dimension::list, 1);
    return rows;
  }();
  return table;
}

}  // namespace

const Unit* find_unit(const std::string& name) {
  for (const auto& [unit_name, unit] : units()) {
    if (unit_name == name) return &unit;
  }
  return nullptr;
}

std::string units_of(Dimension dimension) {
  std::string text;
  for (const auto& [name, unit] : units()) {
    if (unit.dimension == dimension) text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

const char* dimension_name(Dimension dimension) {
  switch (dimension) {
    case Dimension::time:
      return "a time";
    case Dimension::frequency:
      return "a frequency";
    case Dimension::bytes:
      return "a size";
    case Dimension::bandwidth:
      return "a bandwidth";
    case Dimension::flops:
      return "a rate of operations";
    case Dimension::power:
      return "a power";
    case Dimension::price:
      return "a price";
    case Dimension::carbon:
      return "a mass of CO2 for energy";
    case Dimension::number:
      return "a plain number";
    case Dimension::word:
      return "a word";
    case Dimension::list:
      return "a list of numbers";
  }
  return "a figure";
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

}  // namespace trnsim::machine
