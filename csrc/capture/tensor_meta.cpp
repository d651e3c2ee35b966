// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A tensor's dtype and layout in the words of a Workload.
#include <ATen/core/Tensor.h>

#include "capture/recorder.h"

namespace trnsim::capture {

workload::DType dtype_of(c10::ScalarType type) {
  using workload::DType;
  switch (type) {
    case c10::ScalarType::Bool:
      return DType::bool_;
    case c10::ScalarType::Byte:
      return DType::uint8;
    case c10::ScalarType::Char:
      return DType::int8;
    case c10::ScalarType::Short:
      return DType::int16;
    case c10::ScalarType::Int:
      return DType::int32;
    case c10::ScalarType::Long:
      return DType::int64;
    case c10::ScalarType::Half:
      return DType::float16;
    case c10::ScalarType::BFloat16:
      return DType::bfloat16;
    case c10::ScalarType::Float:
      return DType::float32;
    case c10::ScalarType::Double:
      return DType::float64;
    case c10::ScalarType::ComplexHalf:
      return DType::complex32;
    case c10::ScalarType::ComplexFloat:
      return DType::complex64;
    case c10::ScalarType::ComplexDouble:
      return DType::complex128;
    case c10::ScalarType::Float8_e4m3fn:
      return DType::float8_e4m3fn;
    case c10::ScalarType::Float8_e5m2:
      return DType::float8_e5m2;
    case c10::ScalarType::UInt16:
      return DType::uint16;
    case c10::ScalarType::UInt32:
      return DType::uint32;
    case c10::ScalarType::UInt64:
      return DType::uint64;
    default:
      return DType::other;
  }
}

workload::TensorMeta tensor_meta(const at::Tensor& tensor) {
  workload::TensorMeta meta;
  meta.dtype = dtype_of(tensor.scalar_type());
  if (tensor.layout() != c10::kStrided) return meta;
  meta.offset = tensor.storage_offset();
  meta.sizes = tensor.sizes().vec();
  meta.strides = tensor.strides().vec();
  return meta;
}

}  // namespace trnsim::capture
