// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The recorder: the one writer of the Workload during a capture.
//
// Kernels call record_op once per op; what an op runs inside itself is silenced by a QuietScope (a
// per-thread depth counter), so that a composite op is one record. The recorder is thread safe:
// backward runs on autograd's own thread. Phase, module path, stream, autograd sequence number and
// grad mode are read from thread state here, never passed by kernels.
#pragma once

#include <ATen/core/TensorBody.h>

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "capture/runtime/block.h"
#include "workload/workload.h"

namespace trnsim::capture {

enum class Mode : uint8_t { phantom, compute };
Mode mode();
void set_mode(Mode mode);  // throws capture Error while trn tensors are alive

// Recording is off until start; while it is off the recorder costs one relaxed atomic load.
void start_recording();
bool is_recording();
// Ends the recording and hands out what was captured since start_recording.
std::shared_ptr<workload::Workload> stop_recording();
// What has been captured so far, while recording goes on (a copy).
std::shared_ptr<workload::Workload> snapshot_recording();

class QuietScope {
 public:
  QuietScope();
  ~QuietScope();
};
bool is_quiet();

// `signature` is interned by the caller through intern (the shape cache keeps the id). Ids are the
// process's and outlive recordings; a Workload holds only those that it uses.
int32_t intern(const workload::Signature& signature);
void record_op(int32_t signature, std::span<const at::Tensor> inputs,
               std::span<const at::Tensor> outputs, std::span<const at::Tensor> mutated);
// inputs are read and outputs written by the message; returns the call's index for record_wait.
int32_t record_call(const workload::Call& call, std::span<const at::Tensor> inputs,
                    std::span<const at::Tensor> outputs);
int32_t next_call();  // the index that the next message will have
void record_wait(int32_t call);
void record_host_read(std::span<const at::Tensor> inputs, bool answered_by_policy);
void record_event(int64_t event_id, int32_t stream);
void record_event_wait(int64_t event_id, int32_t stream);
void record_marker(workload::MarkerKind kind, int64_t value);

// The same for kernels that hold blocks already: no reference is counted. A null block (a CPU
// scalar) is left out of neither list: its use has storage -1. Every mutated block is written once.
void record_blocks(int32_t signature, std::span<Block* const> inputs,
                   std::span<Block* const> outputs, std::span<Block* const> mutated,
                   bool makes_node);  // grad mode is on and an input requires a gradient

// Storage life and kind: the allocator calls them for every block with bytes.
void note_allocation(Block& block);
void note_free(Block& block);
void set_storage_kind(const at::Tensor& tensor, workload::StorageKind kind);

// Module path and phase, kept by the Python hooks of trnsim/capture.
void push_module(const std::string& path);
void pop_module();
std::string module_path();  // of this thread's innermost module, "" outside of any
int64_t module_depth();
void push_recomputation();  // inside a checkpointed function that runs again
void pop_recomputation();
void push_optimizer();  // inside optimizer.step()
void pop_optimizer();
// A region of all threads, autograd's too, where they are in none of their own.
void begin_captured_graph(const std::string& description);
void end_captured_graph();
// A compiled region of this thread, until end_region, which also undoes what was pushed inside and
// is missing its pop, as after an exception. `trains`: autograd will walk it back as one node,
// whose forward runs without grad mode.
void begin_region(const std::string& description, bool trains);
void end_region();
// Inside a region: the module that its ops belong to, by its path below the region's own module;
// in a backward region, below the module of its forward. Empty: the region's own.
void set_region_module(const std::string& path_below);

// Runs `edit` on what has been recorded so far, with the number of the recording that blocks hold.
void edit_recording(
    const std::function<void(workload::Workload& workload, int32_t recording)>& edit);

// Groups in creation order; 0 is the world, made by set_world.
void set_world(int64_t rank, int64_t world_size, int64_t ranks_per_server);
int32_t add_group(const std::string& name, const workload::RankPattern& ranks);
void name_group(int32_t group, const std::string& name);
void reset_groups();   // forgets every group but the world: no process group is alive
int64_t work_count();  // ops and calls recorded so far
void set_parameter_count(int64_t count);  // elements of the parameters that optimizers hold
void add_note(const std::string& note);   // something that capture had to guess

workload::DType dtype_of(c10::ScalarType type);
workload::TensorMeta tensor_meta(const at::Tensor& tensor);

}  // namespace trnsim::capture
