// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Timeline: the start and end of every task and every transfer of a run, in ps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fold/system.h"

namespace trnsim::simulate {

// One call of one communicator.
struct CallSpan {
  int32_t communicator = 0;
  int32_t call = 0;                                        // template of the first member
  int64_t sequence = 0;                                    // k-th call on the communicator
  int64_t first_arrival_ps = 0, start_ps = 0, end_ps = 0;  // start = last arrival
  std::vector<int64_t> entry_ps, phase_end_ps;             // of each phase; entry = T + L
};

struct Timeline {
  std::shared_ptr<const fold::System> system;
  int64_t makespan_ps = 0;
  uint64_t hash = 0;                 // sum mod 2^64 of mix(role, task, end) * count; no rank ids
  std::vector<int64_t> last_end_ps;  // of rank r; 0 where it has no tasks
  std::vector<int64_t> first_task;   // of rank r in starts and ends; size ranks + 1
  std::vector<int64_t> starts_ps, ends_ps;
  std::vector<CallSpan> calls;  // ascending by (end, communicator, sequence)
  int64_t solve_count = 0, event_count = 0;
  std::string engine;  // "reference" or "bulk cpp|omp|tbb|cuda", and why
};

enum class Engine : uint8_t { reference, bulk };
// automatic: by TRNSIM_DEVICE (cuda or cpu, the default), and on a CPU by the size of the run: cpp
// or omp. tbb only where it is asked for, in builds that have it.
enum class Backend : uint8_t { automatic, cpp, omp, tbb, cuda };

// Of all runs that were given it. Written by the simulating threads, read by any other.
struct Progress {
  std::atomic<int64_t> tasks_ended{0}, tasks_total{0};
};

class Exchange;  // shard.h

struct SimulateOptions {
  Engine engine = Engine::bulk;
  Backend backend = Backend::automatic;
  bool certify = false;          // check the max-min certificate at every solve
  bool keep_times = true;        // else starts_ps and ends_ps stay empty (bulk only)
  bool use_private = true;       // resolve private collectives inside the lane
  Progress* progress = nullptr;  // or null; not owned
  // Of a run on several processes: how they talk (not owned), and which ranks have their lanes
  // here. The Timeline then has the times of these ranks and the calls that were met here; makespan
  // and hash are the job's. Bulk only.
  Exchange* exchange = nullptr;
  int64_t first_rank = 0, end_rank = 0;
};

// Runs the System to its end. Throws SimulateError for deadlocks (naming tasks, queues, ranks of
// the cycle), mismatched or missing calls and flows that cannot move.
Timeline simulate_step(std::shared_ptr<const fold::System> system, const SimulateOptions& options);

}  // namespace trnsim::simulate
