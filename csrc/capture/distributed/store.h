// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The key-value store of a job whose other ranks do not run.
//
// Under the uniform-rank reading all ranks do what this one does, so add(key, n) counts n for every
// rank at once: counters that wait for all ranks are full when this rank has arrived. A key that
// only another rank would set is an error at once instead of a wait that never ends.
#pragma once

#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unordered_map>
#include <vector>

namespace trnsim::capture::distributed {

class UniformStore : public c10d::Store {
 public:
  explicit UniformStore(int64_t world_size) : state_(std::make_shared<State>()) {
    state_->world_size = world_size;
  }

  c10::intrusive_ptr<c10d::Store> clone();
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  struct State {
    std::mutex mutex;
    std::unordered_map<std::string, std::vector<uint8_t>> values;
    int64_t world_size = 1;
  };
  explicit UniformStore(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace trnsim::capture::distributed
