// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "lower/trees.h"

#include <algorithm>
#include <vector>

namespace trnsim::lower {
namespace {

// In order, member 0 above all others. A member stands as high as its lowest set bit; its parent is
// the nearest one a bit higher, or below it where there is none above.
int64_t parent_in_order(int64_t index, int64_t count) {
  if (index == 0) return -1;
  const int64_t lowest = index & -index, below = index - lowest;
  const int64_t parent = below | (lowest << 1);
  return parent < count ? parent : below;
}

}  // namespace

int64_t tree_parent(int64_t index, int64_t count, int tree) {
  if (tree == 0) return parent_in_order(index, count);
  const bool mirrored = count % 2 == 0;
  const int64_t at = mirrored ? count - 1 - index : (index + count - 1) % count;
  const int64_t parent = parent_in_order(at, count);
  if (parent < 0) return -1;
  return mirrored ? count - 1 - parent : (parent + 1) % count;
}

int64_t tree_depth(int64_t count) {
  int64_t depth = 0;
  for (int64_t reach = 1; reach < count; reach *= 2) ++depth;
  return depth;
}

int64_t most_children(int64_t count) {
  std::vector<int64_t> children(size_t(std::max<int64_t>(1, count)), 0);
  for (const int tree : {0, 1}) {
    for (int64_t index = 0; index < count; ++index) {
      const int64_t parent = tree_parent(index, count, tree);
      if (parent >= 0) ++children[size_t(parent)];
    }
  }
  return *std::max_element(children.begin(), children.end());
}

}  // namespace trnsim::lower
