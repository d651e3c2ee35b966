// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Workload: what a script asked of the device, with no hardware in it.
//
// One Workload is one role: the records of one captured rank, in the order in which the script
// issued them. A record is small (48 bytes) and points into tables:
//
//   signatures   what kind of op with which shapes: interned, so equal calls share one
//   uses         which storages, at which version: the data dependences
//   calls        arguments of collectives and point-to-point messages
//   storages     sizes, kinds and lifetimes; allocations is the trace that project replays
//   modules      module paths ("model.layers.0.attn"); 0 is the root, ""
//   groups       process groups that the rank belongs to, in creation order; 0 is the world
//
// A write makes version v of a storage into v + 1, so a reader's (storage, version) names its
// producer. Pure aliases (view, t(), conj) are not recorded at all: their results carry the storage
// of their input. Everything is in plain tables of integers so that it can be saved as parquet.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace trnsim::workload {

enum class DType : uint8_t {
  bool_,
  uint8,
  int8,
  int16,
  int32,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
  complex32,
  complex64,
  complex128,
  float8_e4m3fn,
  float8_e5m2,
  uint16,
  uint32,
  uint64,
  other
};
// Bytes of one element; `other` counts 1.
int64_t dtype_bytes(DType dtype);
// PyTorch's name without "torch.": "float32", "bool".
const char* dtype_name(DType dtype);
DType dtype_from_name(const std::string& name);  // throws workload Error

struct TensorMeta {
  DType dtype = DType::float32;
  int64_t offset = 0;  // elements from the start of the storage
  std::vector<int64_t> sizes, strides;

  int64_t element_count() const;  // product of sizes
  int64_t byte_count() const;     // element_count() * dtype_bytes(dtype)
  bool is_contiguous() const;
  bool operator==(const TensorMeta&) const = default;
};

// One tensor argument or result of a signature.
struct TensorSlot {
  std::string argument;  // name in the schema; "out0", "out1", ... for results
  int32_t index = -1;    // position in a list argument, -1 when it is not a list
  bool mutated = false;  // the op writes this argument in place (results: an alias of one)
  TensorMeta meta;
  bool operator==(const TensorSlot&) const = default;
};

using ScalarValue =
    std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>>;
struct Scalar {
  std::string name;  // name in the schema
  ScalarValue value;
  bool operator==(const Scalar&) const = default;
};

// Interned: two records with equal signatures cost the same. Inputs are the tensor arguments in
// schema order (lists flattened, absent ones left out); outputs are the results in order. A mutated
// argument also appears among the outputs when the op returns it. Scalars are all other arguments
// that are not None, by schema name.
struct Signature {
  std::string op;  // "aten::add.Tensor", "aten::mm", "c10d::allreduce_", "trnsim::..."
  std::vector<TensorSlot> inputs, outputs;
  std::vector<Scalar> scalars;

  const TensorSlot* input(const std::string& argument) const;       // first match, or null
  const Scalar* scalar(const std::string& name) const;              // or null
  int64_t int_or(const std::string& name, int64_t fallback) const;  // also reads a bool
  // Canonical, reversible text; equality of signatures is equality of texts. One line:
  //   aten::mm(self: bfloat16[4,8]{8,1}, mat2: bfloat16[8,2]{1,8}+16) -> (out0: bfloat16[4,2])
  // {strides} is left out when contiguous, +offset when 0; "!" after a name marks mutated; list
  // slots are name#3; scalars follow as name=value (ints bare, doubles with "f", strings quoted,
  // lists in brackets).
  std::string text() const;
  static Signature parse(const std::string& text);  // throws workload Error
  bool operator==(const Signature&) const = default;
};

enum class RecordKind : uint8_t {
  op,            // signature and uses
  call,          // a collective or point-to-point message: payload = index in calls; uses too
  wait,          // the stream waits for a call: payload = index in calls
  host_read,     // the host waits for a device value: item(), .cpu(), synchronize; uses optional
  event_record,  // payload = event id
  event_wait,    // the record's stream waits for payload = event id
  marker         // payload = MarkerKind
};

enum class MarkerKind : int32_t {
  optimizer_begin,    // value = id of the optimizer object
  optimizer_end,      // value = id of the optimizer object
  forward_begin,      // an outermost module call with grad enabled; value = samples or -1
  step,               // torch.trn.step(); value = tokens or -1
  optimizer_skipped,  // GradScaler skipped it; value = id
  setup               // work of this step that later ones do not have: DDP lays its buckets anew
};
const char* marker_kind_name(MarkerKind kind);

enum class Phase : uint8_t { forward, recomputation, backward, optimizer, other };
const char* phase_name(Phase phase);

struct Record {
  int32_t signature = -1;    // index in signatures; -1 unless op or call
  int32_t module = 0;        // index in modules
  int64_t sequence_nr = -1;  // autograd's; equal for a forward op and its backward ops
  int64_t uses_begin = 0;    // first of its inputs in uses; outputs follow its inputs
  int32_t uses_count = 0;
  int32_t stream = 0;   // 0 = the default stream
  int32_t region = -1;  // compiled region, -1 = eager
  int32_t payload = -1;
  int64_t value = -1;  // of a marker
  RecordKind kind = RecordKind::op;
  Phase phase = Phase::other;
  uint8_t no_grad = 0;        // grad mode was off
  uint8_t fallback_read = 0;  // needed a value that phantom mode does not know
};

struct TensorUse {
  int32_t storage = -1;  // -1: a number of the host, or a tensor without bytes
  int32_t version = 0;   // of an input: what it reads; of an output: what it leaves
};

// Ordered by precedence in reports. Set by capture when known, refined by classify_storages.
enum class StorageKind : uint8_t {
  parameter,
  gradient,
  optimizer_state,
  activation,
  communication,
  buffer,
  input,
  temporary
};
inline constexpr int kStorageKindCount = 8;
const char* storage_kind_name(StorageKind kind);

struct Storage {
  int64_t bytes = 0;
  int64_t born = 0;   // index of the record before which it was allocated
  int64_t died = -1;  // index of the record before which it was freed; -1 = alive at the end
  StorageKind kind = StorageKind::temporary;
};

// Every allocation and free in order: what the caching-allocator model is replayed on.
struct AllocationEvent {
  int64_t record = 0;  // index of the next record
  int32_t storage = -1;
  int32_t stream = 0;
  bool is_free = false;
};

// Ranks start, start + stride, ...; a group over several axes has one axis each, fastest first.
// Irregular groups list their ranks.
struct RankPattern {
  int64_t start = 0;
  std::vector<std::array<int64_t, 2>> axes;  // {stride, count}
  std::vector<int64_t> listed;               // used when axes is empty and size() > 1

  int64_t size() const;
  int64_t rank_at(int64_t index) const;  // 0 <= index < size()
  int64_t index_of(int64_t rank) const;  // -1 when it is not a member
  // What is wrong with it as ranks of so many: one outside, or one named twice; "" when nothing is.
  std::string problem_of(int64_t world_size) const;
  static RankPattern of(const std::vector<int64_t>& ranks);  // finds axes where there are any
  std::string text() const;  // "0..63", "0,8,16", "start 0 axes 1x8 64x4"
  static RankPattern parse(const std::string& text);
  bool operator==(const RankPattern&) const = default;
};

struct Group {
  std::string name;  // the group's description or name, "" = default
  RankPattern ranks;
  bool operator==(const Group&) const = default;
};

enum class CallKind : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  barrier
};
const char* call_kind_name(CallKind kind);

// bytes: all_reduce, broadcast, reduce: the buffer; all_gather, gather: the whole result;
// reduce_scatter, scatter, all_to_all: the whole input of this rank; send, recv: the message.
struct Call {
  CallKind kind = CallKind::all_reduce;
  int32_t group = 0;
  int64_t bytes = 0;
  int32_t peer = -1;  // root of a rooted collective, peer of a message: a rank, not an index
  int32_t tag = 0;
  bool async = false;  // asked for with async_op=True, or by DDP's reducer
  DType dtype = DType::float32;
  std::vector<int64_t> splits;  // bytes to each member, for uneven all_to_all
  // Bytes from each member, where they or the splits are uneven; empty: even, or, beside uneven
  // splits, not known.
  std::vector<int64_t> received;
  int32_t batch = -1;  // messages issued together: the index of the first of them; -1 = alone
  bool operator==(const Call&) const = default;
};

// How far an all-to-all shifts what member `own` has: the distance to the one member that gets
// anything, where what comes, if known, comes from the one as far the other way. -1 when it is no
// shift, or nobody's (own < 0).
int64_t shift_of(const Call& call, int64_t own);

struct Workload {
  std::vector<Record> records;
  std::vector<Signature> signatures;
  std::vector<TensorUse> uses;
  std::vector<Call> calls;
  std::vector<Storage> storages;
  std::vector<AllocationEvent> allocations;
  std::vector<std::string> modules{""};
  std::vector<std::string> regions;  // description of each compiled region
  std::vector<Group> groups;

  std::string role = "rank0";
  std::optional<RankPattern> played_by;  // the ranks of the role; nothing: every rank of the world
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t ranks_per_server = 1;
  std::string mode = "phantom";  // or "compute"; no part of the hash or of comparisons
  uint64_t seed = 0;
  int64_t unknown_reads = 0;       // host reads answered by policy in phantom mode
  int64_t parameter_count = 0;     // elements of the parameters that an optimizer holds
  std::vector<std::string> notes;  // what capture had to guess, one line each

  const Signature& signature_of(const Record& record) const {
    return signatures[size_t(record.signature)];
  }
};

// How many of a record's uses are inputs; the others are what it writes. An op reads one use for
// each input of its signature (fewer never happen), a host read reads all of its uses.
int32_t input_count(const Workload& workload, const Record& record);

// Returns the index of an equal signature, adding it if there is none. `index` caches texts.
int32_t intern_signature(Workload& workload, const Signature& signature,
                         std::unordered_map<std::string, int32_t>& index);

// Throws workload Error if an index points outside its table or counts do not match.
void check_workload(const Workload& workload);

// Everything but mode, seed, notes, what phantom mode did not know (unknown_reads, fallback_read)
// and arbitrary names: ids of storages, events and optimizers, autograd's sequence numbers, indices
// of signatures and modules are renumbered by first use or replaced by what they name.
uint64_t hash_workload(const Workload& workload);

// Equal means what hash_workload means. Empty when equal, else one line for each of the first
// `limit` differences, which name the record, what it is in `a` and what it is in `b`.
std::vector<std::string> compare_workloads(const Workload& a, const Workload& b, int limit);

// Sorts each run of frees that nothing stands between by storage. Their order has no meaning and no
// effect (a run ends merged the same way), but comes from the addresses of destroyed objects.
void order_frees(Workload& workload);

// Refines Storage::kind from how storages are used: written in backward and read by the optimizer =
// gradient (without an optimizer, written in backward and never freed), made in an optimizer step
// and kept = optimizer_state, made in forward and alive into backward = activation, else part of a
// call, such as a bucket = communication. Keeps what capture set to parameter, buffer, input or
// communication.
void classify_storages(Workload& workload);

// One training step: records [begin, end).
struct Step {
  int64_t begin = 0, end = 0;
  int64_t optimizer_count = 0;
  bool whole = false;            // ended by an optimizer step (or a step marker)
  bool creates_state = false;    // the first step of an optimizer: its state is created in it
  bool sets_up = false;          // DDP lays its buckets anew in it
  bool updates_by_hand = false;  // no optimizer: it ends with changes of parameters in place
};
// A step ends when the last optimizer that stepped returned and the next forward begins (in a stage
// of a pipeline: the first message comes), or the script ends. In a script without optimizers, what
// changes parameters in place after a backward ends it; without any, everything is one step. Where
// the script marks steps itself (torch.trn.step), its marks alone end steps.
std::vector<Step> find_steps(const Workload& workload);
// The measured step: the second whole step, or the next that sets nothing up; where there is none,
// the second, or the only one. `asked` >= 0 chooses among the whole ones (0-based). Without a whole
// step, what was recorded.
// Throws workload Error when `asked` is out of range or nothing was recorded.
Step choose_step(const std::vector<Step>& steps, int64_t asked);
// Whether two ranks ask for the same in these steps, but for where they are: groups may be moved
// along, roots have equal places in their groups, and messages go equally far around theirs. As
// compare_workloads says it; what is outside of the steps, names of groups and the lives of tensors
// are not looked at.
std::vector<std::string> compare_steps(const Workload& a, const Step& of_a, const Workload& b,
                                       const Step& of_b, int limit);

// Records of [begin, end) that are no part of the step: no_grad ops outside a training forward
// (evaluation, logging). What runs under no_grad between a backward and the end of the optimizer
// (clipping, unscaling) is part of the step, and so is what changes tensors in place after it (a
// moving average of the parameters), unless it is part of an evaluation. Nothing is outside an
// inference, a Workload without gradients. Same length as the step, 1 = outside.
std::vector<uint8_t> outside_step(const Workload& workload, const Step& step);

// The caching allocator of PyTorch, replayed on a trace: rounding to 512 bytes, 2 MiB small pool,
// 20 MiB / rounded large segments, best fit, split, merge.
struct MemoryPeak {
  int64_t allocated_bytes = 0;  // peak of live blocks, rounded as the allocator rounds
  int64_t reserved_bytes = 0;   // peak of segments
  int64_t requested_bytes = 0;  // peak of what was asked for, unrounded
  int64_t at_record = -1;       // where allocated_bytes peaked
  std::array<int64_t, kStorageKindCount> by_kind{};  // at that moment; sums to allocated_bytes
};
MemoryPeak replay_allocations(const Workload& workload);

// Samples and tokens of one rank's step, summed over its forward passes
// (micro-batches); -1 when not known. A pass begins with the step and after each backward; in it
// the first module called gives the samples and the first embedding the tokens.
// torch.trn.step(tokens=) wins. In a pipeline, a step that exchanges messages, the passes are the
// calls of the step's first module and of its first embedding.
struct Counted {
  int64_t samples = -1, tokens = -1;
  int32_t token_module = -1;  // of the first embedding; -1 when the script marked the tokens
};
Counted counted_in(const Workload& workload, const Step& step);

// One line per record, as `trnsim` prints a Workload.
std::string print_record(const Workload& workload, int64_t record);

}  // namespace trnsim::workload
