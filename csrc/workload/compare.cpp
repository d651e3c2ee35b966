// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "workload/canonical.h"

namespace trnsim::workload {
namespace {

// Gives each value the number of its first appearance.
class Numbering {
 public:
  int64_t operator()(int64_t value) {
    return numbers_.try_emplace(value, int64_t(numbers_.size())).first->second;
  }

 private:
  std::unordered_map<int64_t, int64_t> numbers_;
};

bool names_optimizer(const Record& record) {
  return record.kind == RecordKind::marker &&
         (record.payload == int32_t(MarkerKind::optimizer_begin) ||
          record.payload == int32_t(MarkerKind::optimizer_end) ||
          record.payload == int32_t(MarkerKind::optimizer_skipped));
}

// Folds values into one hash, in order.
class Hasher {
 public:
  void add(uint64_t value) { hash_ = combine(hash_, value); }
  void add(const std::string& text) { add(hash_bytes(text)); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

uint64_t hash_call(const Call& call) {
  Hasher hash;
  hash.add(uint64_t(call.kind));
  hash.add(uint64_t(call.group));
  hash.add(uint64_t(call.bytes));
  hash.add(uint64_t(int64_t(call.peer)));
  hash.add(uint64_t(int64_t(call.tag)));
  hash.add(uint64_t(call.async));
  hash.add(uint64_t(call.dtype));
  for (const int64_t bytes : call.splits) hash.add(uint64_t(bytes));
  if (!call.received.empty()) hash.add(std::string("received"));
  for (const int64_t bytes : call.received) hash.add(uint64_t(bytes));
  if (call.batch >= 0) hash.add(uint64_t(call.batch));
  return hash.value();
}

bool has_call(const Record& record) {
  return record.kind == RecordKind::call || record.kind == RecordKind::wait;
}

// The lines of compare_workloads, at most `limit` of them.
class Differences {
 public:
  explicit Differences(int limit) : limit_(size_t(std::max(limit, 0))) {}
  bool full() const { return lines_.size() >= limit_; }
  void add(const std::string& line) {
    if (!full()) lines_.push_back(line);
  }
  template <typename T>
  void check(const std::string& what, const T& a, const T& b) {
    if (a != b) add(what + ": a has " + show(a) + ", b has " + show(b));
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  static std::string show(const std::string& text) { return "'" + text + "'"; }
  static std::string show(int64_t value) { return std::to_string(value); }
  size_t limit_;
  std::vector<std::string> lines_;
};

void compare_record(const Workload& a, const Canonical& ca, const Workload& b, const Canonical& cb,
                    size_t at, Differences& out) {
  const Record &x = ca.records[at], &y = cb.records[at];
  std::string fields;
  const auto note = [&](bool same, const char* field) {
    if (!same) fields += (fields.empty() ? "" : ", ") + std::string(field);
  };
  note(x.kind == y.kind, "kind");
  const bool signed_both = x.signature >= 0 && y.signature >= 0;
  note(signed_both ? a.signature_of(x).text() == b.signature_of(y).text()
                   : x.signature == y.signature,
       "signature");
  note(a.modules[size_t(x.module)] == b.modules[size_t(y.module)], "module");
  note(x.phase == y.phase, "phase");
  note(x.stream == y.stream, "stream");
  note(x.sequence_nr == y.sequence_nr, "sequence number");
  note(x.no_grad == y.no_grad, "grad mode");
  note(x.value == y.value, "value");
  note(x.region < 0 || y.region < 0 ? x.region == y.region
                                    : a.regions[size_t(x.region)] == b.regions[size_t(y.region)],
       "region");
  if (has_call(x) && has_call(y))
    note(a.calls[size_t(x.payload)] == b.calls[size_t(y.payload)], "call");
  else
    note(x.payload == y.payload, "payload");
  const TensorUse *u = ca.uses.data() + x.uses_begin, *v = cb.uses.data() + y.uses_begin;
  note(std::equal(u, u + x.uses_count, v, v + y.uses_count,
                  [](const TensorUse& p, const TensorUse& q) {
                    return p.storage == q.storage && p.version == q.version;
                  }),
       "tensors");
  if (fields.empty()) return;
  out.add("record " + std::to_string(at) + " differs in " + fields +
          ": a: " + print_with(a, int64_t(at), x, u) + " | b: " + print_with(b, int64_t(at), y, v));
}

void compare_storages(const Workload& a, const Canonical& ca, const Workload& b,
                      const Canonical& cb, Differences& out) {
  out.check("number of storages", int64_t(a.storages.size()), int64_t(b.storages.size()));
  const size_t count = std::min(a.storages.size(), b.storages.size());
  for (size_t i = 0; i < count && !out.full(); ++i) {
    const Storage& x = a.storages[size_t(ca.storage_order[i])];
    const Storage& y = b.storages[size_t(cb.storage_order[i])];
    const std::string where = "storage s" + std::to_string(i) + " ";
    out.check(where + "bytes", x.bytes, y.bytes);
    out.check(where + "born before record", x.born, y.born);
    out.check(where + "died before record", x.died, y.died);
    out.check(where + "kind", std::string(storage_kind_name(x.kind)),
              std::string(storage_kind_name(y.kind)));
  }
}

std::string event_text(const AllocationEvent& event) {
  return std::string(event.is_free ? "free" : "allocate") + " s" + std::to_string(event.storage) +
         " before record " + std::to_string(event.record) + " on stream " +
         std::to_string(event.stream);
}

void compare_allocations(const Canonical& a, const Canonical& b, Differences& out) {
  out.check("number of allocation events", int64_t(a.allocations.size()),
            int64_t(b.allocations.size()));
  const size_t count = std::min(a.allocations.size(), b.allocations.size());
  for (size_t i = 0; i < count && !out.full(); ++i)
    out.check("allocation event " + std::to_string(i), event_text(a.allocations[i]),
              event_text(b.allocations[i]));
}

}  // namespace

Canonical canonical(const Workload& workload) {
  Canonical out{workload.records, workload.uses, workload.allocations, {}};
  Numbering storages, events, optimizers, sequences;
  for (Record& record : out.records) {
    for (int32_t i = 0; i < record.uses_count; ++i) {
      TensorUse& use = out.uses[size_t(record.uses_begin + i)];
      if (use.storage >= 0) use.storage = int32_t(storages(use.storage));
    }
    if (record.kind == RecordKind::event_record || record.kind == RecordKind::event_wait)
      record.payload = int32_t(events(record.payload));
    if (names_optimizer(record)) record.value = optimizers(record.value);
    if (record.sequence_nr >= 0) record.sequence_nr = sequences(record.sequence_nr);
    record.fallback_read = 0;
  }
  for (AllocationEvent& event : out.allocations) event.storage = int32_t(storages(event.storage));
  out.storage_order.resize(workload.storages.size());
  for (size_t i = 0; i < workload.storages.size(); ++i)
    out.storage_order[size_t(storages(int64_t(i)))] = int32_t(i);
  return out;
}

uint64_t hash_workload(const Workload& workload) {
  const Canonical c = canonical(workload);
  std::vector<uint64_t> signatures, modules, regions, calls;
  for (const Signature& signature : workload.signatures)
    signatures.push_back(hash_bytes(signature.text()));
  for (const std::string& module : workload.modules) modules.push_back(hash_bytes(module));
  for (const std::string& region : workload.regions) regions.push_back(hash_bytes(region));
  for (const Call& call : workload.calls) calls.push_back(hash_call(call));
  Hasher hash;
  for (const Record& record : c.records) {
    hash.add(uint64_t(record.kind));
    hash.add(record.signature < 0 ? 0 : signatures[size_t(record.signature)]);
    hash.add(modules[size_t(record.module)]);
    hash.add(uint64_t(record.phase) * 2 + record.no_grad);
    hash.add(uint64_t(int64_t(record.stream)));
    hash.add(uint64_t(record.sequence_nr));
    hash.add(uint64_t(record.value));
    hash.add(record.region < 0 ? 0 : regions[size_t(record.region)]);
    hash.add(has_call(record) ? calls[size_t(record.payload)] : uint64_t(int64_t(record.payload)));
    hash.add(uint64_t(record.uses_count));
    for (int32_t i = 0; i < record.uses_count; ++i) {
      const TensorUse& use = c.uses[size_t(record.uses_begin + i)];
      hash.add(uint64_t(use.storage) << 32 | uint32_t(use.version));
    }
  }
  for (const int32_t old : c.storage_order) {
    const Storage& storage = workload.storages[size_t(old)];
    hash.add(uint64_t(storage.bytes));
    hash.add(uint64_t(storage.born));
    hash.add(uint64_t(storage.died));
    hash.add(uint64_t(storage.kind));
  }
  for (const AllocationEvent& event : c.allocations) {
    hash.add(uint64_t(event.record) * 2 + event.is_free);
    hash.add(uint64_t(event.storage));
    hash.add(uint64_t(int64_t(event.stream)));
  }
  for (const Group& group : workload.groups) {
    hash.add(group.name);
    hash.add(group.ranks.text());
  }
  hash.add(workload.role);
  if (workload.played_by) hash.add(workload.played_by->text());
  for (const int64_t value :
       {workload.rank, workload.world_size, workload.ranks_per_server, workload.parameter_count})
    hash.add(uint64_t(value));
  return hash.value();
}

std::vector<std::string> compare_workloads(const Workload& a, const Workload& b, int limit) {
  Differences out(limit);
  const Canonical ca = canonical(a), cb = canonical(b);
  out.check("role", a.role, b.role);
  const auto players = [](const Workload& of) {
    return of.played_by ? of.played_by->text() : std::string("all ranks");
  };
  out.check("ranks of the role", players(a), players(b));
  out.check("rank", a.rank, b.rank);
  out.check("world_size", a.world_size, b.world_size);
  out.check("ranks_per_server", a.ranks_per_server, b.ranks_per_server);
  out.check("parameter_count", a.parameter_count, b.parameter_count);
  out.check("number of groups", int64_t(a.groups.size()), int64_t(b.groups.size()));
  for (size_t i = 0; i < std::min(a.groups.size(), b.groups.size()); ++i) {
    out.check("name of group " + std::to_string(i), a.groups[i].name, b.groups[i].name);
    out.check("ranks of group " + std::to_string(i), a.groups[i].ranks.text(),
              b.groups[i].ranks.text());
  }
  const size_t common = std::min(a.records.size(), b.records.size());
  for (size_t i = 0; i < common && !out.full(); ++i) compare_record(a, ca, b, cb, i, out);
  for (const auto& [one, canon, name] :
       {std::tuple<const Workload&, const Canonical&, const char*>{a, ca, "a"}, {b, cb, "b"}})
    for (size_t i = common; i < one.records.size() && !out.full(); ++i)
      out.add("record " + std::to_string(i) + " is only in " + name + ": " +
              print_with(one, int64_t(i), canon.records[i],
                         canon.uses.data() + canon.records[i].uses_begin));
  if (!out.full()) compare_storages(a, ca, b, cb, out);
  if (!out.full()) compare_allocations(ca, cb, out);
  return out.take();
}

}  // namespace trnsim::workload
