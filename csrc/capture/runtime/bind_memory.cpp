// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Memory snapshots for Python, in the form that torch's memory viewer reads.
#include "capture/runtime/allocator.h"
#include "capture/runtime/bind_runtime.h"
#include "capture/runtime/memory_history.h"

namespace py = pybind11;

namespace torch {
// Of torch/csrc/profiler/python/combined_traceback.h, which includes a header that is not shipped.
void installCapturedTracebackPython();
}  // namespace torch

namespace trnsim::capture::runtime {
namespace {

// Lists of frames, one object a distinct stack, all turned into text at once.
class Frames {
 public:
  void want(const Stack& stack) {
    if (stack && index_.try_emplace(stack.get(), wanted_.size()).second) {
      wanted_.push_back(stack.get());
    }
  }

  void resolve() {
    const torch::SymbolizedTracebacks found = torch::symbolize(wanted_);
    std::vector<py::dict> frames;
    for (const auto& frame : found.all_frames) {
      frames.push_back(py::dict(py::arg("filename") = frame.filename,
                                py::arg("line") = frame.lineno, py::arg("name") = frame.funcname));
    }
    for (const auto& stack : found.tracebacks) {
      py::list list;
      for (const uint64_t frame : stack) list.append(frames[frame]);
      lists_.push_back(list);
    }
  }

  py::list of(const Stack& stack) const {
    return stack ? lists_[index_.at(stack.get())] : py::list();
  }

 private:
  std::unordered_map<torch::CapturedTraceback*, size_t> index_;
  std::vector<torch::CapturedTraceback*> wanted_;
  std::vector<py::list> lists_;
};

py::dict block_dict(const workload::BlockInfo& block, const MemoryHistory& history,
                    const Frames& frames) {
  py::dict out;
  out["address"] = block.address;
  out["size"] = block.size;
  out["requested_size"] = block.is_live ? block.requested : 0;
  out["state"] = block.is_live ? "active_allocated" : "inactive";
  const auto found = history.of_blocks.find(block.address);
  const bool has_stack = block.is_live && found != history.of_blocks.end();
  out["frames"] = has_stack ? frames.of(found->second) : py::list();
  return out;
}

py::dict segment_dict(const workload::SegmentInfo& segment, int device,
                      const MemoryHistory& history, const Frames& frames) {
  py::dict out;
  py::list blocks;
  int64_t allocated = 0, requested = 0;
  for (const auto& block : segment.blocks) {
    blocks.append(block_dict(block, history, frames));
    if (!block.is_live) continue;
    allocated += block.size;
    requested += block.requested;
  }
  out["device"] = device;
  out["address"] = segment.address;
  out["total_size"] = segment.size;
  out["allocated_size"] = allocated;
  out["active_size"] = allocated;
  out["requested_size"] = requested;
  out["stream"] = segment.stream;
  out["segment_type"] = segment.is_small ? "small" : "large";
  out["segment_pool_id"] = py::make_tuple(0, 0);
  out["is_expandable"] = false;
  out["frames"] = py::list();
  out["blocks"] = blocks;
  return out;
}

py::dict entry_dict(const MemoryEntry& entry, const Frames& frames) {
  py::dict out;
  out["action"] = memory_action_name(entry.action);
  out[entry.action == MemoryAction::oom ? "device_free" : "addr"] = entry.address;
  out["size"] = entry.bytes;
  out["stream"] = entry.stream;
  out["time_us"] = entry.time_us;
  out["frames"] = frames.of(entry.stack);
  return out;
}

py::tuple snapshot(int device) {
  const auto index = c10::DeviceIndex(device);
  const MemoryHistory history = memory_history(index);
  Frames frames;
  for (const auto& entry : history.entries) frames.want(entry.stack);
  for (const auto& [address, stack] : history.of_blocks) frames.want(stack);
  frames.resolve();
  py::list segments, trace;
  for (const auto& segment : allocator_segments(index)) {
    segments.append(segment_dict(segment, device, history, frames));
  }
  for (const auto& entry : history.entries) trace.append(entry_dict(entry, frames));
  return py::make_tuple(segments, trace);
}

}  // namespace

void bind_memory_history(py::module_& module) {
  module.def(
      "start_memory_history",
      [](size_t max_entries, bool with_stacks) {
        if (with_stacks) torch::installCapturedTracebackPython();
        start_memory_history(max_entries, with_stacks);
      },
      py::arg("max_entries"), py::arg("with_stacks"));
  module.def("stop_memory_history", &stop_memory_history);
  module.def("memory_snapshot", &snapshot, py::arg("device"), "(segments, trace) of a device");
}

}  // namespace trnsim::capture::runtime
