// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "base/units.h"

#include <limits>

namespace trnsim {
namespace {

int128 gcd(int128 a, int128 b) {
  while (b != 0) {
    const int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

int64_t narrow(int128 value) {
  TRN_CHECK(value >= 0 && value <= std::numeric_limits<int64_t>::max(), machine,
            "a figure does not fit 64 bits", "use a smaller unit");
  return int64_t(value);
}

}  // namespace

Rational Rational::of(int128 numerator, int128 denominator) {
  TRN_CHECK(denominator != 0, machine, "a figure divides by zero", "write a divisor other than 0");
  const int128 divisor = numerator == 0 ? denominator : gcd(numerator, denominator);
  return {narrow(numerator / divisor), narrow(denominator / divisor)};
}

Rational Rational::parse(const std::string& text) {
  const auto bad = [&] {
    return Error(ErrorKind::machine, "'" + text + "' is not a number",
                 "write a decimal such as 2.4, 1e9 or 80/29");
  };
  const size_t slash = text.find('/');
  if (slash != std::string::npos) {
    return parse(text.substr(0, slash)) / parse(text.substr(slash + 1));
  }
  int128 digits = 0;
  int exponent = 0;
  bool seen_digit = false, seen_point = false;
  size_t i = 0;
  if (i < text.size() && text[i] == '+') ++i;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '_') continue;
    if (c == '.' && !seen_point) {
      seen_point = true;
    } else if (c >= '0' && c <= '9') {
      seen_digit = true;
      if (digits > int128(1) << 100) throw bad();
      digits = digits * 10 + (c - '0');
      exponent -= seen_point;
    } else {
      break;
    }
  }
  if (!seen_digit) throw bad();
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E') throw bad();
    size_t used = 0;
    int written = 0;
    try {
      written = std::stoi(text.substr(i + 1), &used);
    } catch (const std::exception&) {
      throw bad();
    }
    if (i + 1 + used != text.size()) throw bad();
    exponent += written;
  }
  int128 numerator = digits, denominator = 1;
  for (; exponent > 0; --exponent) {
    numerator *= 10;
    if (numerator > int128(1) << 100) throw bad();
  }
  for (; exponent < 0; ++exponent) {
    if (numerator % 10 == 0) {
      numerator /= 10;
    } else {
      denominator *= 10;
      if (denominator > int128(1) << 100) throw bad();
    }
  }
  return of(numerator, denominator);
}

Rational operator*(Rational a, Rational b) {
  return Rational::of(int128(a.numerator) * b.numerator, int128(a.denominator) * b.denominator);
}

Rational operator/(Rational a, Rational b) {
  return Rational::of(int128(a.numerator) * b.denominator, int128(a.denominator) * b.numerator);
}

Rational operator+(Rational a, Rational b) {
  return Rational::of(int128(a.numerator) * b.denominator + int128(b.numerator) * a.denominator,
                      int128(a.denominator) * b.denominator);
}

bool operator==(Rational a, Rational b) {
  return a.numerator == b.numerator && a.denominator == b.denominator;
}

bool operator<(Rational a, Rational b) {
  return int128(a.numerator) * b.denominator < int128(b.numerator) * a.denominator;
}

int64_t duration_ps(int128 count, Rational per_second) {
  TRN_ASSERT(per_second.numerator > 0, "a rate must be positive");
  const int128 top = count * per_second.denominator;
  TRN_CHECK(top < (int128(1) << 126) / kPsPerSecond, machine, "a duration overflows 128 bits",
            "use less work or a faster rate");
  return narrow(ceil_div(top * kPsPerSecond, int128(per_second.numerator)));
}

int64_t scale_up(int128 count, Rational factor) {
  return narrow(ceil_div(count * factor.numerator, int128(factor.denominator)));
}

}  // namespace trnsim
