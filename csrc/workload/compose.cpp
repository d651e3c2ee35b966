// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "workload/compose.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace trnsim::workload {
namespace {

constexpr int32_t kNone = -1;  // no micro-batch: before the first segment and after the last

// Ids of one kind (storages, calls, events, sequence numbers): which captured micro-batch each is
// of, and what it is called in the one that is written out now.
class Names {
 public:
  // The name of `id` in micro-batch `now`, whose segment is of captured micro-batch `of`; -1 when
  // it has none yet.
  int64_t find(int64_t id, int32_t of, int32_t now) const {
    const auto owner = owners_.find(id);
    if (owner == owners_.end()) return -1;
    if (owner->second != of || of == kNone) {
      const auto last = last_.find(id);
      return last == last_.end() ? -1 : last->second;
    }
    const auto name = names_.find({id, now});
    return name == names_.end() ? -1 : name->second;
  }
  void set(int64_t id, int32_t of, int32_t now, int64_t name) {
    owners_.emplace(id, of);
    if (of != kNone) names_[{id, now}] = name;
    last_[id] = name;
  }
  bool is_of(int64_t id, int32_t of) const {
    const auto owner = owners_.find(id);
    return owner != owners_.end() && owner->second == of;
  }

 private:
  using Key = std::pair<int64_t, int32_t>;
  struct Hash {
    size_t operator()(const Key& key) const {
      return size_t(combine(uint64_t(key.first), uint64_t(key.second)));
    }
  };

  std::unordered_map<int64_t, int32_t> owners_;
  std::unordered_map<Key, int64_t, Hash> names_;
  std::unordered_map<int64_t, int64_t> last_;
};

struct Range {
  int64_t begin = 0, allocations_begin = 0, end = 0, allocations_end = 0;
  int32_t of = kNone, now = kNone;  // captured micro-batch, and the one that is written out
};

class Composer {
 public:
  explicit Composer(const Workload& from) : from_(from) {
    to_.signatures = from.signatures;
    to_.modules = from.modules;
    to_.groups = from.groups;
    to_.role = from.role;
    to_.played_by = from.played_by;
    to_.rank = from.rank;
    to_.world_size = from.world_size;
    to_.ranks_per_server = from.ranks_per_server;
    to_.mode = from.mode;
    to_.seed = from.seed;
    to_.unknown_reads = from.unknown_reads;
    to_.parameter_count = from.parameter_count;
    to_.notes = from.notes;
  }

  void reserve(int64_t records, int64_t uses) {
    to_.records.reserve(size_t(records));
    to_.uses.reserve(size_t(uses));
  }

  // Copies a range; allocation events stand between records, so the two go together.
  void write(const Range& range) {
    range_ = range;
    shift_ = int64_t(to_.records.size()) - range.begin;
    entry_.clear();
    regions_.clear();
    int64_t event = range.allocations_begin;
    for (int64_t i = range.begin; i < range.end; ++i) {
      for (; event < range.allocations_end && from_.allocations[size_t(event)].record <= i; ++event)
        copy_event(from_.allocations[size_t(event)]);
      copy_record(from_.records[size_t(i)]);
    }
    for (; event < range.allocations_end; ++event) copy_event(from_.allocations[size_t(event)]);
  }

  Workload finish() {
    for (AllocationEvent& each : to_.allocations) {
      if (each.is_free) to_.storages[size_t(each.storage)].died = each.record;
    }
    order_frees(to_);
    return std::move(to_);
  }

 private:
  int32_t add_storage(int32_t id, int64_t born) {
    Storage storage = from_.storages[size_t(id)];
    storage.born = born;
    storage.died = -1;
    to_.storages.push_back(storage);
    versions_.push_back(0);
    const auto name = int32_t(to_.storages.size()) - 1;
    storages_.set(id, range_.of, range_.now, name);
    if (range_.of != kNone) living_[id].push_back(name);
    return name;
  }

  void copy_event(const AllocationEvent& event) {
    const int64_t record = event.record + shift_;
    if (!event.is_free) {
      const int32_t name = add_storage(event.storage, record);
      to_.allocations.push_back({record, name, event.stream, false});
      return;
    }
    auto& living = living_[event.storage];
    const bool is_own = storages_.is_of(event.storage, range_.of);
    if (is_own || living.empty()) {
      const auto name = int32_t(storages_.find(event.storage, range_.of, range_.now));
      TRN_ASSERT(name >= 0, "a storage is freed that no segment before this one made");
      to_.allocations.push_back({record, name, event.stream, true});
      std::erase(living, name);
      return;
    }
    for (const int32_t name : living) to_.allocations.push_back({record, name, event.stream, true});
    living.clear();
  }

  int32_t storage_of(int32_t id) {
    const auto name = int32_t(storages_.find(id, range_.of, range_.now));
    return name >= 0 ? name : add_storage(id, int64_t(to_.records.size()));
  }

  // Versions count from what the storage had before this range, there and here.
  TensorUse use_of(const TensorUse& use, bool is_input) {
    if (use.storage < 0) return use;
    const int32_t name = storage_of(use.storage);
    const int32_t before = is_input ? use.version : std::max(0, use.version - 1);
    const auto [entry, added] = entry_.try_emplace(use.storage, before);
    if (added) {
      if (entry_here_.size() <= size_t(name)) entry_here_.resize(size_t(name) + 1024);
      entry_here_[size_t(name)] = versions_[size_t(name)];
    }
    const int32_t version = use.version - entry->second + entry_here_[size_t(name)];
    versions_[size_t(name)] = std::max(versions_[size_t(name)], version);
    return {name, version};
  }

  int64_t renamed(Names& names, int64_t id, int64_t& next, bool is_new) {
    const int64_t known = is_new ? -1 : names.find(id, range_.of, range_.now);
    if (known >= 0) return known;
    names.set(id, range_.of, range_.now, next);
    return next++;
  }

  void copy_payload(Record& record) {
    int64_t next = int64_t(to_.calls.size());
    if (record.kind == RecordKind::call) {
      Call call = from_.calls[size_t(record.payload)];
      const int32_t own = record.payload;
      record.payload = int32_t(renamed(calls_, own, next, true));
      if (call.batch >= 0) call.batch = int32_t(calls_.find(call.batch, range_.of, range_.now));
      to_.calls.push_back(call);
    } else if (record.kind == RecordKind::wait) {
      const int64_t known = calls_.find(record.payload, range_.of, range_.now);
      TRN_ASSERT(known >= 0, "a wait for a call that no segment before this one made");
      record.payload = int32_t(known);
    } else if (record.kind == RecordKind::event_record) {
      record.payload = int32_t(renamed(events_, record.payload, next_event_, true));
    } else if (record.kind == RecordKind::event_wait) {
      record.payload = int32_t(renamed(events_, record.payload, next_event_, false));
    }
  }

  void copy_record(Record record) {
    const int64_t from = record.uses_begin;
    const int32_t inputs = record.uses_count > 0 ? input_count(from_, record) : 0;
    record.uses_begin = int64_t(to_.uses.size());
    for (int32_t i = 0; i < record.uses_count; ++i) {
      const TensorUse use = use_of(from_.uses[size_t(from + i)], i < inputs);
      to_.uses.push_back(use);
      const bool is_changed = i < inputs && record.signature >= 0 && use.storage >= 0 &&
                              from_.signature_of(record).inputs[size_t(i)].mutated;
      if (!is_changed) continue;  // else it need not be among the results
      int32_t& version = versions_[size_t(use.storage)];
      version = std::max(version, use.version + 1);
    }
    copy_payload(record);
    if (record.sequence_nr >= 0) {
      record.sequence_nr = renamed(sequences_, record.sequence_nr, next_sequence_, false);
    }
    if (record.region >= 0) {
      const auto [region, added] = regions_.try_emplace(record.region, 0);
      if (added) {
        region->second = int32_t(to_.regions.size());
        to_.regions.push_back(from_.regions[size_t(record.region)]);
      }
      record.region = region->second;
    }
    to_.records.push_back(record);
  }

  const Workload& from_;
  Workload to_;
  Range range_;
  int64_t shift_ = 0;
  Names storages_, calls_, events_, sequences_;
  int64_t next_event_ = 0, next_sequence_ = 0;
  std::vector<int32_t> versions_;    // of the storages that are written out: the last one
  std::vector<int32_t> entry_here_;  // the same at the begin of this range, of those it uses
  std::unordered_map<int32_t, int32_t> entry_;  // the captured one at the begin of this range
  std::unordered_map<int32_t, std::vector<int32_t>> living_;  // of micro-batches, not yet freed
  std::unordered_map<int32_t, int32_t> regions_;
};

void check(const Workload& captured, const std::vector<Segment>& segments,
           const std::vector<Placed>& schedule) {
  TRN_CHECK(!segments.empty(), workload, "a step is composed of no segments", "give at least one");
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& each = segments[i];
    const bool follows = i == 0 || (each.begin == segments[i - 1].end &&
                                    each.allocations_begin == segments[i - 1].allocations_end);
    const bool is_inside = 0 <= each.begin && each.begin <= each.end &&
                           each.end <= int64_t(captured.records.size()) &&
                           each.allocations_begin <= each.allocations_end &&
                           each.allocations_end <= int64_t(captured.allocations.size());
    TRN_CHECK(follows && is_inside, workload,
              "segment " + std::to_string(i) + " of a composed step does not follow the one before",
              "give segments one after another, within the Workload");
  }
  for (const Placed& each : schedule) {
    TRN_CHECK(0 <= each.segment && size_t(each.segment) < segments.size(), workload,
              "a schedule names segment " + std::to_string(each.segment) + " of " +
                  std::to_string(segments.size()),
              "name one that there is");
  }
}

}  // namespace

Workload compose(const Workload& captured, const std::vector<Segment>& segments,
                 const std::vector<Placed>& schedule) {
  check(captured, segments, schedule);
  Composer composer(captured);
  const Segment &first = segments.front(), &last = segments.back();
  int64_t records = int64_t(captured.records.size()) - last.end + first.begin;
  for (const Placed& each : schedule) {
    records += segments[size_t(each.segment)].end - segments[size_t(each.segment)].begin;
  }
  const auto captured_records = std::max<int64_t>(1, int64_t(captured.records.size()));
  composer.reserve(records, int64_t(captured.uses.size()) * records / captured_records);
  composer.write({0, 0, first.begin, first.allocations_begin, kNone, kNone});
  for (const Placed& each : schedule) {
    const Segment& segment = segments[size_t(each.segment)];
    composer.write({segment.begin, segment.allocations_begin, segment.end, segment.allocations_end,
                    segment.micro_batch, each.micro_batch});
  }
  composer.write({last.end, last.allocations_end, int64_t(captured.records.size()),
                  int64_t(captured.allocations.size()), kNone, kNone});
  return composer.finish();
}

Workload moved(const Workload& workload, int64_t by) {
  Workload other = workload;
  other.rank += by;
  other.role = "rank" + std::to_string(other.rank);
  std::vector<uint8_t> stays;  // groups that both ranks are in: the world, the pipeline
  for (Group& group : other.groups) {
    stays.push_back(group.ranks.size() == other.world_size ||
                    group.ranks.index_of(other.rank) >= 0);
    if (stays.back()) continue;
    group.ranks.start += by;
    for (int64_t& rank : group.ranks.listed) rank += by;
  }
  for (Call& call : other.calls) {
    const bool is_message = call.kind == CallKind::send || call.kind == CallKind::recv;
    if (call.peer >= 0 && (is_message || !stays[size_t(call.group)])) call.peer += int32_t(by);
  }
  return other;
}

}  // namespace trnsim::workload
