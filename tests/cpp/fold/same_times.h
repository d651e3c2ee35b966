// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Whether a folded run has the times of the unfolded one.
#pragma once

#include <gtest/gtest.h>

#include "fold/cohorts.h"
#include "simulate/timeline.h"

namespace trnsim::fold {

// Every start and end of every rank is its class's.
inline void expect_same_tasks(const simulate::Timeline& unfolded, const simulate::Timeline& folded,
                              const Cohorts& cohorts) {
  EXPECT_EQ(folded.hash, unfolded.hash);
  EXPECT_EQ(folded.makespan_ps, unfolded.makespan_ps);
  int64_t different = 0;
  for (size_t rank = 0; rank < unfolded.system->ranks.size(); ++rank) {
    const int64_t own = unfolded.first_task[rank];
    const int64_t shown = folded.first_task[size_t(cohorts.class_of_rank[rank])];
    for (int64_t task = 0; task < unfolded.first_task[rank + 1] - own; ++task) {
      const size_t a = size_t(own + task), b = size_t(shown + task);
      different += unfolded.starts_ps[a] != folded.starts_ps[b];
      different += unfolded.ends_ps[a] != folded.ends_ps[b];
    }
  }
  EXPECT_EQ(different, 0);
}

}  // namespace trnsim::fold
