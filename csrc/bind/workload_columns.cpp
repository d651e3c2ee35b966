// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "bind/workload_columns.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "base/error.h"

namespace py = pybind11;

namespace trnsim::bind {
namespace {

using namespace workload;

// One direction of the translation for each struct is written once, as a list of its fields; Write
// and Read are the two visitors of that list.
template <typename Row>
class Write {
 public:
  Write(const std::vector<Row>& rows, py::dict out) : rows_(rows), out_(std::move(out)) {}
  template <typename T>
  void operator()(const char* name, T Row::* field) {
    using Code = typename std::conditional_t<std::is_enum_v<T>, std::underlying_type<T>,
                                             std::type_identity<T>>::type;
    py::array_t<Code> column{py::ssize_t(rows_.size())};
    Code* at = column.mutable_data();
    for (const Row& row : rows_) *at++ = Code(row.*field);
    out_[name] = column;
  }

 private:
  const std::vector<Row>& rows_;
  py::dict out_;
};

py::object get(const py::dict& table, const char* name) {
  TRN_CHECK(table.contains(name), workload, std::string("a Workload has no column '") + name + "'",
            "the file is damaged or was written by a newer trnsim");
  return table[name];
}

template <typename Row>
class Read {
 public:
  Read(std::vector<Row>& rows, py::dict in) : rows_(rows), in_(std::move(in)) {}
  template <typename T>
  void operator()(const char* name, T Row::* field) {
    using Code = typename std::conditional_t<std::is_enum_v<T>, std::underlying_type<T>,
                                             std::type_identity<T>>::type;
    const auto column = get(in_, name).cast<py::array_t<Code, py::array::forcecast>>();
    if (first_) rows_.resize(size_t(column.size()));
    first_ = false;
    TRN_CHECK(column.ndim() == 1 && size_t(column.size()) == rows_.size(), workload,
              std::string("column '") + name + "' has another length than its table");
    const auto values = column.template unchecked<1>();
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i].*field = T(values(py::ssize_t(i)));
  }

 private:
  std::vector<Row>& rows_;
  py::dict in_;
  bool first_ = true;
};

template <typename Visitor>
void record_fields(Visitor&& visit) {
  visit("signature", &Record::signature);
  visit("module", &Record::module);
  visit("sequence_nr", &Record::sequence_nr);
  visit("uses_begin", &Record::uses_begin);
  visit("uses_count", &Record::uses_count);
  visit("stream", &Record::stream);
  visit("region", &Record::region);
  visit("payload", &Record::payload);
  visit("value", &Record::value);
  visit("kind", &Record::kind);
  visit("phase", &Record::phase);
  visit("no_grad", &Record::no_grad);
  visit("fallback_read", &Record::fallback_read);
}
template <typename Visitor>
void use_fields(Visitor&& visit) {
  visit("storage", &TensorUse::storage);
  visit("version", &TensorUse::version);
}
template <typename Visitor>
void call_fields(Visitor&& visit) {
  visit("kind", &Call::kind);
  visit("group", &Call::group);
  visit("bytes", &Call::bytes);
  visit("peer", &Call::peer);
  visit("tag", &Call::tag);
  visit("async", &Call::async);
  visit("dtype", &Call::dtype);
}
template <typename Visitor>
void storage_fields(Visitor&& visit) {
  visit("bytes", &Storage::bytes);
  visit("born", &Storage::born);
  visit("died", &Storage::died);
  visit("kind", &Storage::kind);
}
template <typename Visitor>
void allocation_fields(Visitor&& visit) {
  visit("record", &AllocationEvent::record);
  visit("storage", &AllocationEvent::storage);
  visit("stream", &AllocationEvent::stream);
  visit("is_free", &AllocationEvent::is_free);
}
template <typename AnyWorkload, typename Visit>
void facts(AnyWorkload& workload, Visit&& visit) {
  visit("role", workload.role);
  visit("rank", workload.rank);
  visit("world_size", workload.world_size);
  visit("ranks_per_server", workload.ranks_per_server);
  visit("mode", workload.mode);
  visit("seed", workload.seed);
  visit("unknown_reads", workload.unknown_reads);
  visit("parameter_count", workload.parameter_count);
  visit("notes", workload.notes);
}

template <typename Enum, typename Name>
std::vector<std::string> names(int count, const Name& name) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.push_back(name(Enum(i)));
  return out;
}

using Parts = std::vector<int64_t> Call::*;

void write_parts(const Workload& workload, py::dict table, const std::string& name, Parts parts) {
  std::vector<int64_t> offsets{0}, values;
  for (const Call& call : workload.calls) {
    values.insert(values.end(), (call.*parts).begin(), (call.*parts).end());
    offsets.push_back(int64_t(values.size()));
  }
  const auto array = [](const std::vector<int64_t>& of) {
    return py::array_t<int64_t>(py::ssize_t(of.size()), of.data());
  };
  table[(name + "_offsets").c_str()] = array(offsets);
  table[(name + "_values").c_str()] = array(values);
}

void read_parts(Workload& workload, const py::dict& table, const std::string& name, Parts parts) {
  const auto offsets = get(table, (name + "_offsets").c_str()).cast<std::vector<int64_t>>();
  const auto values = get(table, (name + "_values").c_str()).cast<std::vector<int64_t>>();
  TRN_CHECK(offsets.size() == workload.calls.size() + 1 && offsets.front() == 0 &&
                offsets.back() == int64_t(values.size()) &&
                std::is_sorted(offsets.begin(), offsets.end()),
            workload, "column '" + name + "' does not fit its table");
  for (size_t i = 0; i < workload.calls.size(); ++i) {
    (workload.calls[i].*parts).assign(values.begin() + offsets[i], values.begin() + offsets[i + 1]);
  }
}

// Files of version 1.1, and those of jobs without uneven parts, have no column of what is received.
void write_received(const Workload& workload, const py::dict& table) {
  const bool is_there = std::any_of(workload.calls.begin(), workload.calls.end(),
                                    [](const Call& call) { return !call.received.empty(); });
  if (is_there) write_parts(workload, table, "received", &Call::received);
}

void read_received(Workload& workload, const py::dict& table) {
  if (table.contains("received_offsets")) read_parts(workload, table, "received", &Call::received);
}

// Files of before point-to-point messages have neither batches nor ranks of a role.
void read_batches(Workload& workload, const py::dict& table) {
  if (!table.contains("batch")) return;
  const auto batches = table["batch"].cast<std::vector<int32_t>>();
  TRN_CHECK(batches.size() == workload.calls.size(), workload,
            "column 'batch' has another length than its table");
  for (size_t i = 0; i < batches.size(); ++i) workload.calls[i].batch = batches[i];
}

void read_players(Workload& workload, const py::dict& scalars) {
  if (!scalars.contains("ranks")) return;
  const auto text = scalars["ranks"].cast<std::string>();
  if (!text.empty()) workload.played_by = RankPattern::parse(text);
}

std::vector<std::string> texts(const py::dict& tables, const char* table, const char* column) {
  return get(get(tables, table), column).cast<std::vector<std::string>>();
}

}  // namespace

py::dict workload_to_columns(const Workload& workload) {
  py::dict records, uses, calls, storages, allocations, signatures, modules, regions, groups;
  record_fields(Write(workload.records, records));
  use_fields(Write(workload.uses, uses));
  call_fields(Write(workload.calls, calls));
  write_parts(workload, calls, "splits", &Call::splits);
  write_received(workload, calls);
  Write(workload.calls, calls)("batch", &Call::batch);
  storage_fields(Write(workload.storages, storages));
  allocation_fields(Write(workload.allocations, allocations));
  std::vector<std::string> signature_texts, group_names, group_ranks;
  for (const Signature& signature : workload.signatures)
    signature_texts.push_back(signature.text());
  for (const Group& group : workload.groups) {
    group_names.push_back(group.name);
    group_ranks.push_back(group.ranks.text());
  }
  signatures["text"] = signature_texts;
  modules["path"] = workload.modules;
  regions["description"] = workload.regions;
  groups["name"] = group_names;
  groups["ranks"] = group_ranks;
  py::dict scalars;
  facts(workload, [&](const char* name, const auto& value) { scalars[name] = value; });
  scalars["ranks"] = workload.played_by ? workload.played_by->text() : std::string();
  using namespace py::literals;
  return py::dict("records"_a = records, "uses"_a = uses, "calls"_a = calls,
                  "storages"_a = storages, "allocations"_a = allocations,
                  "signatures"_a = signatures, "modules"_a = modules, "regions"_a = regions,
                  "groups"_a = groups, "facts"_a = scalars);
}

std::shared_ptr<Workload> workload_from_columns(const py::dict& tables) {
  auto workload = std::make_shared<Workload>();
  record_fields(Read(workload->records, get(tables, "records")));
  use_fields(Read(workload->uses, get(tables, "uses")));
  call_fields(Read(workload->calls, get(tables, "calls")));
  read_parts(*workload, get(tables, "calls"), "splits", &Call::splits);
  read_received(*workload, get(tables, "calls"));
  read_batches(*workload, get(tables, "calls"));
  storage_fields(Read(workload->storages, get(tables, "storages")));
  allocation_fields(Read(workload->allocations, get(tables, "allocations")));
  for (const std::string& text : texts(tables, "signatures", "text"))
    workload->signatures.push_back(Signature::parse(text));
  workload->modules = texts(tables, "modules", "path");
  workload->regions = texts(tables, "regions", "description");
  const auto group_names = texts(tables, "groups", "name");
  const auto group_ranks = texts(tables, "groups", "ranks");
  TRN_CHECK(group_names.size() == group_ranks.size(), workload,
            "column 'ranks' has another length than its table");
  for (size_t i = 0; i < group_names.size(); ++i)
    workload->groups.push_back({group_names[i], RankPattern::parse(group_ranks[i])});
  const py::dict scalars = get(tables, "facts");
  facts(*workload, [&](const char* name, auto& value) {
    value = get(scalars, name).cast<std::remove_reference_t<decltype(value)>>();
  });
  read_players(*workload, scalars);
  check_workload(*workload);
  return workload;
}

py::dict workload_enum_names() {
  const std::vector<std::string> record_kinds{"op",           "call",       "wait",  "host_read",
                                              "event_record", "event_wait", "marker"};
  py::dict out;
  out["records.kind"] = record_kinds;
  out["records.phase"] = names<Phase>(int(Phase::other) + 1, phase_name);
  out["calls.kind"] = names<CallKind>(int(CallKind::barrier) + 1, call_kind_name);
  out["calls.dtype"] = names<DType>(int(DType::other) + 1, dtype_name);
  out["markers.kind"] = names<MarkerKind>(int(MarkerKind::setup) + 1, marker_kind_name);
  out["storages.kind"] = names<StorageKind>(kStorageKindCount, storage_kind_name);
  return out;
}

}  // namespace trnsim::bind
