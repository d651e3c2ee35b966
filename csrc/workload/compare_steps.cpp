// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>
#include <set>

#include "base/error.h"
#include "workload/messages.h"
#include "workload/workload.h"

namespace trnsim::workload {
namespace {

// Of a member, how far around the group another is.
int32_t places_on(const RankPattern& ranks, int64_t from, int64_t to) {
  const int64_t count = ranks.size(), own = ranks.index_of(from), other = ranks.index_of(to);
  TRN_CHECK(own >= 0 && other >= 0, workload,
            "rank " + std::to_string(from) + " has a message with rank " + std::to_string(to) +
                ", and they are not both in group " + ranks.text(),
            "send and receive inside one group");
  return int32_t((other - own + count) % count);
}

RankPattern moved_to_zero(RankPattern ranks) {
  for (int64_t& rank : ranks.listed) rank -= ranks.start;
  ranks.start = 0;
  return ranks;
}

// Where a rank is among others (its part of a flat buffer, its rows of a table) says nothing of
// what its ops cost.
void forget_place(Signature& signature) {
  static const std::set<std::string> kPlaces{"other", "value", "start", "end",
                                             "index", "min",   "max"};
  for (auto* slots : {&signature.inputs, &signature.outputs}) {
    for (TensorSlot& slot : *slots) slot.meta.offset = 0;
  }
  for (Scalar& scalar : signature.scalars) {
    if (kPlaces.count(scalar.name) > 0) scalar.value = int64_t(0);
  }
}

// A batch is an input once a module takes it, which for the next step's is after the end of a step,
// and of a run that ends with the step never.
StorageKind kind_in_step(StorageKind kind) {
  return kind == StorageKind::input ? StorageKind::temporary : kind;
}

// A step as a Workload of its own, in which nothing tells which rank it is of.
class Part {
 public:
  Part(const Workload& whole, const Step& step) : whole_(whole), step_(step) {}

  Workload make() {
    part_.signatures = whole_.signatures;
    for (Signature& signature : part_.signatures) forget_place(signature);
    part_.modules = whole_.modules;
    part_.regions = whole_.regions;
    part_.world_size = whole_.world_size;
    part_.parameter_count = whole_.parameter_count;
    for (const Group& group : whole_.groups) {
      part_.groups.push_back({"", moved_to_zero(group.ranks)});
    }
    storage_.assign(whole_.storages.size(), -1);
    version_.assign(whole_.storages.size(), -1);
    call_.assign(whole_.calls.size(), -1);
    for (int64_t i = step_.begin; i < step_.end; ++i) add(whole_.records[size_t(i)]);
    return std::move(part_);
  }

 private:
  void add(Record record) {
    // FSDP cuts a flat parameter where the shards fall, so an optimizer sees other pieces on each
    // rank, of as many elements together.
    if (record.kind == RecordKind::op && record.phase == Phase::optimizer) return;
    const int64_t begin = int64_t(part_.uses.size());
    for (int32_t i = 0; i < record.uses_count; ++i) {
      part_.uses.push_back(moved(whole_.uses[size_t(record.uses_begin + i)]));
    }
    record.uses_begin = begin;
    const bool has_call = record.kind == RecordKind::call || record.kind == RecordKind::wait;
    if (has_call) record.payload = moved_call(record.payload);
    part_.records.push_back(record);
  }

  // Storages in the order of their use, and versions from the first that is used.
  TensorUse moved(const TensorUse& use) {
    if (use.storage < 0) return use;
    const auto at = size_t(use.storage);
    if (storage_[at] < 0) {
      storage_[at] = int32_t(part_.storages.size());
      version_[at] = use.version;
      const Storage& of = whole_.storages[at];
      const bool survives = of.died < 0 || of.died > step_.end;
      part_.storages.push_back({of.bytes, 0, survives ? -1 : 0, kind_in_step(of.kind)});
    }
    return {storage_[at], use.version - version_[at]};
  }

  int32_t moved_call(int32_t index) {
    int32_t& known = call_[size_t(index)];
    if (known >= 0) return known;
    known = int32_t(part_.calls.size());
    Call call = whole_.calls[size_t(index)];
    const RankPattern& ranks = whole_.groups[size_t(call.group)].ranks;
    if (is_message(call.kind)) {
      call.peer = places_on(ranks, whole_.rank, call.peer);
    } else if (call.peer >= 0) {
      call.peer = int32_t(ranks.index_of(call.peer));
    }
    // A shift: everything to one other member, as far from each.
    const int64_t own = ranks.index_of(whole_.rank);
    const auto gets = [](int64_t bytes) { return bytes > 0; };
    if (own >= 0 && std::count_if(call.splits.begin(), call.splits.end(), gets) == 1) {
      std::rotate(call.splits.begin(), call.splits.begin() + own, call.splits.end());
    }
    if (call.batch >= 0) call.batch = call_[size_t(call.batch)];
    part_.calls.push_back(call);
    return known;
  }

  const Workload& whole_;
  const Step& step_;
  Workload part_;
  std::vector<int32_t> storage_, version_, call_;  // what became of them
};

}  // namespace

std::vector<std::string> compare_steps(const Workload& a, const Step& of_a, const Workload& b,
                                       const Step& of_b, int limit) {
  return compare_workloads(Part(a, of_a).make(), Part(b, of_b).make(), limit);
}

}  // namespace trnsim::workload
