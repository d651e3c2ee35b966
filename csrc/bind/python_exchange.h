// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Processes that talk through Python: a callable that takes this process's numbers and returns
// everybody's, one after the other.
#pragma once

#include <pybind11/functional.h>
#include <pybind11/numpy.h>

#include <functional>
#include <utility>
#include <vector>

#include "simulate/shard.h"

namespace trnsim::bind {

using AllGather = std::function<std::vector<int64_t>(const pybind11::array_t<int64_t>&)>;

class [[gnu::visibility("hidden")]] PythonExchange final : public simulate::Exchange {
 public:
  explicit PythonExchange(AllGather all_gather) : all_gather_(std::move(all_gather)) {}
  std::vector<int64_t> all_gather(const std::vector<int64_t>& mine) override {
    const pybind11::gil_scoped_acquire gil;
    return all_gather_(pybind11::array_t<int64_t>(pybind11::ssize_t(mine.size()), mine.data()));
  }

 private:
  AllGather all_gather_;
};

}  // namespace trnsim::bind
