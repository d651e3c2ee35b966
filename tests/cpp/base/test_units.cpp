// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/units.h"

namespace trnsim {

TEST(Rational, reads_decimals_exactly) {
  EXPECT_EQ(Rational::parse("2.4"), (Rational{12, 5}));
  EXPECT_EQ(Rational::parse("0.96e9"), (Rational{960'000'000, 1}));
  EXPECT_EQ(Rational::parse("80/29"), (Rational{80, 29}));
  EXPECT_THROW(Rational::parse("2.4 GHz"), Error);
  EXPECT_THROW(Rational::parse(""), Error);
  EXPECT_THROW(Rational::parse("nan"), Error);
}

// 512 cycles at 2.4 GHz = 213,333.3 ps: rounded up once.
TEST(Duration, rounds_up_once) {
  EXPECT_EQ(duration_ps(512, Rational::parse("2.4e9")), 213'334);
  EXPECT_EQ(duration_ps(512 * 3, Rational::parse("2.4e9")), 640'000);
  EXPECT_EQ(duration_ps(0, Rational::parse("1")), 0);
}

TEST(Hash, prints_sixteen_digits) { EXPECT_EQ(hex16(0x1fu), "000000000000001f"); }

}  // namespace trnsim
