// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "report/profile.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "fold/groups.h"
#include "report/part_file.h"
#include "report/tasks.h"
#include "report/trace.h"

namespace trnsim::report {
namespace {

using lower::QueueKind;
using lower::TaskKind;
using workload::CallKind;

constexpr int64_t kHostPid = 100000;  // of rank 0; device pids are small, as Kineto's are
constexpr int64_t kPsPerNs = 1000;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (uint8_t(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", unsigned(uint8_t(c)));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Whole ns as microseconds.
std::string microseconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03lld", (long long)(ns / 1000), (long long)(ns % 1000));
  return text;
}

// An object of JSON, field by field.
class Fields {
 public:
  Fields& text(const char* key, const std::string& value) { return raw(key, quoted(value)); }
  Fields& number(const char* key, int64_t value) { return raw(key, std::to_string(value)); }
  Fields& raw(const char* key, const std::string& value) {
    out_ += out_.empty() ? "{" : ", ";
    out_ += quoted(key) + ": " + value;
    return *this;
  }
  std::string done() const { return out_.empty() ? "{}" : out_ + "}"; }

 private:
  std::string out_;
};

std::string list_of(const std::vector<int64_t>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i ? ", " : "") + std::to_string(values[i]);
  return out + "]";
}

// As NCCL's kernels and PyTorch's record of a collective are named.
struct CallNames {
  const char *kernel, *collective;
};
CallNames names_of(CallKind kind) {
  switch (kind) {
    case CallKind::all_reduce:
      return {"AllReduce", "allreduce"};
    case CallKind::all_gather:
      return {"AllGather", "_allgather_base"};
    case CallKind::reduce_scatter:
      return {"ReduceScatter", "_reduce_scatter_base"};
    case CallKind::broadcast:
      return {"Broadcast", "broadcast"};
    case CallKind::reduce:
      return {"Reduce", "reduce"};
    case CallKind::gather:
      return {"SendRecv", "gather"};
    case CallKind::scatter:
      return {"SendRecv", "scatter"};
    case CallKind::all_to_all:
      return {"SendRecv", "all_to_all"};
    case CallKind::send:
      return {"SendRecv", "send"};
    case CallKind::recv:
      return {"SendRecv", "recv"};
    case CallKind::barrier:
      return {"AllReduce", "barrier"};
  }
  return {"SendRecv", ""};
}

class Profile {
 public:
  // groups: the ranks of each slot of the rank's Program.
  Profile(const project::Run& run, int64_t rank, std::vector<std::vector<int64_t>> groups,
          const std::string& path)
      : run_(run),
        program_(program_of(run, rank)),
        rank_(rank),
        device_(rank % std::max<int64_t>(1, run.placement.ranks_per_server)),
        groups_(std::move(groups)),
        file_(path) {}

  int64_t write() {
    write_head();
    name_tracks();
    number_launches();
    const size_t first = size_t(first_task(run_, rank_));
    for (size_t t = 0; t < program_.tasks.size(); ++t) {
      const int64_t begin = run_.timeline->starts_ps[first + t] / kPsPerNs;
      const int64_t end = run_.timeline->ends_ps[first + t] / kPsPerNs;
      if (program_.tasks[t].kind == TaskKind::launch) ++launch_;
      if (end > begin) write_task(program_.tasks[t], begin, end);
    }
    event("user_annotation", "ProfilerStep#0", host(), 0, 0, run_.timeline->makespan_ps / kPsPerNs,
          Fields().number("External id", 0));
    if (rank_ == workload_of(run_, rank_).rank) write_memory();
    file_.write("\n]}\n");
    file_.finish();
    return file_.bytes_written();
  }

 private:
  int64_t host() const { return kHostPid + rank_; }

  // One key a line: some tools find the rank by reading lines.
  void write_head() {
    Fields device, info;
    device.number("id", device_).text("name", run_.machine.name);
    device.number("totalGlobalMem", run_.projection.memory_capacity_bytes);
    std::string groups;
    for (size_t slot = 0; slot < groups_.size(); ++slot) {
      Fields group;
      group.text("pg_name", std::to_string(slot)).text("pg_desc", group_name(slot));
      group.text("backend_config", "trn").number("pg_size", int64_t(groups_[slot].size()));
      group.raw("ranks", list_of(groups_[slot]));
      groups += (groups.empty() ? "" : ", ") + group.done();
    }
    info.text("backend", "trn").number("rank", rank_);
    info.number("world_size", int64_t(run_.cohorts.class_of_rank.size()));
    info.number("pg_count", int64_t(groups_.size())).raw("pg_config", "[" + groups + "]");
    file_.write("{\n\"schemaVersion\": 1,\n\"deviceProperties\": [" + device.done() +
                "],\n\"distributedInfo\": " + info.done() +
                ",\n\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": 0,\n"
                "\"traceName\": " +
                quoted("trnsim: simulated on " + run_.machine.name) + ",\n\"traceEvents\": [");
  }

  std::string group_name(size_t slot) const {
    const std::string& name = program_.groups[slot].name;
    return !name.empty() ? name : slot == 0 ? "default_pg" : std::to_string(slot);
  }

  void name_tracks() {
    name_of("process_name", host(), 0, "host of rank " + std::to_string(rank_));
    name_of("process_name", device_, 0,
            "rank " + std::to_string(rank_) + " on chip " +
                std::to_string(run_.placement.chip_of(rank_)));
    name_of("thread_name", host(), 0, "host");
    for (size_t q = 0; q < program_.queues.size(); ++q) {
      if (program_.queues[q].kind == QueueKind::host) continue;
      name_of("thread_name", device_, int64_t(q), queue_name(program_.queues[q]));
    }
  }

  void name_of(const char* what, int64_t pid, int64_t tid, const std::string& name) {
    Fields fields;
    fields.text("ph", "M").text("name", what).number("pid", pid).number("tid", tid);
    emit(fields.number("ts", 0).raw("args", Fields().text("name", name).done()));
  }

  void emit(const Fields& fields) {
    file_.write(is_first_ ? "\n" : ",\n");
    is_first_ = false;
    file_.write(fields.done());
  }

  // Times in ns.
  void event(const char* category, const std::string& name, int64_t pid, int64_t tid, int64_t begin,
             int64_t end, const Fields& args) {
    Fields fields;
    fields.text("ph", "X").text("cat", category).text("name", name).number("pid", pid);
    fields.number("tid", tid).raw("ts", microseconds(begin)).raw("dur", microseconds(end - begin));
    emit(fields.raw("args", args.done()));
  }

  // What each launch starts: its first op, and how many there are.
  void number_launches() {
    int32_t last = -1;
    for (const lower::Task& task : program_.tasks) {
      if (task.kind == TaskKind::launch) {
        started_.push_back({});
        last = -1;
      } else if (!started_.empty() && task.op >= 0 && task.op != last) {
        Started& of = started_.back();
        if (of.count++ == 0) of.op = task.op;
        last = task.op;
      } else if (!started_.empty() && task.call >= 0 && started_.back().count++ == 0) {
        started_.back().call = task.call;
      }
    }
  }

  std::string launched() const {
    const Started& of = started_[size_t(launch_ - 1)];
    if (of.count > 1) return "graph of " + std::to_string(of.count) + " ops";
    if (of.op >= 0) return program_.ops[size_t(of.op)].name;
    if (of.call < 0) return "launch";
    return std::string("c10d::") + workload::call_kind_name(program_.calls[size_t(of.call)].kind);
  }

  void write_task(const lower::Task& task, int64_t begin, int64_t end) {
    Fields args;
    args.number("External id", launch_);
    if (task.kind == TaskKind::launch) {
      const bool is_graph = started_[size_t(launch_ - 1)].count > 1;
      event("cpu_op", launched(), host(), 0, begin, end, args);
      event("cuda_runtime", is_graph ? "cudaGraphLaunch" : "cudaLaunchKernel", host(), 0, begin,
            end, args.number("correlation", launch_));
      return;
    }
    if (task.kind == TaskKind::host_wait) {
      event("cuda_runtime", "cudaStreamSynchronize", host(), 0, begin, end, args);
      return;
    }
    args.number("correlation", launch_).number("device", device_).number("stream", task.queue);
    if (task.kind == TaskKind::call) {
      const lower::CallTemplate& call = program_.calls[size_t(task.call)];
      add_call(call, args);
      event("kernel", kernel_name(call), device_, task.queue, begin, end, args);
      return;
    }
    const std::string name = slice_name(program_, task);
    if (task.op >= 0) add_op(program_.ops[size_t(task.op)], args);
    const char* copy = copy_of(task);
    event(copy ? "gpu_memcpy" : "kernel", copy ? copy + (" (" + name + ")") : name, device_,
          task.queue, begin, end, args);
  }

  const char* copy_of(const lower::Task& task) const {
    const std::string name = task.op < 0 ? "" : program_.ops[size_t(task.op)].name;
    if (name == "trnsim::copy_h2d") return "Memcpy HtoD";
    if (name == "trnsim::copy_d2h") return "Memcpy DtoH";
    return task.kind == TaskKind::compute ? nullptr : "Memcpy DtoD";
  }

  void add_op(const lower::Op& op, Fields& args) const {
    const std::string& module = workload_of(run_, rank_).modules[size_t(op.module)];
    if (!module.empty()) args.text("Module Hierarchy", module);
    args.text("phase", workload::phase_name(op.phase));
  }

  static std::string kernel_name(const lower::CallTemplate& call) {
    std::string algorithm = call.algorithm;
    std::transform(algorithm.begin(), algorithm.end(), algorithm.begin(), ::toupper);
    const std::string name = std::string("ncclDevKernel_") + names_of(call.kind).kernel;
    return algorithm.empty() ? name : name + "_" + algorithm;
  }

  // Elements of one member, as PyTorch counts them.
  void add_call(const lower::CallTemplate& call, Fields& args) const {
    const workload::Workload& of = workload_of(run_, rank_);
    const size_t slot = size_t(call.asked_group());
    const int64_t members = std::max<int64_t>(1, int64_t(groups_[slot].size()));
    int64_t in = call.bytes, out = call.bytes;
    if (call.kind == CallKind::all_gather || call.kind == CallKind::gather) in /= members;
    if (call.kind == CallKind::reduce_scatter || call.kind == CallKind::scatter) out /= members;
    const workload::Record& record = of.records[size_t(call.record)];
    const workload::DType dtype = of.calls[size_t(record.payload)].dtype;
    args.text("Collective name", names_of(call.asked_kind()).collective);
    args.number("In msg nelems", in / workload::dtype_bytes(dtype));
    args.number("Out msg nelems", out / workload::dtype_bytes(dtype));
    args.text("dtype", workload::dtype_name(dtype)).number("Group size", members);
    args.text("Process Group Name", std::to_string(slot));
    args.text("Process Group Description", group_name(slot));
  }

  void write_memory() {
    double before = 0;
    for (const CounterStep& step : memory_over_time(run_, role_of(run_, rank_))) {
      Fields args, fields;
      args.number("Total Allocated", int64_t(step.value));
      args.number("Bytes", int64_t(step.value - before)).number("Device Type", 1);
      before = step.value;
      fields.text("ph", "i").text("s", "t").text("cat", "cpu_instant_event");
      fields.text("name", "[memory]").number("pid", host()).number("tid", 0);
      fields.raw("ts", microseconds(step.time_ps / kPsPerNs));
      emit(fields.raw("args", args.number("Device Id", device_).done()));
    }
  }

  struct Started {
    int32_t op = -1, call = -1;
    int64_t count = 0;
  };

  const project::Run& run_;
  const lower::Program& program_;
  int64_t rank_, device_;
  std::vector<std::vector<int64_t>> groups_;
  PartFile file_;
  std::vector<Started> started_;  // by launch
  int64_t launch_ = 0;            // the last one, from 1; 0 before any
  bool is_first_ = true;
};

// Of the captured rank its Program has them; of another they have moved along.
std::vector<std::vector<int64_t>> groups_of_rank(const project::Run& run, int64_t rank,
                                                 std::optional<fold::JobGroups>& all) {
  const lower::Program& program = program_of(run, rank);
  std::vector<std::vector<int64_t>> groups(program.groups.size());
  const bool is_captured = rank == workload_of(run, rank).rank;
  if (!is_captured && !all) all = groups_of(run);
  for (size_t slot = 0; slot < groups.size(); ++slot) {
    if (is_captured) {
      const workload::RankPattern& ranks = program.groups[slot].ranks;
      for (int64_t i = 0; i < ranks.size(); ++i) groups[slot].push_back(ranks.rank_at(i));
    } else if (const int32_t of = all->of_slot[size_t(rank)][slot]; of >= 0) {
      const auto& members = all->members[size_t(of)];
      groups[slot].assign(members.begin(), members.end());
    }
  }
  return groups;
}

}  // namespace

int64_t estimate_profile_bytes(const project::Run& run, const std::vector<int64_t>& ranks) {
  constexpr int64_t kEventBytes = 260;  // measured on examples
  int64_t events = 0;
  for (const int64_t rank : ranks) {
    check_rank(run, rank);
    const lower::Program& program = program_of(run, rank);
    events += int64_t(program.tasks.size());
    for (const workload::Group& group : program.groups) events += group.ranks.size() / 32;
    const workload::Workload& of = workload_of(run, rank);
    if (rank == of.rank) events += int64_t(of.allocations.size()) / 2;
  }
  return events * kEventBytes;
}

int64_t write_profiles(const project::Run& run, const std::vector<int64_t>& ranks,
                       const std::string& folder) {
  std::optional<fold::JobGroups> groups;
  int64_t bytes = 0;
  for (const int64_t rank : ranks) {
    check_rank(run, rank);
    const std::string path = folder + "/rank" + std::to_string(rank) + "_trace.json";
    bytes += Profile(run, rank, groups_of_rank(run, rank, groups), path).write();
  }
  return bytes;
}

}  // namespace trnsim::report
