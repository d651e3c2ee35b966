// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What PyTorch asks of a device besides kernels: generators, pinned memory, resizing of storages.
// Generators and pinned memory are functions of a table that generator.cpp and pinned.cpp install.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <optional>

namespace trnsim::capture {

struct HookFunctions {
  const at::Generator& (*default_generator)(c10::DeviceIndex) = nullptr;
  at::Generator (*new_generator)(c10::DeviceIndex) = nullptr;
  // The CPU generator that stands for a trn generator in a random op that runs on the host (an
  // undefined argument = the device's default generator). Null table entry: PyTorch's CPU default.
  std::optional<at::Generator> (*host_generator)(const std::optional<at::Generator>&,
                                                 c10::DeviceIndex) = nullptr;
  bool (*is_pinned)(const void*) = nullptr;
  c10::Allocator* (*pinned_allocator)() = nullptr;
};
HookFunctions& hook_functions();

// Makes the storage hold `bytes`: a new block with the old values as far as both reach.
void resize_storage(c10::StorageImpl& storage, int64_t bytes);

}  // namespace trnsim::capture
