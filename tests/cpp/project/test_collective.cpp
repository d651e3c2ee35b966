// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/collective.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace trnsim::project {
namespace {

TEST(Routing, SharesAddUpAndAreRoundedByLessThanOne) {
  EXPECT_EQ(shared_out(10, {1, 1, 1}), std::vector<int64_t>({4, 3, 3}));
  EXPECT_EQ(shared_out(10, {1, 2, 0}), std::vector<int64_t>({3, 7, 0}));
  EXPECT_EQ(shared_out(1, {1, 5}), std::vector<int64_t>({0, 1}));
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    std::vector<int64_t> shares(1 + random() % 20);
    for (int64_t& share : shares) share = int64_t(random() % (int64_t(1) << (1 + random() % 40)));
    shares[0] += 1;
    const int64_t bytes = 1 + int64_t(random() % (int64_t(1) << 50));
    const std::vector<int64_t> parts = shared_out(bytes, shares);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t(0)), bytes);
    const int128 total = std::accumulate(shares.begin(), shares.end(), int128(0));
    for (size_t k = 0; k < parts.size(); ++k) {
      const int128 off = int128(parts[k]) * total - int128(bytes) * shares[k];
      EXPECT_TRUE(-total < off && off < total) << i;
    }
  }
}

}  // namespace
}  // namespace trnsim::project
