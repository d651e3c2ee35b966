// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Repeats a range of records at the end of a Workload, as the replay of a captured graph does.
#pragma once

#include <functional>
#include <unordered_map>

#include "workload/workload.h"

namespace trnsim::workload {

struct Range {
  int64_t begin = 0, end = 0;
};

// Of the storages that are alive: the version that was written last.
using StorageVersions = std::unordered_map<int32_t, int32_t>;

// Appends copies of `records`. A storage of `alive` stays itself, and its version there becomes
// what the copies leave; one that was freed since is another storage, allocated and freed where the
// trace `allocations` of the range did it, and at its ends where that did not. Calls are copied,
// events get ids of `next_event`, and a region becomes another of the same description.
// O(records + uses of the range).
void repeat_records(Workload& workload, Range records, Range allocations, StorageVersions& alive,
                    const std::function<int64_t()>& next_event);

}  // namespace trnsim::workload
