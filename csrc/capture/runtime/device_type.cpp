// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/device_type.h"

#include <cstdlib>

namespace trnsim::capture {

bool serves_cuda() {
  static const bool chosen = [] {
    const char* const name = std::getenv("TRNSIM_SERVES");
    return name != nullptr && std::string(name) == "cuda";
  }();
  return chosen;
}

c10::DeviceType device_type() {
  return serves_cuda() ? c10::DeviceType::CUDA : c10::DeviceType::PrivateUse1;
}

c10::DispatchKey dispatch_key() {
  return serves_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::PrivateUse1;
}

std::string device_type_name() {
  return serves_cuda() ? "cuda" : c10::get_privateuse1_backend(/*lower_case=*/true);
}

}  // namespace trnsim::capture
