// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Exact numbers. Time is int64 picoseconds; a link rate is int64 in 1/1024 byte per second; figures
// of data files are decimals and become Rationals, so that a duration is rounded up once and no
// double decides a digit.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>

#include "base/error.h"

namespace trnsim {

using int128 = __int128;
using uint128 = unsigned __int128;

inline constexpr int64_t kPsPerSecond = 1'000'000'000'000;
inline constexpr int64_t kRateUnitsPerBps = 1024;  // rate unit: 1/1024 byte per second

// ceil(a / b) for a >= 0, b > 0.
template <typename T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// A non-negative exact fraction in lowest terms. denominator > 0.
struct Rational {
  int64_t numerator = 0;
  int64_t denominator = 1;

  static Rational of(int128 numerator, int128 denominator);
  // "2.4", "1e9", "0.98", "1/3": throws machine Error on anything else.
  static Rational parse(const std::string& text);
  double to_double() const { return double(numerator) / double(denominator); }
  bool is_zero() const { return numerator == 0; }
};

Rational operator*(Rational a, Rational b);
Rational operator/(Rational a, Rational b);  // b != 0
Rational operator+(Rational a, Rational b);
bool operator==(Rational a, Rational b);
bool operator<(Rational a, Rational b);

// Time of `count` things at `per_second` each, in ps, rounded up once. per_second > 0.
int64_t duration_ps(int128 count, Rational per_second);
// ceil(count * factor)
int64_t scale_up(int128 count, Rational factor);

}  // namespace trnsim
