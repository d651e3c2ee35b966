// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "workload/repeat.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.h"

namespace trnsim::workload {
namespace {

// Where a storage of the range is in the copy, and what is added to its versions there.
struct Place {
  int32_t storage = -1;
  int32_t offset = 0;
};

class Repetition {
 public:
  Repetition(Workload& workload, Range records, StorageVersions& alive,
             const std::function<int64_t()>& next_event)
      : workload_(workload),
        records_(records),
        shift_(int64_t(workload.records.size()) - records.begin),
        alive_(alive),
        next_event_(next_event) {}

  // Storages that were made and freed within the range.
  void allocate(Range trace) {
    for (int64_t i = trace.begin; i < trace.end; ++i) {
      AllocationEvent event = workload_.allocations[size_t(i)];
      if (!event.is_free) made_inside_.insert(event.storage);
      const bool is_new = !event.is_free && alive_.count(event.storage) == 0;
      if (is_new) {
        places_[event.storage] = {add_storage(event.storage, event.record + shift_), 0};
        to_free_.push_back(event);
      } else if (!event.is_free || places_.count(event.storage) == 0) {
        continue;  // it is still there, or came from outside
      } else {
        std::erase_if(to_free_, [&](const auto& made) { return made.storage == event.storage; });
        workload_.storages[size_t(places_[event.storage].storage)].died = event.record + shift_;
      }
      event.record += shift_;
      event.storage = places_[event.storage].storage;
      events_.push_back(event);
    }
  }

  void copy_records() {
    for (int64_t i = records_.begin; i < records_.end; ++i) {
      Record record = workload_.records[size_t(i)];
      copy_payload(record);
      copy_uses(record);
      workload_.records.push_back(record);
    }
  }

  void finish() {
    const auto now = int64_t(workload_.records.size());
    for (AllocationEvent event : to_free_) {
      event.storage = places_[event.storage].storage;
      event.record = now;
      event.is_free = true;
      workload_.storages[size_t(event.storage)].died = now;
      events_.push_back(event);
    }
    workload_.allocations.insert(workload_.allocations.end(), events_.begin(), events_.end());
  }

 private:
  int32_t add_storage(int32_t original, int64_t born) {
    Storage storage = workload_.storages[size_t(original)];
    storage.born = born;
    storage.died = -1;
    workload_.storages.push_back(storage);
    return int32_t(workload_.storages.size()) - 1;
  }

  // `version` is that of its first use in the range.
  Place place(const TensorUse& use, bool is_input) {
    const auto [found, added] = places_.try_emplace(use.storage);
    if (!added) return found->second;
    const bool from_outside = made_inside_.count(use.storage) == 0;
    const int32_t before = !from_outside ? -1 : is_input ? use.version : use.version - 1;
    const auto living = alive_.find(use.storage);
    if (living != alive_.end()) {
      found->second = {use.storage, living->second - before};
    } else {  // freed since the capture
      const int64_t born = records_.begin + shift_;
      const int32_t storage = add_storage(use.storage, born);
      found->second = {storage, 0};
      events_.insert(events_.begin(), AllocationEvent{born, storage, 0, false});
      to_free_.push_back({born, use.storage, 0, false});
    }
    return found->second;
  }

  void copy_uses(Record& record) {
    const int64_t from = record.uses_begin;
    const int32_t inputs = input_count(workload_, record);
    record.uses_begin = int64_t(workload_.uses.size());
    for (int32_t i = 0; i < record.uses_count; ++i) {
      TensorUse use = workload_.uses[size_t(from + i)];
      if (use.storage >= 0) {
        const Place at = place(use, i < inputs);
        use = {at.storage, use.version + at.offset};
        const auto living = alive_.find(use.storage);
        if (living != alive_.end()) living->second = std::max(living->second, use.version);
      }
      workload_.uses.push_back(use);
    }
  }

  void copy_payload(Record& record) {
    if (record.kind == RecordKind::call) {
      const auto copy = int32_t(workload_.calls.size());
      calls_[record.payload] = copy;
      workload_.calls.push_back(Call(workload_.calls[size_t(record.payload)]));
      int32_t& batch = workload_.calls.back().batch;
      if (batch >= 0) batch = calls_.count(batch) > 0 ? calls_.at(batch) : copy;
      record.payload = copy;
    } else if (record.kind == RecordKind::wait) {
      const auto found = calls_.find(record.payload);
      if (found != calls_.end()) record.payload = found->second;
    } else if (record.kind == RecordKind::event_record) {
      record.payload = marks_[record.payload] = int32_t(next_event_());
    } else if (record.kind == RecordKind::event_wait) {
      const auto found = marks_.find(record.payload);
      if (found != marks_.end()) record.payload = found->second;
    }
    if (record.region < 0) return;
    const auto [found, added] = regions_.try_emplace(record.region, 0);
    if (added) {
      found->second = int32_t(workload_.regions.size());
      workload_.regions.push_back(std::string(workload_.regions[size_t(record.region)]));
    }
    record.region = found->second;
  }

  Workload& workload_;
  const Range records_;
  const int64_t shift_;
  StorageVersions& alive_;
  const std::function<int64_t()>& next_event_;
  std::unordered_set<int32_t> made_inside_;
  std::unordered_map<int32_t, Place> places_;
  std::unordered_map<int32_t, int32_t> calls_, marks_, regions_;
  std::vector<AllocationEvent> events_, to_free_;
};

}  // namespace

void repeat_records(Workload& workload, Range records, Range allocations, StorageVersions& alive,
                    const std::function<int64_t()>& next_event) {
  TRN_ASSERT(0 <= records.begin && records.begin <= records.end &&
                 records.end <= int64_t(workload.records.size()),
             "the range to repeat must lie within the records");
  Repetition repetition(workload, records, alive, next_event);
  repetition.allocate(allocations);
  repetition.copy_records();
  repetition.finish();
}

}  // namespace trnsim::workload
