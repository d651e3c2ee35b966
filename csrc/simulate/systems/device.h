// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Memory of the device system that the includer has chosen (cpp.cpp, omp.cpp, tbb.cpp, cuda.cu),
// and what goes to it and comes back.
#pragma once

#include <thrust/copy.h>
#include <thrust/device_vector.h>

#include <vector>

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

namespace thrust = THRUST_NS_QUALIFIER;

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
inline constexpr bool kHostMemory = false;
#else
inline constexpr bool kHostMemory = true;
#endif

template <typename T>
using Device = thrust::device_vector<T>;

template <typename T>
T* raw(Device<T>& values) {
  return thrust::raw_pointer_cast(values.data());
}

// Thrust itself reads through the pointer of a vector without elements, and through that of no
// execution policy for a single one.
template <typename T>
void load(Device<T>& to, const std::vector<T>& from) {
  to.resize(from.size());
  if (!from.empty()) thrust::copy(from.begin(), from.end(), to.begin());
}

template <typename T>
T element(const Device<T>& values, int64_t index) {
  if constexpr (kHostMemory) return thrust::raw_pointer_cast(values.data())[index];
  return values[size_t(index)];
}

template <typename T>
void save(const Device<T>& from, std::vector<T>& to) {
  to.resize(from.size());
  if (!to.empty()) thrust::copy(from.begin(), from.end(), to.begin());
}

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
