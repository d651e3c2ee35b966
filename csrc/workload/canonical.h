// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A Workload without arbitrary names, private to this room: what hash and compare look at.
//
// Storages, events, optimizers and autograd's sequence numbers get the number of their first
// appearance, so two captures of one script in one process are equal. Indices of tables (signature,
// module, region, call) stay and are compared through what they name.
// O(records + uses + allocations).
#pragma once

#include "workload/workload.h"

namespace trnsim::workload {

struct Canonical {
  std::vector<Record> records;  // renumbered; unknown values forgotten
  std::vector<TensorUse> uses;  // at the same places as in the Workload
  std::vector<AllocationEvent> allocations;
  std::vector<int32_t> storage_order;  // new number -> old: by use, then by allocation, then rest
};
Canonical canonical(const Workload& workload);

// One line for a record of `workload`, with the numbers of `record` and `uses`.
std::string print_with(const Workload& workload, int64_t at, const Record& record,
                       const TensorUse* uses);

}  // namespace trnsim::workload
