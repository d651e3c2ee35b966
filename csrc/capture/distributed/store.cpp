// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/distributed/store.h"

#include "base/error.h"

namespace trnsim::capture::distributed {

c10::intrusive_ptr<c10d::Store> UniformStore::clone() {
  return c10::intrusive_ptr<UniformStore>(
      c10::intrusive_ptr<UniformStore>::reclaim(new UniformStore(state_)));
}

void UniformStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  const std::lock_guard lock(state_->mutex);
  state_->values[key] = value;
}

std::vector<uint8_t> UniformStore::compareSet(const std::string& key,
                                              const std::vector<uint8_t>& expected,
                                              const std::vector<uint8_t>& desired) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->values.find(key);
  if (found == state_->values.end()) {
    if (!expected.empty()) return expected;
    return state_->values[key] = desired;
  }
  if (found->second == expected) found->second = desired;
  return found->second;
}

std::vector<uint8_t> UniformStore::get(const std::string& key) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->values.find(key);
  TRN_CHECK(found != state_->values.end(), capture,
            "the store key '" + key + "' was never set by the captured rank",
            "only one rank runs; what another rank writes to the store is not available");
  return found->second;
}

int64_t UniformStore::add(const std::string& key, int64_t value) {
  const std::lock_guard lock(state_->mutex);
  std::vector<uint8_t>& stored = state_->values[key];
  const std::string before(stored.begin(), stored.end());
  const int64_t sum =
      (before.empty() ? 0 : std::stoll(before)) + value * state_->world_size;
  const std::string text = std::to_string(sum);
  stored.assign(text.begin(), text.end());
  return sum;
}

bool UniformStore::deleteKey(const std::string& key) {
  const std::lock_guard lock(state_->mutex);
  return state_->values.erase(key) > 0;
}

bool UniformStore::check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(state_->mutex);
  for (const std::string& key : keys) {
    if (!state_->values.contains(key)) return false;
  }
  return true;
}

int64_t UniformStore::getNumKeys() {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int64_t>(state_->values.size());
}

void UniformStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) get(key);
}

void UniformStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

void UniformStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  const std::lock_guard lock(state_->mutex);
  std::vector<uint8_t>& stored = state_->values[key];
  stored.insert(stored.end(), value.begin(), value.end());
}

std::vector<std::vector<uint8_t>> UniformStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> values;
  for (const std::string& key : keys) values.push_back(get(key));
  return values;
}

void UniformStore::multiSet(const std::vector<std::string>& keys,
                            const std::vector<std::vector<uint8_t>>& values) {
  TRN_CHECK(keys.size() == values.size(), capture,
            "multi_set of " + std::to_string(keys.size()) + " keys and " +
                std::to_string(values.size()) + " values",
            "pass one value a key");
  for (size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

}  // namespace trnsim::capture::distributed
