// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Workload, Step and MemoryPeak for Python.
//
// _torch is built with the pybind11 that torch ships, whose types are not ours, so a Workload comes
// over from there as a capsule named "trnsim.Workload" around a new std::shared_ptr<Workload>,
// which the capsule owns: _core.Workload.from_capsule(capsule) shares it.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/error.h"
#include "base/hash.h"
#include "bind/bind.h"
#include "bind/workload_columns.h"
#include "workload/compose.h"
#include "workload/messages.h"
#include "workload/whole_steps.h"
#include "workload/workload.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using namespace workload;
using WorkloadPointer = std::shared_ptr<Workload>;

WorkloadPointer from_capsule(const py::capsule& capsule) {
  TRN_CHECK(capsule.name() && std::string(capsule.name()) == "trnsim.Workload", workload,
            "not a capsule of a Workload");
  return *capsule.get_pointer<WorkloadPointer>();
}

std::vector<std::string> print_range(const Workload& workload, int64_t begin, int64_t end) {
  std::vector<std::string> lines;
  for (int64_t i = begin; i < end; ++i) lines.push_back(print_record(workload, i));
  return lines;
}

py::array_t<uint8_t> outside(const Workload& workload, const Step& step) {
  const std::vector<uint8_t> flags = outside_step(workload, step);
  return py::array_t<uint8_t>(py::ssize_t(flags.size()), flags.data());
}

py::list slots_of(const std::vector<TensorSlot>& slots) {
  py::list out;
  for (const TensorSlot& slot : slots) {
    out.append(py::make_tuple(slot.argument, slot.index, dtype_name(slot.meta.dtype),
                              slot.meta.sizes, slot.meta.strides));
  }
  return out;
}

// What a cost that a script gives is computed from.
py::dict signature_parts(const Workload& workload, size_t index) {
  TRN_CHECK(index < workload.signatures.size(), workload, "no signature of that index");
  const Signature& signature = workload.signatures[index];
  py::dict out, scalars;
  for (const Scalar& scalar : signature.scalars) scalars[scalar.name.c_str()] = scalar.value;
  out["op"] = signature.op;
  out["inputs"] = slots_of(signature.inputs);
  out["outputs"] = slots_of(signature.outputs);
  out["scalars"] = scalars;
  return out;
}

void add_scalars(Workload& workload, size_t index,
                 const std::vector<std::pair<std::string, ScalarValue>>& scalars) {
  TRN_CHECK(index < workload.signatures.size(), workload, "no signature of that index");
  for (const auto& [name, value] : scalars) {
    workload.signatures[index].scalars.push_back({name, value});
  }
}

std::vector<int64_t> ranks_of_pattern(const std::string& text) {
  const RankPattern pattern = RankPattern::parse(text);
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < pattern.size(); ++i) ranks.push_back(pattern.rank_at(i));
  return ranks;
}

std::string pattern_of_ranks(const std::vector<int64_t>& ranks) {
  return RankPattern::of(ranks).text();
}

py::dict by_kind(const MemoryPeak& peak) {
  py::dict out;
  for (int i = 0; i < kStorageKindCount; ++i)
    out[storage_kind_name(StorageKind(i))] = peak.by_kind[size_t(i)];
  return out;
}

using SegmentTuple = std::tuple<int64_t, int64_t, int64_t, int64_t, int32_t>;

WorkloadPointer composed(const Workload& captured, const std::vector<SegmentTuple>& segments,
                         const std::vector<std::pair<int32_t, int32_t>>& schedule) {
  std::vector<Segment> cut;
  for (const auto& each : segments) cut.push_back(std::make_from_tuple<Segment>(each));
  std::vector<Placed> order;
  for (const auto& [segment, micro_batch] : schedule) order.push_back({segment, micro_batch});
  return std::make_shared<Workload>(compose(captured, cut, order));
}

void bind_parts(py::module_& module) {
  module.def("workload_enum_names", workload_enum_names);
  module.def("ranks_of_pattern", ranks_of_pattern, py::arg("pattern"));
  module.def("pattern_of_ranks", pattern_of_ranks, py::arg("ranks"));
  py::class_<Step>(module, "Step", "One training step: records [begin, end) of a Workload.")
      .def_readonly("begin", &Step::begin)
      .def_readonly("end", &Step::end)
      .def_readonly("optimizer_count", &Step::optimizer_count)
      .def_readonly("whole", &Step::whole)
      .def_readonly("creates_state", &Step::creates_state)
      .def_readonly("sets_up", &Step::sets_up);
  py::class_<MemoryPeak>(module, "MemoryPeak", "Peak of the caching allocator, in bytes.")
      .def_readonly("allocated_bytes", &MemoryPeak::allocated_bytes)
      .def_readonly("reserved_bytes", &MemoryPeak::reserved_bytes)
      .def_readonly("requested_bytes", &MemoryPeak::requested_bytes)
      .def_readonly("at_record", &MemoryPeak::at_record)
      .def_property_readonly("by_kind", by_kind);
}

void bind_composing(py::module_& module) {
  module.def("compose", composed, py::arg("captured"), py::arg("segments"), py::arg("schedule"),
             py::call_guard<py::gil_scoped_release>(),
             "A step of more micro-batches: segments are (first record, first allocation event, "
             "end of both, micro-batch), the schedule (segment, micro-batch).");
  module.def(
      "moved",
      [](const Workload& w, int64_t by) { return std::make_shared<Workload>(moved(w, by)); },
      py::arg("workload"), py::arg("by"), "The same as the rank that is `by` further on.");
}

Step all_as_one_step(const Workload& workload) {
  Step step;
  step.end = int64_t(workload.records.size());
  return step;
}

int64_t number_of_step(const Workload& workload, const Step& step) {
  return index_among_whole(find_steps(workload), step);
}

}  // namespace

void bind_workload(py::module_& module) {
  bind_parts(module);
  py::class_<Workload, WorkloadPointer>(module, "Workload",
                                        "What a script asked of the device: ops, tensors, "
                                        "collectives, streams; no hardware in it.")
      .def_static("from_columns", workload_from_columns, py::arg("tables"))
      .def("to_columns", workload_to_columns)
      .def_static("from_capsule", from_capsule, py::arg("capsule"))
      .def("check", check_workload, "Raises WorkloadError where a table does not fit another.")
      .def("classify_storages", classify_storages)
      .def("signature_parts", signature_parts, py::arg("index"),
           "op, inputs and outputs as (name, index, dtype, sizes, strides), scalars by name.")
      .def("add_scalars", add_scalars, py::arg("index"), py::arg("scalars"))
      .def("__len__", [](const Workload& w) { return w.records.size(); })
      .def_property_readonly("hash", [](const Workload& w) { return hex16(hash_workload(w)); })
      .def("compare", compare_workloads, py::arg("other"), py::arg("limit") = 20,
           "One line a difference, at most `limit`; empty when equal.")
      .def("compare_step", compare_steps, py::arg("step"), py::arg("other"), py::arg("other_step"),
           py::arg("limit") = 20, "The same of two ranks' steps, but for where the ranks are.")
      .def("print_record", print_record, py::arg("record"))
      .def("print_records", print_range, py::arg("begin"), py::arg("end"))
      .def("find_steps", find_steps)
      .def("all_as_one_step", all_as_one_step, "All records, wherever steps end in them.")
      .def(
          "choose_step",
          [](const Workload& w, int64_t asked) { return choose_step(find_steps(w), asked); },
          py::arg("asked") = -1, "The measured step, or whole step number `asked` from 0.")
      .def_property_readonly("whole_step_count",
                             [](const Workload& w) { return count_whole(find_steps(w)); })
      .def("index_among_whole", number_of_step, py::arg("step"),
           "The number of a step among the whole ones; -1 when it is none of them.")
      .def("outside_step", outside, py::arg("step"))
      .def("replay_allocations", replay_allocations)
      .def_property_readonly("modules", [](const Workload& w) { return w.modules; })
      .def_property_readonly("groups",
                             [](const Workload& w) {
                               std::vector<std::pair<std::string, std::string>> groups;
                               for (const Group& group : w.groups)
                                 groups.emplace_back(group.name, group.ranks.text());
                               return groups;
                             })
      .def_property_readonly("signature_count",
                             [](const Workload& w) { return w.signatures.size(); })
      .def_property_readonly("call_count", [](const Workload& w) { return w.calls.size(); })
      .def_readwrite("role", &Workload::role)
      .def_property(
          "played_by",
          [](const Workload& w) {
            return w.played_by ? std::optional(w.played_by->text()) : std::nullopt;
          },
          [](Workload& w, const std::optional<std::string>& ranks) {
            w.played_by = ranks ? std::optional(RankPattern::parse(*ranks)) : std::nullopt;
          },
          "The ranks that play the role, as groups are written; None: every rank of the world.")
      .def("peers_in_step", peers_in_step, py::arg("step"),
           "(group, rank) of everybody that it exchanges messages with.")
      .def_readwrite("rank", &Workload::rank)
      .def_readwrite("world_size", &Workload::world_size)
      .def_readwrite("ranks_per_server", &Workload::ranks_per_server)
      .def_readwrite("mode", &Workload::mode)
      .def_readwrite("seed", &Workload::seed)
      .def_readwrite("unknown_reads", &Workload::unknown_reads)
      .def_readwrite("parameter_count", &Workload::parameter_count)
      .def_readwrite("notes", &Workload::notes);
  bind_composing(module);
}

}  // namespace trnsim::bind
