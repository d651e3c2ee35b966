// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "workload/workload.h"

namespace trnsim::workload {
namespace {

std::vector<int64_t> ranks_of(const RankPattern& pattern) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < pattern.size(); ++i) ranks.push_back(pattern.rank_at(i));
  return ranks;
}

void expect_round_trip(const std::vector<int64_t>& ranks) {
  const RankPattern pattern = RankPattern::of(ranks);
  EXPECT_EQ(ranks_of(pattern), ranks) << pattern.text();
  EXPECT_EQ(RankPattern::parse(pattern.text()), pattern) << pattern.text();
  for (size_t i = 0; i < ranks.size(); ++i)
    EXPECT_EQ(pattern.index_of(ranks[i]), int64_t(i)) << pattern.text();
}

TEST(RankPattern, ARangeIsOneAxis) {
  std::vector<int64_t> ranks(64);
  for (int i = 0; i < 64; ++i) ranks[size_t(i)] = i;
  EXPECT_EQ(RankPattern::of(ranks).text(), "0..63");
  expect_round_trip(ranks);
}

TEST(RankPattern, AStridedGroupIsOneAxisAndTwoAxesAreFound) {
  EXPECT_EQ(RankPattern::of({3, 11, 19}).text(), "start 3 axes 8x3");
  // Two tensor-parallel neighbours on each of three servers.
  EXPECT_EQ(RankPattern::of({0, 1, 64, 65, 128, 129}).text(), "start 0 axes 1x2 64x3");
  expect_round_trip({0, 1, 64, 65, 128, 129});
}

TEST(RankPattern, AnIrregularGroupIsListedInItsOrder) {
  EXPECT_EQ(RankPattern::of({0, 8, 17}).text(), "0,8,17");
  expect_round_trip({0, 8, 17});
  expect_round_trip({5});
  expect_round_trip({5, 2, 9});
  expect_round_trip({0, 1, 2, 4, 5, 6, 9});
}

TEST(RankPattern, RandomGroupsReadBack) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> ranks{int64_t(random() % 9)};
    int64_t reach = 1;
    for (int axis = int(random() % 4); axis > 0; --axis) {
      const int64_t stride = reach + int64_t(random() % 3), count = 1 + int64_t(random() % 4);
      const std::vector<int64_t> inner = ranks;
      for (int64_t i = 1; i < count; ++i)
        for (const int64_t rank : inner) ranks.push_back(rank + i * stride);
      reach = stride * count;
    }
    if (random() % 4 == 0) std::shuffle(ranks.begin(), ranks.end(), random);
    expect_round_trip(ranks);
  }
}

TEST(RankPattern, RanksOutsideAreNoMembers) {
  const RankPattern pattern = RankPattern::of({0, 1, 64, 65, 128, 129});
  for (const int64_t rank : {-1, 2, 63, 66, 130, 192}) EXPECT_EQ(pattern.index_of(rank), -1);
}

TEST(RankPattern, AxesThatInterleaveAreSearched) {
  // 0 3 6, 2 5 8: the axis of stride 3 is not a multiple of the one of stride 2.
  const RankPattern pattern = RankPattern::parse("start 0 axes 3x3 2x2");
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(pattern.index_of(pattern.rank_at(i)), i);
  EXPECT_EQ(pattern.index_of(4), -1);
}

TEST(RankPattern, WhoIsOutsideOrTwiceIsFound) {
  const auto problem = [](const char* text) { return RankPattern::parse(text).problem_of(64); };
  for (const char* text : {"0", "63", "0..63", "5,3,1", "start 0 axes 1x8 8x8",
                           "start 0 axes 3x3 2x2", "start 0 axes 2x3 3x2", "start 63 axes 1x1"}) {
    EXPECT_EQ(problem(text), "") << text;
  }
  EXPECT_EQ(problem("64"), "rank 64 of 64");
  EXPECT_EQ(problem("3,64,5"), "rank 64 of 64");
  EXPECT_EQ(problem("0,1,1"), "rank 1 twice");
  EXPECT_EQ(problem("start 0 axes 1x4 2x2"), "rank 2 twice");
  EXPECT_NE(problem("start 0 axes 1x8 8x9"), "");
  EXPECT_NE(problem("start 0 axes 1x64 1x64"), "");
  EXPECT_NE(problem("start 1 axes 9223372036854775807x2 4611686018427387904x3"), "");
  // By the list of its members, as the obvious way has it.
  std::mt19937_64 random(5);
  for (int round = 0; round < 3000; ++round) {
    RankPattern pattern;
    pattern.start = int64_t(random() % 3);
    for (uint64_t i = 1 + random() % 3; i > 0; --i)
      pattern.axes.push_back({1 + int64_t(random() % 6), 1 + int64_t(random() % 4)});
    std::vector<int64_t> ranks = ranks_of(pattern);
    std::sort(ranks.begin(), ranks.end());
    const bool is_twice = std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end();
    EXPECT_EQ(pattern.problem_of(40).empty(), ranks.back() < 40 && !is_twice) << pattern.text();
  }
}

TEST(RankPattern, BrokenTextIsAnError) {
  for (const char* text : {"", "a", "3..1", "0..", "start 0", "start 0 axes", "start 0 axes 0x4",
                           "start 0 axes 1", "0,,1", "-1"})
    EXPECT_THROW(RankPattern::parse(text), Error) << text;
  EXPECT_THROW(RankPattern::of({}), Error);
}

}  // namespace
}  // namespace trnsim::workload
