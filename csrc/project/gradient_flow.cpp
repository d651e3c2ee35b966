// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/gradient_flow.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "project/group_names.h"

namespace trnsim::project {
namespace {

using workload::CallKind;
using workload::Record;
using workload::RecordKind;

// "aten::_foreach_copy_" -> "copy", "aten::div.Tensor" -> "div"
std::string_view stem_of(const std::string& op) {
  std::string_view name(op);
  const size_t colon = name.rfind(':');
  if (colon != name.npos) name.remove_prefix(colon + 1);
  name = name.substr(0, name.find('.'));
  constexpr std::string_view kForeach = "_foreach_";
  if (name.substr(0, kForeach.size()) == kForeach) name.remove_prefix(kForeach.size());
  while (!name.empty() && name.back() == '_') name.remove_suffix(1);
  return name;
}

bool passes_on(const std::string& op) {
  static constexpr std::string_view kStems[] = {"copy",      "_to_copy", "clone",
                                                "mul",       "div",      "add",
                                                "cat",       "stack",    "split_with_sizes_copy",
                                                "_chunk_cat"};
  const std::string_view stem = stem_of(op);
  return std::find(std::begin(kStems), std::end(kStems), stem) != std::end(kStems);
}

// Of hooks in backward: ops that compute a gradient have the number of their node. The graphs of
// compiled autograd have no nodes.
bool is_behind_autograd(const Record& record) {
  return record.phase == workload::Phase::backward && record.sequence_nr < 0 && record.region < 0;
}

// Puts several tensors into one.
bool gathers_up(const std::string& op) {
  const std::string_view stem = stem_of(op);
  return stem == "cat" || stem == "stack" || stem == "_chunk_cat";
}

bool is_attention(const std::string& op) {
  return op.find("scaled_dot_product") != op.npos || op.find("_flash_attention") != op.npos ||
         op.find("_efficient_attention") != op.npos || op.find("flex_attention") != op.npos;
}

bool reduces(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce_scatter ||
         kind == CallKind::reduce;
}

// Groups over which a storage's values are reduced; rising. As a set, since a gradient that is
// reduced again, as in each micro-batch, stands for no more ranks.
using Groups = std::vector<int32_t>;

void join(Groups& groups, const Groups& others) {
  Groups both;
  std::set_union(groups.begin(), groups.end(), others.begin(), others.end(),
                 std::back_inserter(both));
  groups = std::move(both);
}

constexpr int64_t kStatistics = 100;  // fewer numbers are losses, norms or counts

class Flow {
 public:
  Flow(const workload::Workload& workload, bool optimizer_reduces)
      : workload_(workload), optimizer_reduces_(optimizer_reduces) {
    for (size_t i = 0; i < workload.groups.size(); ++i) {
      size_t first = 0;
      while (!(workload.groups[first].ranks == workload.groups[i].ranks)) ++first;
      first_alike_.push_back(int32_t(first));
    }
  }

  void pass(const Record& record) {
    const workload::Signature& signature = workload_.signature_of(record);
    const int32_t inputs = workload::input_count(workload_, record);
    const bool is_call = record.kind == RecordKind::call;
    if (record.phase == workload::Phase::optimizer) {
      for (int32_t i = 0; i < inputs; ++i) note(storage_at(record, i));
    }
    note_exchange(record);
    follow_moved(record);
    const bool is_list = signature.op.find("::_foreach_") != std::string::npos;
    const bool carries = optimizer_reduces_ && record.phase == workload::Phase::optimizer;
    const Groups reduced = is_call ? reduced_by(record) : Groups{};
    const bool is_gathered = gathers_up(signature.op);
    std::vector<Made> made;
    for (int32_t i = inputs; i < record.uses_count; ++i) {
      Made& of_output = made.emplace_back();
      if (is_call || is_behind_autograd(record) || passes_on(signature.op)) {
        const int32_t element = is_list ? element_of(record, inputs, storage_at(record, i)) : -1;
        if (is_gathered) of_output.groups = of_most(record, inputs);
        for (int32_t k = 0; k < inputs; ++k) {
          const workload::TensorSlot& slot = signature.inputs[size_t(k)];
          if (element >= 0 && slot.index >= 0 && slot.index != element) continue;
          if (slot.meta.element_count() <= 1) continue;
          if (!is_gathered) join(of_output.groups, of(storage_at(record, k)));
          if (carries) join(of_output.gradients, gradients_in(storage_at(record, k)));
        }
      }
      join(of_output.groups, reduced);
    }
    for (int32_t k = 0; carries && !reduced.empty() && k < inputs; ++k) {
      if (signature.inputs[size_t(k)].meta.element_count() <= 1) continue;
      for (const int32_t gradient : gradients_in(storage_at(record, k))) {
        join(noted_[gradient], reduced);
      }
    }
    for (int32_t i = inputs; i < record.uses_count; ++i) {
      const int32_t storage = storage_at(record, i);
      if (storage < 0) continue;
      if (!is_list) {  // else its other elements may share the storage
        groups_[storage].clear();
        const auto at = size_t(i - inputs);  // in-place ops may write more than they return
        const bool is_part =
            at < signature.outputs.size() &&
            signature.outputs[at].meta.byte_count() < workload_.storages[size_t(storage)].bytes;
        if (!is_part) carried_.erase(storage);  // not where rows are padded
      }
      join(groups_[storage], made[size_t(i - inputs)].groups);
      if (carries) join(carried_[storage], made[size_t(i - inputs)].gradients);
    }
  }

  // Without an optimizer, gradients are what backward left.
  GradientFlow found() {
    if (noted_.empty()) {
      for (const auto& [storage, groups] : groups_) note(storage);
    }
    for (const auto& [storage, groups] : noted_) {
      int64_t degree = 1;
      for (const int32_t group : groups) degree *= workload_.groups[size_t(group)].ranks.size();
      bytes_[degree] += workload_.storages[size_t(storage)].bytes;
      join(of_degree_[degree], groups);
    }
    leave_out_experts();
    int64_t total = 0;
    for (const auto& [degree, bytes] : bytes_) total += bytes;
    GradientFlow flow;
    flow.context = context_degree(workload_);
    for (const auto& [degree, bytes] : bytes_) {
      if (bytes * 2 <= total || (degree == 1 && !exchanges_)) continue;
      flow.degree = degree;
      flow.context = context_in(of_degree_[degree]);
      flow.exchanges_beyond =
          std::any_of(exchanging_.begin(), exchanging_.end(),
                      [&](int32_t group) { return !is_inside(group, of_degree_[degree]); });
    }
    return flow;
  }

 private:
  // Ranks that send each other tokens have experts of their own, whose gradients are reduced over
  // fewer ranks than have data of their own. Norms alone (tensor and sequence parallelism reduces
  // theirs over more) say nothing: they are far below a hundredth.
  void leave_out_experts() {
    if (!sends_tokens_ || bytes_.size() < 2) return;
    int64_t others = 0;
    for (auto each = std::next(bytes_.begin()); each != bytes_.end(); ++each) {
      others += each->second;
    }
    if (others > bytes_.begin()->second / 100) bytes_.erase(bytes_.begin());
  }

  // All ranks of the group are in one of these.
  bool is_inside(int32_t group, const Groups& others) const {
    const workload::RankPattern& ranks = workload_.groups[size_t(group)].ranks;
    return std::any_of(others.begin(), others.end(), [&](int32_t other) {
      const workload::RankPattern& all = workload_.groups[size_t(other)].ranks;
      for (int64_t i = 0; i < ranks.size(); ++i) {
        if (all.index_of(ranks.rank_at(i)) < 0) return false;
      }
      return true;
    });
  }

  // The size of the groups inside of these whose ranks exchange what attention reads.
  int64_t context_in(const Groups& reduced) const {
    int64_t size = 1;
    for (const int32_t group : sharing_sequences_) {
      Groups larger;
      for (const int32_t other : sharing_sequences_) {
        if (other != group) larger.push_back(other);
      }
      const bool counts = is_inside(group, reduced) && !is_inside(group, larger);
      if (counts) size *= workload_.groups[size_t(group)].ranks.size();
    }
    return size > 1 ? size : context_degree(workload_);
  }

  // The groups of the inputs that most elements have.
  Groups of_most(const Record& record, int32_t inputs) const {
    const workload::Signature& signature = workload_.signature_of(record);
    std::map<Groups, int64_t> elements;
    for (int32_t k = 0; k < inputs; ++k) {
      const workload::TensorSlot& slot = signature.inputs[size_t(k)];
      if (!slot.mutated) elements[of(storage_at(record, k))] += slot.meta.element_count();
    }
    const auto most = std::max_element(
        elements.begin(), elements.end(),
        [](const auto& one, const auto& other) { return one.second < other.second; });
    return most == elements.end() ? Groups{} : most->first;
  }

  // Groups whose ranks send each other what forward made, or its gradients: no parameters, and no
  // few numbers.
  void note_exchange(const Record& record) {
    const workload::Signature& signature = workload_.signature_of(record);
    const int32_t inputs = workload::input_count(workload_, record);
    const bool is_call = record.kind == RecordKind::call;
    bool is_large = false, has_others = false;
    for (int32_t k = 0; k < inputs; ++k) {
      if (signature.inputs[size_t(k)].meta.element_count() < kStatistics) continue;
      is_large = true;
      has_others |= !is_of_parameters(storage_at(record, k));
    }
    const bool keeps = is_large && !has_others && (is_call || passes_on(signature.op));
    for (int32_t i = inputs; i < record.uses_count; ++i) {
      const int32_t storage = storage_at(record, i);
      if (storage >= 0 && keeps) of_parameters_.insert(storage);
      if (storage >= 0 && !keeps) of_parameters_.erase(storage);
    }
    if (!is_call) return;
    const workload::Call& call = workload_.calls[size_t(record.payload)];
    const bool is_message = call.kind == CallKind::send || call.kind == CallKind::recv;
    if (!is_message && (!is_large || !has_others)) return;
    const bool is_of_activations =
        record.phase == workload::Phase::forward ||
        record.phase == workload::Phase::recomputation ||
        (record.phase == workload::Phase::backward && !is_behind_autograd(record));
    if (is_of_activations || is_message) exchanging_.insert(first_alike_[size_t(call.group)]);
  }

  bool is_of_parameters(int32_t storage) const {
    if (storage < 0) return false;
    const auto kind = workload_.storages[size_t(storage)].kind;
    return kind == workload::StorageKind::parameter || of_parameters_.count(storage) > 0;
  }

  // Which groups have moved what an attention reads, since it was computed.
  void follow_moved(const Record& record) {
    const workload::Signature& signature = workload_.signature_of(record);
    const int32_t inputs = workload::input_count(workload_, record);
    Groups moved;
    if (record.kind == RecordKind::call) {
      const workload::Call& call = workload_.calls[size_t(record.payload)];
      const bool moves = call.kind == CallKind::all_gather || call.kind == CallKind::all_to_all;
      if (moves) moved.push_back(first_alike_[size_t(call.group)]);
    }
    const bool reads = is_attention(signature.op);
    if (reads || record.kind == RecordKind::call || passes_on(signature.op)) {
      for (int32_t k = 0; k < inputs; ++k) {
        const auto of = moved_.find(storage_at(record, k));
        if (of != moved_.end()) join(moved, of->second);
      }
    }
    if (reads) {
      sharing_sequences_.insert(moved.begin(), moved.end());
      moved.clear();
    }
    for (int32_t i = inputs; i < record.uses_count; ++i) {
      const int32_t storage = storage_at(record, i);
      if (storage < 0) continue;
      if (moved.empty()) moved_.erase(storage);
      if (!moved.empty()) moved_[storage] = moved;
    }
  }

  int32_t storage_at(const Record& record, int32_t use) const {
    return workload_.uses[size_t(record.uses_begin + use)].storage;
  }

  // The place in its list of the argument that is on this storage; -1 when none is.
  int32_t element_of(const Record& record, int32_t inputs, int32_t storage) const {
    const workload::Signature& signature = workload_.signature_of(record);
    int32_t found = -1;
    for (int32_t i = 0; i < inputs; ++i) {
      const workload::TensorSlot& slot = signature.inputs[size_t(i)];
      if (!slot.mutated || storage_at(record, i) != storage) continue;
      if (found >= 0) return -1;  // several are: all of the list may have gone there
      found = slot.index;
    }
    return found;
  }

  Groups of(int32_t storage) const {
    const auto found = groups_.find(storage);
    return found == groups_.end() ? Groups{} : found->second;
  }

  Groups reduced_by(const Record& record) {
    const workload::Call& call = workload_.calls[size_t(record.payload)];
    if (call.kind != CallKind::barrier) exchanges_ = true;
    if (call.kind == CallKind::all_to_all) sends_tokens_ = true;
    const bool counts =
        reduces(call.kind) || (call.kind == CallKind::all_gather && is_behind_autograd(record));
    const workload::Group& group = workload_.groups[size_t(call.group)];
    if (!counts) return {};
    const bool has_parts = sharing_sequences_.count(first_alike_[size_t(call.group)]) > 0;
    if (is_named_for_sharing(group, Words::all) && !has_parts) return {};
    return {first_alike_[size_t(call.group)]};
  }

  // The optimizer reads it: a gradient counts once, with what it has been reduced over.
  void note(int32_t storage) {
    if (is_gradient(storage)) noted_.try_emplace(storage, of(storage));
  }

  bool is_gradient(int32_t storage) const {
    return storage >= 0 &&
           workload_.storages[size_t(storage)].kind == workload::StorageKind::gradient;
  }

  // The gradients that the optimizer has put into a storage, by rising number.
  std::vector<int32_t> gradients_in(int32_t storage) const {
    const auto found = carried_.find(storage);
    std::vector<int32_t> gradients =
        found == carried_.end() ? std::vector<int32_t>{} : found->second;
    if (is_gradient(storage)) join(gradients, {storage});
    return gradients;
  }

  struct Made {
    Groups groups;
    std::vector<int32_t> gradients;
  };

  const workload::Workload& workload_;
  std::vector<int32_t> first_alike_;  // of each group, the first with the same ranks
  bool optimizer_reduces_;  // its own calls reduce gradients: those that it reads are not yet
  std::unordered_map<int32_t, Groups> groups_;
  std::unordered_map<int32_t, std::vector<int32_t>> carried_;
  std::map<int32_t, Groups> noted_;   // gradients that the optimizer has read
  std::map<int64_t, int64_t> bytes_;  // of gradients, by degree
  std::map<int64_t, Groups> of_degree_;
  std::set<int32_t> exchanging_;         // groups whose ranks send each other activations
  std::set<int32_t> sharing_sequences_;  // groups that moved what attention reads
  std::set<int32_t> of_parameters_;      // storages of copies of parameters
  std::unordered_map<int32_t, Groups> moved_;
  bool exchanges_ = false;
  bool sends_tokens_ = false;
};

}  // namespace

GradientFlow follow_gradients(const workload::Workload& workload, const workload::Step& step) {
  workload::Workload classified = workload;
  workload::classify_storages(classified);
  const auto begin = classified.records.begin();
  const bool optimizer_reduces =
      std::any_of(begin + step.begin, begin + step.end, [&](const Record& record) {
        return record.kind == RecordKind::call && record.phase == workload::Phase::optimizer &&
               reduces(classified.calls[size_t(record.payload)].kind);
      });
  Flow flow(classified, optimizer_reduces);
  for (int64_t i = step.begin; i < step.end; ++i) {
    const Record& record = classified.records[size_t(i)];
    if (record.kind == RecordKind::op || record.kind == RecordKind::call) flow.pass(record);
  }
  return flow.found();
}

int64_t context_degree(const workload::Workload& workload) {
  for (const workload::Group& group : workload.groups) {
    if (is_named_for_context(group)) return group.ranks.size();
  }
  return 1;
}

}  // namespace trnsim::project
