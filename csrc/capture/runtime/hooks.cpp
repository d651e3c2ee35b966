// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/hooks.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "capture/runtime/allocator.h"
#include "capture/runtime/device_type.h"
#include "capture/runtime/guard.h"

namespace trnsim::capture {

HookFunctions& hook_functions() {
  static HookFunctions functions;
  return functions;
}

void resize_storage(c10::StorageImpl& storage, int64_t bytes) {
  Block* const old = block_of(storage);
  TRN_ASSERT(old != nullptr, "resize of a storage that is not on the device");
  if (old->bytes == bytes) return;
  c10::DataPtr data = allocate_block(bytes, old->device);
  auto* const block = static_cast<Block*>(data.get_context());
  block->known = block->known && old->known;
  if (block->known && old->host && bytes > 0 && old->bytes > 0) {
    std::memcpy(host_storage(*block).mutable_data(), old->host->data(),
                size_t(std::min(bytes, old->bytes)));
  }
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(size_t(bytes));
}

namespace {

// What both interfaces ask for.
template <typename Interface>
struct DeviceHooks : Interface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex old = current_device();
    if (device >= 0) set_current_device(device);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(hook_functions().default_generator, "no generator is installed");
    return hook_functions().default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(hook_functions().new_generator, "no generator is installed");
    return hook_functions().new_generator(device < 0 ? current_device() : device);
  }
  at::Device getDeviceFromPtr(void*) const override {
    return {device_type(), current_device()};
  }
  bool isPinnedPtr(const void* data) const override {
    return hook_functions().is_pinned && hook_functions().is_pinned(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    TORCH_CHECK_NOT_IMPLEMENTED(hook_functions().pinned_allocator,
                                "no pinned memory is installed");
    return hook_functions().pinned_allocator();
  }
};

struct TrnHooks final : DeviceHooks<at::PrivateUse1HooksInterface> {
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), int64_t(bytes));
  }
};

// A GPU without cuDNN, whose kernels composites would choose; of the other libraries, which are
// only named by settings, all.
struct CudaHooks final : DeviceHooks<at::CUDAHooksInterface> {
  bool hasCUDA() const override { return true; }
  bool hasMAGMA() const override { return true; }
  bool hasCuSOLVER() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex current_device() const override { return capture::current_device(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return trn_allocator(); }
  void deviceSynchronize(c10::DeviceIndex device) const override {
    stream_functions().synchronize_device(device);
  }
  std::string showConfig() const override { return "  - CUDA: simulated by trnsim\n"; }
};

// torch caches the CUDA hooks during its import, so this must have run before.
const bool registered = [] {
  if (serves_cuda()) {
    at::CUDAHooksRegistry()->Register(
        "CUDAHooks", [](at::CUDAHooksArgs) { return std::make_unique<CudaHooks>(); },
        c10::REGISTRY_PREFERRED);
  } else {
    at::RegisterPrivateUse1HooksInterface(new TrnHooks);
  }
  return true;
}();

}  // namespace
}  // namespace trnsim::capture
