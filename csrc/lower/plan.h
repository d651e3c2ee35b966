// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Plan: the records of one step as units in the order in which they are issued: fused groups of
// ops, calls, waits of the host.
//
// Records come in the order of order.h. Invariant: every value that a unit reads was produced by
// itself or by an earlier unit. An op joins the unit of its latest producer, so all its other
// inputs come from that unit or from earlier ones and no cycle can arise. A value is one version of
// one storage; in the order of records the version that a reader sees is the last one written
// before it.
//
// Cost: O(records + uses).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lower/cost.h"

namespace trnsim::lower {

struct Value {
  int32_t producer = -1;  // unit; -1 = from before the step
  int32_t storage = -1;
  int64_t bytes = 0;             // of the storage
  std::vector<int32_t> readers;  // units other than the producer, ascending
  bool must_write = false;       // read by a call, the host or an in-place op, or outlives the step
};

struct Member {
  int64_t record = 0;
  const Cost* cost = nullptr;
  std::vector<int32_t> inputs;   // value of each input slot, -1 = without storage
  std::vector<int32_t> written;  // value that each output slot, then each mutated input, leaves
};

enum class UnitKind : uint8_t { ops, call, host_wait };

struct Unit {
  UnitKind kind = UnitKind::ops;
  std::vector<Member> members;  // one record at least, but for host_wait on everything
  std::vector<int32_t> fences;  // units to wait for beside data: waits and events
  std::vector<int32_t> reads;   // values that a call or host_wait reads
  workload::Phase phase = workload::Phase::other;
  bool fused = false;   // what only this unit reads is not written
  int32_t region = -1;  // compiled region
  int32_t graph = 0;    // graphs are launched one by one
  int32_t stream = 0;
  int32_t call = -1;           // in Workload::calls
  int64_t record = 0;          // the first one
  bool waits_for_all = false;  // host_wait without a value
  int8_t host_link = -1;       // of a copy between host and device: its way, as Cost has it
  // Of an ops unit, for joining:
  int64_t elements = 0, row_length = 0, row_bytes = 0;
  bool has_anchor = false, has_rows = false, open = false;
};

struct Plan {
  std::vector<Unit> units;
  std::vector<Value> values;
};

struct PlanOptions {
  bool fuse = true;            // else every op is a unit
  bool fuse_regions = false;   // all the same where a compiler saw it: in compiled regions
  bool anchors_alone = false;  // products take no epilogue: they are a library's kernels
  bool graph_per_op = false;   // else a graph ends at host reads, optimizers and mode changes
  bool whole_graphs = false;   // only at host reads
  int64_t sbuf_partition_bytes = 0;
  int64_t collective_streams = 0;  // 0 = one a group
};

// `costs` is by signature. `outside` marks records of the step that are left out.
Plan plan_step(const workload::Workload& workload, const workload::Step& step,
               const std::vector<uint8_t>& outside, const std::vector<Cost>& costs,
               const PlanOptions& options);

// Whether `reader` is the next unit after `producer`, copies to and from the host left out: they
// run beside what the engines do.
bool comes_next(const Plan& plan, int32_t producer, int32_t reader);

// A value stays on the chip between two units when its reader is the next unit of the same graph
// and phase, and it takes no more than a share of the SBUF, or of a TPU's VMEM.
bool stays_on_chip(const Plan& plan, const Value& value, int32_t reader, const Target& target);

// Queue of the collectives of a group slot.
int32_t collective_queue(int32_t group, int64_t collective_streams);

}  // namespace trnsim::lower
