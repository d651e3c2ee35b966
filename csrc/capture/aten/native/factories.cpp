// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <ATen/Context.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/MemoryFormat.h>

#include "capture/aten/native/kernels.h"
#include "capture/aten/results.h"
#include "capture/runtime/device_type.h"
#include "capture/runtime/guard.h"
#include "capture/runtime/hooks.h"

namespace trnsim::capture {
namespace {

c10::Device device_or_current(const std::optional<at::Device>& device) {
  const c10::DeviceIndex index =
      device && device->has_index() ? device->index() : current_device();
  TORCH_CHECK(index < device_count(), "invalid device ordinal: ", int(index), " of ",
              int(device_count()), " devices");
  return {device_type(), index};
}

void check_options(const std::optional<at::Layout>& layout, const std::optional<bool>& pinned) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::kStrided,
                              "only strided tensors are implemented on the device");
  TORCH_CHECK(!c10::pinned_memory_or_default(pinned), "Only dense CPU tensors can be pinned");
}

std::vector<int64_t> strides_of(c10::IntArrayRef size, at::MemoryFormat format) {
  switch (format) {
    case at::MemoryFormat::ChannelsLast: return c10::get_channels_last_strides_2d(size);
    case at::MemoryFormat::ChannelsLast3d: return c10::get_channels_last_strides_3d(size);
    default: {
      const auto strides = c10::contiguous_strides(size);
      return {strides.begin(), strides.end()};
    }
  }
}

// What torch.use_deterministic_algorithms asks of memory that nothing was written to.
bool fills_empty() {
  return at::globalContext().deterministicAlgorithms() &&
         at::globalContext().deterministicFillUninitializedMemory();
}

at::Tensor make_empty(c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<at::ScalarType> dtype, c10::Device device) {
  at::Tensor made = make_device_tensor(size, stride, c10::dtype_or_default(dtype), device);
  if (fills_empty()) at::native::fill_empty_deterministic_(made);
  return made;
}

}  // namespace

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  at::native::check_size_nonnegative(size);
  const auto format = memory_format.value_or(at::MemoryFormat::Contiguous);
  TORCH_CHECK(format != at::MemoryFormat::Preserve,
              "unsupported memory format of an empty tensor: Preserve");
  return make_empty(size, strides_of(size, format), dtype, device_or_current(device));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  at::native::check_size_nonnegative(size);
  return make_empty(size, stride, dtype, device_or_current(device));
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  const auto format = memory_format.value_or(at::MemoryFormat::Contiguous);
  TensorPlan plan;
  plan.sizes = size;
  plan.strides = strides_of(size, format == at::MemoryFormat::Preserve
                                      ? self.suggest_memory_format() : format);
  if (self.sizes() == size && !memory_format) return self;
  plan.bytes = int64_t(at::detail::computeStorageNbytes(size, plan.strides, self.itemsize()));
  const auto bytes_before = int64_t(self.storage().nbytes());
  resize_argument(self, plan);
  if (fills_empty()) at::native::fill_resize_deterministic_(self, bytes_before);
  return self;
}

at::Tensor lazy_clone(const at::Tensor& self) { return self.clone(); }

at::Tensor& set_storage_offset_(at::Tensor& self, at::Storage source, int64_t offset,
                                c10::IntArrayRef size, c10::IntArrayRef stride) {
  TORCH_CHECK(offset >= 0, "the storage offset is negative: ", offset);
  auto* const impl = self.unsafeGetTensorImpl();
  std::vector<int64_t> strides = stride.vec();
  if (stride.size() != size.size()) strides = strides_of(size, at::MemoryFormat::Contiguous);
  const auto needed = int64_t(
      at::detail::computeStorageNbytes(size, strides, self.itemsize(), size_t(offset)));
  if (c10::multiply_integers(size) > 0 && int64_t(source.nbytes()) < needed) {
    TORCH_CHECK(source.resizable(), "set_: the storage is too small and cannot be resized");
    resize_storage(*source.unsafeGetStorageImpl(), needed);
  }
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_and_strides(size, strides, offset);
  return self;
}

at::Tensor& set_storage_(at::Tensor& self, at::Storage source) {
  const auto count = int64_t(source.nbytes() / self.itemsize());
  return set_storage_offset_(self, std::move(source), 0, {count}, {1});
}

at::Tensor& set_tensor_(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_offset_(self, source.storage(), source.storage_offset(), source.sizes(),
                             source.strides());
}

at::Tensor& set_nothing_(at::Tensor& self) {
  const auto empty = make_device_tensor({0}, {1}, self.scalar_type(), self.device());
  return set_tensor_(self, empty);
}

// Lets Module.to() put device tensors into existing parameters, which keeps tied weights tied.
bool has_compatible_shallow_copy_type(const at::Tensor&, const at::Tensor&) { return true; }

}  // namespace trnsim::capture
