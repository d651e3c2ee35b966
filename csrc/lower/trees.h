// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The two binary trees of a tree all-reduce, each of which carries half of the data. In the first
// the members stand in order, so that every odd one is a leaf; the second is its mirror image, or,
// for an odd number of members, the first moved on by one. A member with children in one tree has
// none in the other (but for one member of an odd number), so every link carries the data once each
// way (P. Sanders, J. Speck, J. L. Traeff, Two-tree algorithms for full bandwidth broadcast,
// reduction and scan, Parallel Computing 35, 2009; NCCL's double binary tree).
#pragma once

#include <cstdint>

namespace trnsim::lower {

// The parent of member `index` of `count` in tree 0 or 1; -1 for the root.
int64_t tree_parent(int64_t index, int64_t count, int tree);

// Steps from the farthest leaf to the root.
int64_t tree_depth(int64_t count);

// The most children that one member has in both trees.
int64_t most_children(int64_t count);

}  // namespace trnsim::lower
