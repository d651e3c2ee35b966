// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which of torch's device types our kernels serve: PrivateUse1, which scripts call "trn", or in the
// CUDA mode of `trnsim run` the real CUDA device type, in a process that has no GPU.
//
// The choice is made once, when this library is loaded: trnsim/capture/cuda/early.py sets
// TRNSIM_SERVES=cuda around a load that comes before `import torch`. What torch asks for during its
// own import (allocator, guard, hooks) registers itself right then; kernels do after that import,
// since torch's Python registers CUDA kernels too, and the last one wins.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>

#include <string>

namespace trnsim::capture {

bool serves_cuda();
c10::DeviceType device_type();
c10::DispatchKey dispatch_key();
std::string device_type_name();  // for messages: "cuda", or what PrivateUse1 is called

// Above torch's own registrations for CUDA, whose priority is 0.
inline constexpr uint8_t kRegistrationPriority = 100;

}  // namespace trnsim::capture
