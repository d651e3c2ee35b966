// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lower/trees.h"

namespace trnsim::lower {
namespace {

// Steps from a member to the root; -1 when it is on a cycle.
int64_t steps_up(int64_t member, int64_t count, int tree) {
  for (int64_t steps = 0; steps <= count; ++steps) {
    if (member < 0) return steps - 1;
    member = tree_parent(member, count, tree);
  }
  return -1;
}

TEST(Trees, ReachEveryMemberInTheLogarithmOfTheirNumber) {
  for (int64_t count = 1; count < 300; ++count) {
    for (const int tree : {0, 1}) {
      int64_t deepest = 0, roots = 0;
      for (int64_t member = 0; member < count; ++member) {
        const int64_t steps = steps_up(member, count, tree);
        ASSERT_GE(steps, 0) << member << " of " << count;
        deepest = std::max(deepest, steps);
        roots += steps == 0;
      }
      EXPECT_EQ(roots, 1);
      EXPECT_EQ(deepest, tree_depth(count)) << count;
    }
  }
  EXPECT_EQ(tree_depth(8), 3);
  EXPECT_EQ(tree_depth(6250), 13);
}

TEST(Trees, LoadALinkNoMoreThanHalfOfTheDataTwice) {
  EXPECT_EQ(most_children(1), 0);
  EXPECT_EQ(most_children(2), 1);
  for (int64_t count = 3; count < 300; ++count) EXPECT_EQ(most_children(count), 2) << count;
}

}  // namespace
}  // namespace trnsim::lower
