// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Program: one step of one role as engine tasks and transfers, for one machine.
//
// Tasks stand in one table. The order of a queue is the table's order restricted to that queue, and
// every dependence points to an earlier task, so the table is a topological order of the whole
// Program. A Trainium op is load_weights, load, engine tasks, store; the one DMA queue
// is ordered load(i), load_weights(i+1), store(i), and the table is laid out so.
//
// A collective is a call: a template over the members of its group, with an algorithm and phases.
// fold turns members into links; no link stands here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/machine.h"
#include "machine/topology.h"
#include "workload/workload.h"

namespace trnsim::lower {

enum class QueueKind : uint8_t {
  host,
  tensor,
  vector,
  scalar,
  gpsimd,
  dma,
  collective,
  send,
  recv,
  host_link  // copies between the host's memory and the HBM: one queue each way
};
inline constexpr int kQueueKindCount = 10;
const char* queue_kind_name(QueueKind kind);

struct Queue {
  QueueKind kind = QueueKind::host;
  // Collective stream, the peer rank of a send or receive queue, or of a host link 0 for copies to
  // the host and 1 for those from it.
  int32_t index = 0;
};

enum class TaskKind : uint8_t {
  launch,     // host: issues an eager op or a graph
  host_wait,  // host: blocked on a device value; ends with its dependences
  load_weights,
  load,
  compute,
  store,
  call  // arrival at a collective or a message: duration 0, ends when the call ends
};

enum class DepKind : uint8_t {
  end,       // starts not before the end of the other task, plus lag
  start,     // starts not before the start of the other task, plus lag
  end_bound  // ends not before the end of the other task, plus lag
};
struct Dep {
  int32_t task = -1;
  DepKind kind = DepKind::end;
  int64_t lag_ps = 0;
};

// 40 bytes.
struct Task {
  int64_t duration_ps = 0;
  int32_t queue = 0;       // index in Program::queues
  int32_t op = -1;         // index in Program::ops
  int32_t call = -1;       // index in Program::calls, for TaskKind::call
  int32_t deps_begin = 0;  // in Program::deps
  int32_t deps_count = 0;
  TaskKind kind = TaskKind::compute;
};

// What reports name: a fused group of records (or one), with what it moves and computes.
enum class RuleClass : uint8_t { measured, formula, fallback };  // what its time rests on
struct Op {
  std::string name;              // "aten::mm + aten::gelu"
  std::string rule;              // name of the cost rule of its anchor
  std::vector<int64_t> records;  // indices in the Workload
  int32_t module = 0;            // of its anchor, index in Workload::modules
  workload::Phase phase = workload::Phase::other;
  RuleClass rule_class = RuleClass::formula;
  std::string dtype;                        // of its FLOPs, "" when it has none
  int128 model_flops = 0;                   // matmul, conv, attention in full; 0 for recomputation
  int128 model_flops_causal = 0;            // the same with causal attention halved
  int64_t read_bytes = 0, write_bytes = 0;  // HBM
  int64_t bound_ps = 0;                     // the longest engine alone
  int64_t floor_ps = 0;                     // at peak rates of HBM, FLOPs and the link to the host
  QueueKind bound = QueueKind::dma;         // the engine of bound_ps; host = the link to the host
};

// Whom the pattern of a phase joins. Across pods needs members in the same places of every pod.
enum class Scope : uint8_t {
  group,  // all members, in group order
  pod,    // the members in each pod by themselves, in group order
  across  // the k-th members of all pods, for each k by themselves; pods in order of appearance
};

// Who sends what to whom in a phase, among the n members that the scope joins; bytes are per the
// comment.
enum class Pattern : uint8_t {
  ring,       // member i sends `bytes` to member i+1 mod n
  ring_both,  // and as much to member i-1: half of the data each way
  axis_ring,  // members that differ only on `axis` (the k-th of each chip, where a chip has more):
              // each sends `bytes` to its next on the ring (or line: the wrapped message goes back
              // over the line), both ways, on that axis
  axes_spread,  // every outgoing link, on the axes of `axes_mask`, of every chip carries `bytes`
  pairwise,     // every member sends `bytes` to every other member
  uneven,       // every member sends `parts[j]` times `bytes` to the j-th
  uneven_back,  // the way back: the i-th member sends `parts[i]` times `bytes` to every other
  exchange,     // member i sends `bytes` to member i xor `distance`, where that exists
  shift,        // member i sends `bytes` to member i + `distance` mod n
  to_parents,   // up the two trees of trees.h: every child sends `bytes` to its parent
  to_children,  // down them
  rails,        // member i sends parts[0] times `bytes` to the next member of its pod, in group
                // order and round, and parts[1] times as much to the one at its place in the next
                // pod: as many rings through all members as a pod has, each leaving it at another
  multicast,    // the switch adds and copies: up and down every member's link go `bytes`
  axis_all,     // members that differ only on `axis` each send `bytes` to every other
  one_to_all,   // the root sends `bytes` to every other member
  all_to_one,   // every other member sends `bytes` to the root
  message,      // from the sender to the receiver of a point-to-point call
  none          // no bytes on links: latency, and `fixed_ps`
};

struct PhaseTemplate {
  Pattern pattern = Pattern::none;
  Scope scope = Scope::group;  // axis_ring and axes_spread never leave a pod
  int64_t bytes = 0;
  int8_t axis = 0;        // axis_ring, axis_all
  uint8_t axes_mask = 0;  // axes_spread: bit a = axis a
  int64_t distance = 0;   // exchange, shift
  int64_t steps = 0;      // latency of the phase = steps * step_ps + largest hop count * hop_ps
  int64_t step_ps = 0, hop_ps = 0;
  int64_t fixed_ps = 0;  // work beside the links (copies inside a chip), added to the latency
  std::vector<int64_t> parts = {};  // uneven, uneven_back, rails
  // A send counts as so many on links of a pod, and as so many on the fabric's, where a library has
  // a share of the former's rate and the NIC is whole.
  int64_t in_pod_sends = 1, fabric_sends = 1;
  bool operator==(const PhaseTemplate&) const = default;
};

struct CallTemplate {
  workload::CallKind kind = workload::CallKind::all_reduce;
  int32_t group = 0;  // slot: index in Workload::groups
  int64_t bytes = 0;  // as workload::Call
  int32_t peer = -1;  // rank of root or peer
  int32_t tag = 0;
  // "mesh", "rdh", "kanga", "hierarchical", "plane_ring", "axis_rings", "ring", "tree", "nvls",
  // "direct", "dimension_ordered", "hierarchical_ring", "hierarchical_rdh", "hierarchical_tree",
  // "rail_ring", "rail_tree"
  std::string algorithm;
  std::vector<PhaseTemplate> phases;
  int64_t record = -1;  // index in the Workload
  // Of a message that is one step of a collective (ring_steps.h): what that is.
  struct Collective {
    workload::CallKind kind;
    int32_t group;
  };
  std::optional<Collective> step_of = {};

  // As the script has it.
  workload::CallKind asked_kind() const { return step_of ? step_of->kind : kind; }
  int32_t asked_group() const { return step_of ? step_of->group : group; }
};

struct Guess {
  std::string name, value, effect;  // "fusion", "greedy inside a phase", "..."
};

struct Program {
  std::string role;
  int64_t rank = 0;  // the captured rank, from which peers are counted
  std::vector<Queue> queues;
  std::vector<Task> tasks;
  std::vector<Dep> deps;
  std::vector<Op> ops;
  std::vector<CallTemplate> calls;      // templates; equal calls may share one
  std::vector<workload::Group> groups;  // of the Workload: slot -> ranks (with the captured rank)
  std::vector<Guess> guesses;
  std::string peak_dtype;       // the dtype with most FLOPs: what MFU divides by
  int64_t hidden_host_ops = 0;  // eager ops whose launch was counted
};

struct LowerOptions {
  std::string stack;  // "" = the machine's own: graph with fusion (trn), eager (gpu)
  // "" = chosen by size, else forced for all but all-to-all, gather, scatter and messages.
  std::string algorithm;
  // Collectives as messages between neighbours, where they are made of such (ring_steps.h).
  bool step_mode = false;
};

// Lowers records [step.begin, step.end) but those that outside_step marks. Throws LowerError when a
// group does not fit the placement.
Program lower_step(const workload::Workload& workload, const workload::Step& step,
                   const machine::Machine& machine, const machine::Placement& placement,
                   const LowerOptions& options);

// Throws LowerError unless queues, deps (backwards only), ops and calls are in range.
void check_program(const Program& program);

}  // namespace trnsim::lower
