// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/aten/shape_cache.h"

#include <ATen/core/Tensor.h>

#include <bit>

#include "base/hash.h"
#include "capture/runtime/block.h"

namespace trnsim::capture {
namespace {

// First word of each argument in a key.
enum Tag : int64_t {
  kNone = 1,
  kTensor,
  kList,
  kInt,
  kBool,
  kDouble,
  kComplex,
  kString,
  kPlacement,
  kFloatAny
};

int64_t tensor_word(const at::Tensor& tensor) {
  const auto* const impl = tensor.unsafeGetTensorImpl();
  return kTensor | int64_t(tensor.scalar_type()) << 8 | int64_t(tensor.dim()) << 16 |
         int64_t(tensor.device().type()) << 32 | int64_t(tensor.is_conj()) << 48 |
         int64_t(tensor.is_neg()) << 49 | int64_t(impl->is_wrapped_number()) << 50 |
         int64_t(tensor.layout()) << 52;
}

void write_tensor(const at::Tensor& tensor, std::vector<int64_t>& key) {
  if (!tensor.defined()) {
    key.push_back(kNone);
    return;
  }
  key.push_back(tensor_word(tensor));
  if (tensor.layout() != c10::kStrided) return;
  key.push_back(tensor.storage_offset());
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  key.insert(key.end(), sizes.begin(), sizes.end());
  key.insert(key.end(), strides.begin(), strides.end());
}

void write_string(const std::string& text, std::vector<int64_t>& key) {
  key.push_back(kString);
  key.push_back(int64_t(text.size()));
  for (size_t i = 0; i < text.size(); i += 8) {
    int64_t word = 0;
    for (size_t j = i; j < std::min(i + 8, text.size()); ++j) {
      word = word << 8 | int64_t(uint8_t(text[j]));
    }
    key.push_back(word);
  }
}

bool write_value(const c10::IValue& value, bool value_only, std::vector<int64_t>& key);

bool write_list(const c10::IValue& value, bool value_only, std::vector<int64_t>& key) {
  key.push_back(kList);
  if (value.isIntList()) {
    const auto list = value.toIntVector();
    key.push_back(int64_t(list.size()));
    key.insert(key.end(), list.begin(), list.end());
    return true;
  }
  if (value.isDoubleList()) {
    const auto list = value.toDoubleVector();
    key.push_back(int64_t(list.size()));
    if (value_only) return true;
    for (const double item : list) key.push_back(std::bit_cast<int64_t>(item));
    return true;
  }
  if (value.isBoolList()) {
    const auto list = value.toBoolList();
    key.push_back(int64_t(list.size()));
    for (const bool item : list) key.push_back(item);
    return true;
  }
  const auto items = value.toListRef();
  key.push_back(int64_t(items.size()));
  for (const auto& item : items) {
    if (!write_value(item, value_only, key)) return false;
  }
  return true;
}

bool write_value(const c10::IValue& value, bool value_only, std::vector<int64_t>& key) {
  if (value.isTensor()) {
    write_tensor(value.toTensor(), key);
  } else if (value.isNone()) {
    key.push_back(kNone);
  } else if (value.isInt()) {
    key.push_back(kInt);
    key.push_back(value.toInt());
  } else if (value.isBool()) {
    key.push_back(kBool);
    key.push_back(value.toBool());
  } else if (value.isDouble()) {
    key.push_back(value_only ? kFloatAny : kDouble);
    if (!value_only) key.push_back(std::bit_cast<int64_t>(value.toDouble()));
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    key.push_back(kComplex);
    key.push_back(std::bit_cast<int64_t>(number.real()));
    key.push_back(std::bit_cast<int64_t>(number.imag()));
  } else if (value.isList()) {
    return write_list(value, value_only, key);
  } else if (value.isString()) {
    write_string(value.toStringRef(), key);
  } else if (value.isDevice() || value.isGenerator()) {
    key.push_back(kPlacement);
  } else {
    return false;  // a storage, a stream, an object
  }
  return true;
}

}  // namespace

TensorArguments tensor_arguments(const OpFacts& facts, const torch::jit::Stack& stack) {
  TensorArguments result;
  const size_t count = facts.arguments.size();
  const c10::IValue* const arguments = stack.data() + (stack.size() - count);
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = arguments[i];
    const bool mutated = facts.arguments[i].mutated;
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        result.push_back({&value.toTensor(), int16_t(i), -1, mutated});
      }
    } else if (value.isList() && !value.isIntList() && !value.isDoubleList() &&
               !value.isBoolList()) {
      const auto items = value.toListRef();
      for (size_t j = 0; j < items.size(); ++j) {
        if (items[j].isTensor() && items[j].toTensor().defined()) {
          result.push_back({&items[j].toTensor(), int16_t(i), int32_t(j), mutated});
        }
      }
    }
  }
  return result;
}

bool write_key(const OpFacts& facts, const torch::jit::Stack& stack, std::vector<int64_t>& key) {
  key.clear();
  const size_t count = facts.arguments.size();
  const c10::IValue* const arguments = stack.data() + (stack.size() - count);
  for (size_t i = 0; i < count; ++i) {
    if (!write_value(arguments[i], facts.arguments[i].value_only, key)) return false;
  }
  return true;
}

uint64_t hash_key(const std::vector<int64_t>& key) {
  uint64_t hash = key.size();
  for (const int64_t word : key) {
    hash = (hash ^ uint64_t(word)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

const CallPlan* ShapeCache::find(const std::vector<int64_t>& key, uint64_t hash) {
  const std::lock_guard lock(mutex_);
  const auto found = plans_.find(hash);
  if (found == plans_.end()) return nullptr;
  for (const CallPlan* plan = found->second.get(); plan; plan = plan->next.get()) {
    if (plan->key == key) return plan;
  }
  return nullptr;
}

const CallPlan* ShapeCache::add(std::unique_ptr<CallPlan> plan, uint64_t hash) {
  const std::lock_guard lock(mutex_);
  auto& slot = plans_[hash];
  plan->next = std::move(slot);
  slot = std::move(plan);
  return slot.get();
}

}  // namespace trnsim::capture
