// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

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
    take_groups();
    storage_.assign(whole_.storages.size(), -1);
    version_.assign(whole_.storages.size(), -1);
    call_.assign(whole_.calls.size(), -1);
    find_alike();
    for (int64_t i = step_.begin; i < step_.end; ++i) add(whole_.records[size_t(i)]);
    return std::move(part_);
  }

 private:
  // Those of the step's calls: others may be made before it or after.
  void take_groups() {
    group_.assign(whole_.groups.size(), -1);
    for (int64_t i = step_.begin; i < step_.end; ++i) {
      const Record& record = whole_.records[size_t(i)];
      if (has_call(record)) group_[size_t(whole_.calls[size_t(record.payload)].group)] = 0;
    }
    for (size_t i = 0; i < group_.size(); ++i) {
      if (group_[i] < 0) continue;
      group_[i] = int32_t(part_.groups.size());
      part_.groups.push_back({"", moved_to_zero(whole_.groups[i].ranks)});
    }
  }
  static bool has_call(const Record& record) {
    return record.kind == RecordKind::call || record.kind == RecordKind::wait;
  }

  // Tensors that one call fills are alike: a rank that puts its own in its place among what was
  // gathered (`outs[rank] = mine`) leaves another one of them unread, and as many.
  void find_alike() {
    alike_.resize(whole_.storages.size());
    std::iota(alike_.begin(), alike_.end(), 0);
    for (int64_t i = step_.begin; i < step_.end; ++i) {
      const Record& record = whole_.records[size_t(i)];
      if (record.kind != RecordKind::call || record.signature < 0) continue;
      const Signature& signature = whole_.signature_of(record);
      int32_t first = -1;
      for (int32_t slot = 0; slot < record.uses_count; ++slot) {
        const TensorSlot& of = slot_at(signature, slot);
        const bool is_filled = size_t(slot) >= signature.inputs.size() || of.mutated;
        const int32_t storage = whole_.uses[size_t(record.uses_begin + slot)].storage;
        if (!is_filled || of.index < 0 || storage < 0) continue;
        if (of.index == 0) first = storage;
        if (first < 0 || !is_same(whole_.storages[size_t(first)], storage)) continue;
        alike_[size_t(storage)] = alike_[size_t(first)];
      }
    }
    survives_.assign(alike_.size(), 0);  // where one of them does
    for (size_t i = 0; i < alike_.size(); ++i) {
      const int64_t died = whole_.storages[i].died;
      survives_[size_t(alike_[i])] |= died < 0 || died > step_.end;
    }
  }
  bool is_same(const Storage& a, int32_t storage) const {
    const Storage& b = whole_.storages[size_t(storage)];
    return a.bytes == b.bytes && a.kind == b.kind;
  }
  static const TensorSlot& slot_at(const Signature& signature, int32_t index) {
    const size_t at = size_t(index), inputs = signature.inputs.size();
    return at < inputs ? signature.inputs[at] : signature.outputs[at - inputs];
  }

  // The tensors of a list that are shaped alike, in one order for all ranks.
  void sort_lists(const Record& record) {
    if (record.signature < 0) return;
    const std::vector<TensorSlot>& slots = part_.signatures[size_t(record.signature)].inputs;
    const auto uses = part_.uses.begin() + record.uses_begin;
    for (size_t i = 0, end; i < slots.size(); i = end) {
      end = i + 1;
      if (slots[i].index < 0) continue;
      while (end < slots.size() && slots[end].argument == slots[i].argument &&
             slots[end].meta == slots[i].meta) {
        ++end;
      }
      std::sort(uses + int64_t(i), uses + int64_t(end), [](const TensorUse& a, const TensorUse& b) {
        return std::tuple(a.storage, a.version) < std::tuple(b.storage, b.version);
      });
    }
  }

  void add(Record record) {
    // FSDP cuts a flat parameter where the shards fall, so an optimizer sees other pieces on each
    // rank, of as many elements together.
    if (record.kind == RecordKind::op && record.phase == Phase::optimizer) return;
    const int64_t begin = int64_t(part_.uses.size());
    for (int32_t i = 0; i < record.uses_count; ++i) {
      part_.uses.push_back(moved(whole_.uses[size_t(record.uses_begin + i)]));
    }
    record.uses_begin = begin;
    if (record.kind == RecordKind::op) sort_lists(record);
    if (has_call(record)) record.payload = moved_call(record.payload);
    part_.records.push_back(record);
  }

  // Storages in the order of their use, and versions from the first that is used.
  TensorUse moved(const TensorUse& use) {
    if (use.storage < 0) return use;
    const auto own = size_t(use.storage), at = size_t(alike_[own]);
    if (version_[own] < 0) version_[own] = use.version;
    if (storage_[at] < 0) {
      storage_[at] = int32_t(part_.storages.size());
      const Storage& of = whole_.storages[at];
      part_.storages.push_back({of.bytes, 0, survives_[at] ? -1 : 0, kind_in_step(of.kind)});
    }
    return {storage_[at], use.version - version_[own]};
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
    call.group = group_[size_t(call.group)];
    // A shift: everything to one other member, as far from each.
    const int64_t own = ranks.index_of(whole_.rank);
    if (shift_of(call, own) >= 0) {
      for (auto* parts : {&call.splits, &call.received}) {
        if (!parts->empty()) std::rotate(parts->begin(), parts->begin() + own, parts->end());
      }
    }
    if (call.batch >= 0) call.batch = call_[size_t(call.batch)];
    part_.calls.push_back(call);
    return known;
  }

  const Workload& whole_;
  const Step& step_;
  Workload part_;
  std::vector<int32_t> storage_, version_, call_, group_;  // what became of them
  std::vector<int32_t> alike_;                             // the storage that stands for it
  std::vector<uint8_t> survives_;                          // the step
};

}  // namespace

std::vector<std::string> compare_steps(const Workload& a, const Step& of_a, const Workload& b,
                                       const Step& of_b, int limit) {
  return compare_workloads(Part(a, of_a).make(), Part(b, of_b).make(), limit);
}

}  // namespace trnsim::workload
