// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/gradient_flow.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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

// By its name: tensor or sequence parallelism, or the stages of a pipeline.
bool shares_data(const workload::Group& group) {
  static constexpr std::string_view kMesh = "mesh_";
  std::string_view name(group.name);
  if (name.substr(0, kMesh.size()) == kMesh) name.remove_prefix(kMesh.size());
  static constexpr std::string_view kNames[] = {"tp", "sp", "pp", "mp", "tensor", "model", "pipe"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
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
    const bool is_list = signature.op.find("::_foreach_") != std::string::npos;
    const bool carries = optimizer_reduces_ && record.phase == workload::Phase::optimizer;
    const Groups reduced = is_call ? reduced_by(record) : Groups{};
    std::vector<Made> made;
    for (int32_t i = inputs; i < record.uses_count; ++i) {
      Made& of_output = made.emplace_back();
      if (is_call || is_behind_autograd(record) || passes_on(signature.op)) {
        const int32_t element = is_list ? element_of(record, inputs, storage_at(record, i)) : -1;
        for (int32_t k = 0; k < inputs; ++k) {
          const workload::TensorSlot& slot = signature.inputs[size_t(k)];
          if (element >= 0 && slot.index >= 0 && slot.index != element) continue;
          if (slot.meta.element_count() <= 1) continue;
          join(of_output.groups, of(storage_at(record, k)));
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
  std::optional<int64_t> most() {
    if (noted_.empty()) {
      for (const auto& [storage, groups] : groups_) note(storage);
    }
    for (const auto& [storage, groups] : noted_) {
      int64_t degree = 1;
      for (const int32_t group : groups) degree *= workload_.groups[size_t(group)].ranks.size();
      bytes_[degree] += workload_.storages[size_t(storage)].bytes;
    }
    leave_out_experts();
    int64_t total = 0;
    for (const auto& [degree, bytes] : bytes_) total += bytes;
    for (const auto& [degree, bytes] : bytes_) {
      if (bytes * 2 <= total) continue;
      if (degree > 1 || exchanges_) return degree;
    }
    return std::nullopt;
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
    if (!counts || shares_data(workload_.groups[size_t(call.group)])) return {};
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
  bool exchanges_ = false;
  bool sends_tokens_ = false;
};

}  // namespace

std::optional<int64_t> gradient_degree(const workload::Workload& workload,
                                       const workload::Step& step) {
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
  return flow.most();
}

int64_t context_degree(const workload::Workload& workload) {
  for (const workload::Group& group : workload.groups) {
    if (group.name == "cp" || group.name == "mesh_cp") return group.ranks.size();
  }
  return 1;
}

}  // namespace trnsim::project
