// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Emission: units become tasks, by graph (Trainium) or one kernel an op (GPU).
//
// Graph. One launch, then its ops. The DMA queue is ordered load(i), load_weights(i+1), store(i).
// load_weights(i) waits for the end of op i-2 (two buffers), load(i) for its producers. The busiest
// engine of an op starts with its load and cannot end before it; the other engines and the store
// are placed so that they end with it, since they work on its tiles as they come. A cold op (first
// of a graph, or after a call that it needs) takes P0 + max over engines + Q0.
//
// Copies between host and device. Each way of the link to the host is a queue of its own, beside
// the engines and the HBM's DMA. What a stream holds before a copy ends before it begins, and what
// comes after it on that stream waits for it; other streams wait by events alone.
//
// Eager. The host launches ops in record order, a captured graph as one; a kernel waits for its
// launch and for the kernel before it on its stream.
//
// Messages of one batch arrive once: at the head of all queues that the batch names, when what any
// of them waits for is there. The batch ends with its last pair, and holds its queues until then.
#pragma once

#include "lower/builder.h"
#include "lower/group.h"

namespace trnsim::lower {

// Tasks of one unit.
struct UnitTasks {
  int32_t computed = -1;  // ends when the results are on the chip
  int32_t done = -1;      // ends when they are in the HBM too
  int32_t op = -1;
};

// Of a copy to or from the host: it is as long on a slow chip as on others.
inline TaskKind host_copy_kind(const Unit& unit) {
  return unit.host_link == 0 ? TaskKind::store : TaskKind::load;
}

struct Emission {
  const workload::Workload* workload = nullptr;
  const Plan* plan = nullptr;
  const Target* target = nullptr;
  // For each unit that is a call: its template and queue.
  std::vector<int32_t> call_template;
  std::vector<Queue> call_queue;
};

// How many units from `index` on are calls that arrive together: a batch, or one call alone.
size_t batch_size(const Emission& emission, size_t index);

struct Arrival {
  int32_t queue = 0, call = 0;  // of the Program
  std::vector<Dep> deps;
};

class Arrivals {
 public:
  // The tasks of calls that arrive together, in order.
  std::vector<int32_t> emit(Builder& builder, const std::vector<Arrival>& together);

 private:
  std::map<int32_t, std::vector<int32_t>> holding_;  // queue -> the batch that it ended with
};

void emit_graphs(const Emission& emission, Builder& builder);
void emit_eager(const Emission& emission, Builder& builder);

}  // namespace trnsim::lower
