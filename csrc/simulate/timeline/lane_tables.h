// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Programs as flat tables for the bulk lanes: plain structs that a GPU can read as they are.
//
// Tasks of a queue ascend in the table, so a queue's head, as a task index, says all: task d has
// ended exactly when the head of its queue is beyond d.
//
// Slots. A time that somebody will read lives in a slot of the lane's window. With every time kept,
// the end of task t is in slot t and its start in slot tasks + t. Otherwise slots are reused: task
// b may take the slot of task a when a and all readers of a come before b by queue order or
// dependence, so that no run-ahead of a queue can overwrite what a blocked one still needs.
#pragma once

#include <cstdint>
#include <vector>

#include "fold/system.h"

namespace trnsim::simulate {

inline constexpr int32_t kNone = -1;

// 48 bytes.
struct TaskRow {
  int64_t duration_ps = 0;
  uint64_t hash_seed = 0;
  int32_t next = 0;        // next task of its queue; the task count after the last
  int32_t deps_begin = 0;  // start conditions first, then end bounds
  int32_t start_deps = 0, bounds = 0;
  int32_t end_slot = kNone, start_slot = kNone;
  int16_t queue = 0;
  uint8_t is_call = 0;
  uint8_t is_scaled = 0;  // by the rank's factor
  uint8_t is_simple = 0;  // no call, no bounds, at most two start conditions, under 2^48 ps
};

// 24 bytes. Dependences that queue order implies are left out.
struct DepRow {
  int64_t lag_ps = 0;
  int32_t task = 0;
  int32_t slot = 0;
  int16_t queue = 0;
  uint8_t on_start = 0;
};

struct RoleTable {
  int32_t task_count = 0, queue_count = 0, slot_count = 0;
  int32_t task_begin = 0;   // in LaneTables::tasks; deps_begin of its tasks is global
  int32_t queue_begin = 0;  // in LaneTables::first_tasks and call_queues
  int32_t call_queue_count = 0;
};

struct LaneTables {
  std::vector<RoleTable> roles;
  std::vector<TaskRow> tasks;
  std::vector<DepRow> deps;
  std::vector<int32_t> first_tasks;  // head of each queue at the start
  std::vector<int32_t> call_queues;  // dense number among the role's queues with calls, or kNone
  // Tasks that read the end or the start of task t, in readers[first_reader[t], first_reader[t +
  // 1]); indices of t as in `tasks`, readers count from their role's first. Empty with every time
  // kept.
  std::vector<int64_t> first_reader;
  std::vector<int32_t> readers;

  // Tasks of the role's queue that stand before `head`.
  int32_t count_before(const RoleTable& role, int32_t queue, int32_t head) const;
};

// keep_times: a slot for every start and end. Throws SimulateError beyond 32,767 queues.
LaneTables make_lane_tables(const fold::System& system, bool keep_times);

}  // namespace trnsim::simulate
