// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "capture/runtime/allocator.h"
#include "capture/runtime/guard.h"

namespace trnsim::capture {

using workload::Phase;
using workload::Record;
using workload::RecordKind;
using workload::Workload;

namespace {

std::atomic<Mode> mode_now{Mode::phantom};
std::atomic<bool> recording_now{false};

// A thread's sequence numbers start at 0, so an ordinal of the thread goes into the upper bits.
constexpr int kThreadShift = 40;

struct Region {
  int32_t recording = -1, id = -1;
  bool trains = false;
  std::string below;  // path of the module below the region's
  size_t paths = 0;   // outside, to come back to
  int recomputation = 0;
};

struct ThreadState {
  int quiet = 0;
  int recomputation = 0;
  int optimizer = 0;
  std::vector<int32_t> modules;  // ids of the present recording
  int32_t recording = -1;        // that `modules` belongs to
  std::vector<std::string> paths;
  std::vector<Region> regions;
};
thread_local ThreadState thread;

struct Recorder {
  std::mutex mutex;
  int32_t recording = 0;  // counts recordings
  int32_t captured = -1;  // region of a graph that is being captured
  Workload workload;
  std::unordered_map<std::string, int32_t> module_ids;
  std::vector<int32_t> signature_ids;  // process-wide id -> id in the workload, -1 = unused
  // Sequence numbers count from the thread's first one in this recording, so that the same script
  // gives the same numbers whatever ran before it.
  struct Thread {
    int64_t base = 0;
    std::vector<int32_t> module_of_sequence;
  };
  std::vector<Thread> threads;
  std::unordered_map<uint64_t, size_t> thread_ordinals;

  // Process-wide, never reset.
  Workload signatures;  // holds only the interned signatures
  std::unordered_map<std::string, int32_t> signature_index;
  std::vector<workload::Group> groups{{"", {}}};
  int64_t rank = 0, world_size = 1, ranks_per_server = 1;

  size_t ordinal(uint64_t thread_id, int64_t base) {
    const auto [found, added] = thread_ordinals.try_emplace(thread_id, threads.size());
    if (added) threads.push_back({base, {}});
    return found->second;
  }

  int32_t module_id(const std::string& path) {
    const auto [found, added] = module_ids.try_emplace(path, int32_t(workload.modules.size()));
    if (added) workload.modules.push_back(path);
    return found->second;
  }

  int32_t signature_id(int32_t signature) {
    if (size_t(signature) >= signature_ids.size()) {
      signature_ids.resize(signatures.signatures.size(), -1);
    }
    int32_t& id = signature_ids[size_t(signature)];
    if (id < 0) {
      id = int32_t(workload.signatures.size());
      workload.signatures.push_back(signatures.signatures[size_t(signature)]);
    }
    return id;
  }

  void add_storage(Block& block) {
    block.recording = recording;
    block.storage = int32_t(workload.storages.size());
    block.version = 0;
    workload::Storage storage;
    storage.bytes = block.bytes;
    storage.born = int64_t(workload.records.size());
    if (block.kind >= 0) storage.kind = workload::StorageKind(block.kind);
    workload.storages.push_back(storage);
    workload.allocations.push_back({storage.born, block.storage, block.stream, false});
  }

  int32_t storage_of(Block* block) {
    if (block == nullptr || block->bytes == 0) return -1;
    if (block->recording != recording) add_storage(*block);
    return block->storage;
  }

  int32_t current_module() {
    if (thread.paths.empty()) return 0;
    if (thread.recording != recording) {
      thread.modules.clear();
      for (const auto& path : thread.paths) thread.modules.push_back(module_id(path));
      thread.recording = recording;
    }
    return thread.modules.back();
  }

  // The innermost region of this thread that belongs to this recording.
  const Region* current_region() const {
    if (thread.regions.empty() || thread.regions.back().recording != recording) return nullptr;
    return &thread.regions.back();
  }

  // Fills phase, module, region, sequence number and grad mode from the state of this thread.
  void place(Record& record, bool makes_node) {
    const Region* const region = current_region();
    place_by_autograd(record, makes_node, region != nullptr && region->trains);
    record.region = region == nullptr ? captured : region->id;
    if (region == nullptr) return;
    if (region->below.empty()) return;
    const std::string& above = workload.modules[size_t(record.module)];
    record.module = module_id(above.empty() ? region->below : above + "." + region->below);
  }

  void place_by_autograd(Record& record, bool makes_node, bool trains) {
    record.stream = current_stream_index(current_device());
    record.no_grad = at::GradMode::is_enabled() || trains ? 0 : 1;
    record.module = current_module();
    const auto node = torch::autograd::get_current_node();
    if (thread.optimizer > 0) {
      record.phase = Phase::optimizer;
    } else if (thread.recomputation > 0) {
      record.phase = Phase::recomputation;
    } else if (node) {
      record.phase = Phase::backward;
      place_backward(record, *node);
      return;
    } else if (torch::autograd::get_current_graph_task_id() != -1) {
      record.phase = Phase::backward;  // a callback at its end, as of DDP's reducer
      return;
    } else if (!record.no_grad || !thread.paths.empty()) {
      record.phase = Phase::forward;
    }
    if (makes_node || trains) place_node(record);
  }

  void place_backward(Record& record, const torch::autograd::Node& node) {
    // Leaves accumulate with the largest number there is; they belong to no forward op.
    if (node.sequence_nr() >= uint64_t(1) << kThreadShift) return;
    const auto found = thread_ordinals.find(node.thread_id());
    if (found == thread_ordinals.end()) return;
    const Thread& forward = threads[found->second];
    const int64_t sequence = int64_t(node.sequence_nr()) - forward.base;
    if (sequence < 0) return;  // made before the recording
    record.sequence_nr = sequence | int64_t(found->second) << kThreadShift;
    const auto& modules = forward.module_of_sequence;
    if (size_t(sequence) < modules.size() && modules[size_t(sequence)] >= 0) {
      record.module = modules[size_t(sequence)];
    }
  }

  void place_node(Record& record) {
    // Autograd made the op's node just before it called the kernel.
    const auto made = int64_t(at::sequence_number::peek()) - 1;
    if (made < 0) return;
    const size_t own = ordinal(at::RecordFunction::currentThreadId(), made);
    const int64_t sequence = made - threads[own].base;
    if (sequence < 0) return;
    record.sequence_nr = sequence | int64_t(own) << kThreadShift;
    auto& modules = threads[own].module_of_sequence;
    if (size_t(sequence) >= modules.size()) modules.resize(size_t(sequence) + 1, -1);
    modules[size_t(sequence)] = record.module;
  }

  // Each written storage once, also when several arguments share it.
  void bump_versions(std::span<Block* const> mutated) {
    const bool is_short = mutated.size() <= 8;  // then comparing is quicker than hashing
    std::unordered_set<Block*> seen;
    for (size_t i = 0; i < mutated.size(); ++i) {
      Block* const block = mutated[i];
      if (storage_of(block) < 0) continue;
      const auto before = mutated.first(i);
      const bool is_new = is_short ? std::find(before.begin(), before.end(), block) == before.end()
                                   : seen.insert(block).second;
      if (is_new) ++block->version;
    }
  }

  void add_uses(Record& record, std::span<Block* const> inputs, std::span<Block* const> outputs,
                std::span<Block* const> mutated) {
    record.uses_begin = int64_t(workload.uses.size());
    record.uses_count = int32_t(inputs.size() + outputs.size());
    for (Block* const block : inputs) {
      const int32_t storage = storage_of(block);
      workload.uses.push_back({storage, storage < 0 ? 0 : block->version});
    }
    bump_versions(mutated);
    for (Block* const block : outputs) {
      const int32_t storage = storage_of(block);
      workload.uses.push_back({storage, storage < 0 ? 0 : block->version});
    }
  }
};

Recorder& recorder() {
  static Recorder* const recorder = new Recorder;  // outlives every static tensor
  return *recorder;
}

struct Blocks {
  c10::SmallVector<Block*, 16> blocks;
  bool requires_grad = false;
  explicit Blocks(std::span<const at::Tensor> tensors) {
    for (const auto& tensor : tensors) {
      blocks.push_back(block_of(tensor));
      requires_grad |= tensor.defined() && tensor.requires_grad();
    }
  }
  std::span<Block* const> span() const { return {blocks.data(), blocks.size()}; }
};

}  // namespace

Mode mode() { return mode_now.load(std::memory_order_relaxed); }

void set_mode(Mode mode) {
  if (mode == mode_now.load()) return;
  TRN_CHECK(live_block_count() == 0, capture,
            "the mode cannot change while device tensors are alive",
            "choose phantom or compute before the first tensor on the device");
  mode_now.store(mode);
}

bool is_recording() { return recording_now.load(std::memory_order_relaxed); }

void start_recording() {
  Recorder& all = recorder();
  {
    const std::lock_guard lock(all.mutex);
    TRN_CHECK(!is_recording(), capture, "a recording is already running",
              "end it before starting another");
    ++all.recording;
    all.workload = Workload();
    all.captured = -1;
    all.module_ids = {{"", 0}};
    all.signature_ids.clear();
    all.threads.clear();
    all.thread_ordinals.clear();
    // This thread is number 0.
    all.ordinal(at::RecordFunction::currentThreadId(), int64_t(at::sequence_number::peek()));
  }
  for_each_live_block([&](Block& block) { all.add_storage(block); });
  recording_now.store(true);
}

namespace {

std::shared_ptr<Workload> finish(Recorder& all, Workload&& workload) {
  workload.groups = all.groups;
  workload.groups[0].ranks = all.world_size == 1
                                 ? workload::RankPattern{}
                                 : workload::RankPattern{0, {{1, all.world_size}}, {}};
  workload.rank = all.rank;
  workload.role = "rank" + std::to_string(all.rank);
  workload.world_size = all.world_size;
  workload.ranks_per_server = all.ranks_per_server;
  workload.mode = mode() == Mode::phantom ? "phantom" : "compute";
  workload::order_frees(workload);
  return std::make_shared<Workload>(std::move(workload));
}

}  // namespace

std::shared_ptr<Workload> stop_recording() {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  TRN_CHECK(is_recording(), capture, "no recording is running", "call start_recording first");
  recording_now.store(false);
  auto result = finish(all, std::move(all.workload));
  all.workload = Workload();
  ++all.recording;  // blocks forget the storages of this one
  return result;
}

std::shared_ptr<Workload> snapshot_recording() {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  TRN_CHECK(is_recording(), capture, "no recording is running", "call start_recording first");
  return finish(all, Workload(all.workload));
}

QuietScope::QuietScope() { ++thread.quiet; }
QuietScope::~QuietScope() { --thread.quiet; }
bool is_quiet() { return thread.quiet > 0; }

int32_t intern(const workload::Signature& signature) {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  return workload::intern_signature(all.signatures, signature, all.signature_index);
}

void record_blocks(int32_t signature, std::span<Block* const> inputs,
                   std::span<Block* const> outputs, std::span<Block* const> mutated,
                   bool makes_node) {
  if (!is_recording() || is_quiet()) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  Record record;
  record.signature = all.signature_id(signature);
  all.place(record, makes_node);
  all.add_uses(record, inputs, outputs, mutated);
  all.workload.records.push_back(record);
}

void record_op(int32_t signature, std::span<const at::Tensor> inputs,
               std::span<const at::Tensor> outputs, std::span<const at::Tensor> mutated) {
  if (!is_recording() || is_quiet()) return;
  const Blocks in(inputs), out(outputs), written(mutated);
  record_blocks(signature, in.span(), out.span(), written.span(),
                in.requires_grad && at::GradMode::is_enabled());
}

int32_t record_call(const workload::Call& call, std::span<const at::Tensor> inputs,
                    std::span<const at::Tensor> outputs) {
  if (!is_recording()) return -1;
  workload::Signature signature;
  signature.op = std::string("c10d::") + workload::call_kind_name(call.kind);
  const auto slots = [](std::span<const at::Tensor> tensors, const char* name) {
    std::vector<workload::TensorSlot> result;
    for (size_t i = 0; i < tensors.size(); ++i) {
      workload::TensorSlot slot;
      slot.argument = name;
      slot.index = int32_t(i);
      slot.meta = tensor_meta(tensors[i]);
      result.push_back(std::move(slot));
    }
    return result;
  };
  signature.inputs = slots(inputs, "input");
  signature.outputs = slots(outputs, "output");
  const int32_t id = intern(signature);
  const Blocks in(inputs), out(outputs);
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  Record record;
  record.kind = RecordKind::call;
  record.signature = all.signature_id(id);
  record.payload = int32_t(all.workload.calls.size());
  all.place(record, false);
  all.add_uses(record, in.span(), out.span(), out.span());
  all.workload.calls.push_back(call);
  all.workload.records.push_back(record);
  return record.payload;
}

namespace {

void record_simple(RecordKind kind, int32_t payload, int64_t value, int32_t stream) {
  if (!is_recording()) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  Record record;
  record.kind = kind;
  all.place(record, false);
  record.payload = payload;
  record.value = value;
  if (stream >= 0) record.stream = stream;
  record.uses_begin = int64_t(all.workload.uses.size());
  all.workload.records.push_back(record);
}

}  // namespace

void record_wait(int32_t call) {
  if (call >= 0) record_simple(RecordKind::wait, call, -1, -1);
}

void record_host_read(std::span<const at::Tensor> inputs, bool answered_by_policy) {
  if (!is_recording() || is_quiet()) return;
  const Blocks in(inputs);
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  Record record;
  record.kind = RecordKind::host_read;
  record.fallback_read = answered_by_policy ? 1 : 0;
  all.place(record, false);
  all.add_uses(record, in.span(), {}, {});
  all.workload.records.push_back(record);
  constexpr int64_t kMany = 1000;
  // A script that waits for a value to change waits for ever: nothing else would tell.
  if (answered_by_policy && ++all.workload.unknown_reads == kMany) {
    std::fputs(
        "trnsim: 1000 values were read that phantom mode does not know; a bool reads False and a "
        "number reads 1. If the script waits for one, use --mode compute or --stop-after-step\n",
        stderr);
  }
}

void record_event(int64_t event_id, int32_t stream) {
  record_simple(RecordKind::event_record, int32_t(event_id), -1, stream);
}

void record_event_wait(int64_t event_id, int32_t stream) {
  record_simple(RecordKind::event_wait, int32_t(event_id), -1, stream);
}

void record_marker(workload::MarkerKind kind, int64_t value) {
  record_simple(RecordKind::marker, int32_t(kind), value, -1);
}

void note_allocation(Block& block) {
  if (!is_recording()) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  all.add_storage(block);
}

void note_free(Block& block) {
  if (!is_recording()) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (block.recording != all.recording) return;
  const auto now = int64_t(all.workload.records.size());
  all.workload.storages[size_t(block.storage)].died = now;
  all.workload.allocations.push_back({now, block.storage, block.stream, true});
}

void set_storage_kind(const at::Tensor& tensor, workload::StorageKind kind) {
  Block* const block = block_of(tensor);
  if (block == nullptr) return;
  block->kind = int8_t(kind);
  if (!is_recording()) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  const int32_t storage = all.storage_of(block);
  if (storage >= 0) all.workload.storages[size_t(storage)].kind = kind;
}

void push_module(const std::string& path) {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  thread.paths.push_back(path);
  if (thread.recording == all.recording)
    thread.modules.push_back(all.module_id(path));
  else
    thread.recording = -1;
}

void pop_module() {
  TRN_ASSERT(!thread.paths.empty(), "pop_module without push_module");
  thread.paths.pop_back();
  if (!thread.modules.empty() && thread.recording >= 0) thread.modules.pop_back();
}

std::string module_path() { return thread.paths.empty() ? "" : thread.paths.back(); }
int64_t module_depth() { return int64_t(thread.paths.size()); }

void push_recomputation() { ++thread.recomputation; }
void pop_recomputation() { --thread.recomputation; }
void push_optimizer() { ++thread.optimizer; }
void pop_optimizer() { --thread.optimizer; }

void edit_recording(const std::function<void(Workload& workload, int32_t recording)>& edit) {
  const std::lock_guard lock(recorder().mutex);
  edit(recorder().workload, recorder().recording);
}

void begin_captured_graph(const std::string& description) {
  if (!is_recording()) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  all.captured = int32_t(all.workload.regions.size());
  all.workload.regions.push_back(description);
}

void end_captured_graph() {
  const std::lock_guard lock(recorder().mutex);
  recorder().captured = -1;
}

void begin_region(const std::string& description, bool trains) {
  Region region;
  region.trains = trains;
  region.paths = thread.paths.size();
  region.recomputation = thread.recomputation;
  if (is_recording()) {
    Recorder& all = recorder();
    const std::lock_guard lock(all.mutex);
    region.recording = all.recording;
    region.id = int32_t(all.workload.regions.size());
    all.workload.regions.push_back(description);
  }
  thread.regions.push_back(std::move(region));
}

void end_region() {
  TRN_ASSERT(!thread.regions.empty(), "end_region without begin_region");
  const Region region = std::move(thread.regions.back());
  thread.regions.pop_back();
  while (thread.paths.size() > region.paths) pop_module();
  thread.recomputation = region.recomputation;
}

void set_region_module(const std::string& path_below) {
  TRN_ASSERT(!thread.regions.empty(), "set_region_module outside of a region");
  thread.regions.back().below = path_below;
}

void set_world(int64_t rank, int64_t world_size, int64_t ranks_per_server) {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  all.rank = rank;
  all.world_size = world_size;
  all.ranks_per_server = ranks_per_server;
}

int32_t add_group(const std::string& name, const workload::RankPattern& ranks) {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  all.groups.push_back({name, ranks});
  return int32_t(all.groups.size()) - 1;
}

void name_group(int32_t group, const std::string& name) {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  all.groups[size_t(group)].name = name;
}

void reset_groups() {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  all.groups.resize(1);
}

int64_t work_count() {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  const auto is_work = [](const Record& record) {
    return record.kind == RecordKind::op || record.kind == RecordKind::call;
  };
  return std::count_if(all.workload.records.begin(), all.workload.records.end(), is_work);
}

int32_t next_call() {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  return int32_t(all.workload.calls.size());
}

void set_parameter_count(int64_t count) {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  all.workload.parameter_count = count;
}

void add_note(const std::string& note) {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  for (const auto& known : all.workload.notes) {
    if (known == note) return;
  }
  all.workload.notes.push_back(note);
}

}  // namespace trnsim::capture
