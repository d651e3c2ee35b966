// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Copies between host and device and on the device, and what the host reads. A read of a value that
// phantom mode does not know is answered by policy: a bool is False (aten/truth.h has exceptions),
// a number is 1. A copy to pinned memory that the host does not wait for is no read.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/resize.h>

#include <initializer_list>

#include "capture/aten/native/kernels.h"
#include "capture/aten/results.h"
#include "capture/aten/shape_cache.h"
#include "capture/aten/truth.h"
#include "capture/recorder.h"
#include "capture/runtime/block.h"
#include "capture/runtime/guard.h"

namespace trnsim::capture {
namespace {

workload::TensorSlot slot(const char* name, const at::Tensor& tensor, bool mutated) {
  workload::TensorSlot result;
  result.argument = name;
  result.mutated = mutated;
  result.meta = tensor_meta(tensor);
  return result;
}

// For lowering: the memory is kept until the copies to the host on that stream have ended.
void record_kept(const at::Tensor& tensor, int32_t stream) {
  if (!is_recording() || is_quiet()) return;
  workload::Signature signature;
  signature.op = "aten::record_stream";
  signature.inputs = {slot("self", tensor, false)};
  signature.scalars = {{"s", int64_t(stream)}};
  record_op(intern(signature), std::span(&tensor, 1), {}, {});
}

void record_copy(const at::Tensor& source, const at::Tensor& target) {
  if (!is_recording() || is_quiet()) return;
  workload::Signature signature;
  std::vector<at::Tensor> inputs, outputs;
  if (!is_trn(source)) {
    signature.op = "trnsim::copy_h2d";
  } else if (!is_trn(target)) {
    signature.op = "trnsim::copy_d2h";
    signature.inputs = {slot("src", source, false)};
    inputs = {source};
  } else {
    signature.op = "aten::copy_";
    signature.inputs = {slot("self", target, true), slot("src", source, false)};
    inputs = {target, source};
  }
  if (is_trn(target)) {
    signature.outputs = {slot("out0", target, true)};
    outputs = {target};
  }
  record_op(intern(signature), inputs, outputs, outputs);
  if (is_trn(target)) return;
  Block* const block = block_of(source);
  if (block == nullptr) return;
  block->copied_on = current_stream_index(c10::DeviceIndex(block->device));
  if (block->kept_for == block->copied_on) record_kept(source, block->kept_for);
}

// Can the target hold values after this copy?
bool writes_values(const at::Tensor& target, bool source_known) {
  Block* const block = block_of(target);
  if (block == nullptr || !source_known) return false;
  if (block->known) return true;
  return covers_storage(target) && can_be_known(block->bytes, target.scalar_type());
}

// Large pinned memory is not touched, so that activations of any size can be sent there: its pages,
// which nothing backs before they are written, read 0.
void fill_by_policy(const at::Tensor& target, const at::Tensor& source) {
  if (target.nbytes() > size_t(kKnownBytes) && target.is_pinned()) return;
  if (target.scalar_type() == at::kBool)
    target.fill_(taken_as_true(source));
  else
    target.fill_(1);
}

bool known(const at::Tensor& tensor) {
  const Block* const block = block_of(tensor);
  return block == nullptr || block->known;
}

void copy_to_device(const at::Tensor& source, const at::Tensor& target) {
  if (!writes_values(target, known(source))) {
    if (Block* const block = block_of(target)) forget_values(*block);
    return;
  }
  block_of(target)->known = true;
  host_alias(target).copy_(is_trn(source) ? host_alias(source) : source);
}

}  // namespace

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (is_trn(target)) {
    const bool reads = is_trn(source);
    TORCH_CHECK(reads || source.is_cpu(), "cannot copy from ", source.device(), " to ",
                target.device());
    copy_to_device(source, target);
    record_copy(source, target);
    return target;
  }
  TORCH_CHECK(target.is_cpu(), "cannot copy from ", source.device(), " to ", target.device());
  const bool is_known = known(source);
  if (is_known)
    target.copy_(host_alias(source));
  else
    fill_by_policy(target, source);
  record_copy(source, target);
  const bool waits = !(non_blocking && target.is_pinned());
  if (waits) record_host_read(std::span(&source, 1), !is_known);
  return target;
}

at::Tensor& copy_(at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK_NOT_IMPLEMENTED(!source.is_meta(), "Cannot copy out of meta tensor; no data!");
  if (target.is_same(source) || target.is_meta()) return target;
  if (source._is_zerotensor()) return target.zero_();
  copy_from(source, target, non_blocking);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (source.sizes() != target.sizes()) target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const bool is_known = known(self);
  record_host_read(std::span(&self, 1), !is_known);
  if (is_known) return host_alias(self).item();
  switch (self.scalar_type()) {
    case at::kBool:
      return taken_as_true(self);
    case at::kComplexFloat:
    case at::kComplexDouble:
    case at::kComplexHalf:
      return c10::complex<double>(1, 0);
    default:
      return at::isIntegralType(self.scalar_type(), false) ? at::Scalar(int64_t(1))
                                                           : at::Scalar(1.0);
  }
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", other.device(), "!");
  if (self.sizes() != other.sizes()) return false;
  const bool is_known = known(self) && known(other);
  const at::Tensor both[] = {self, other};
  record_host_read(both, !is_known);
  if (is_known) return at::equal(host_alias(self), host_alias(other));
  return block_of(self) == block_of(other) && self.strides() == other.strides() &&
         self.storage_offset() == other.storage_offset();
}

void linalg_check_errors(const at::Tensor& info, std::string_view api_name, bool is_matrix) {
  const bool is_known = known(info);
  record_host_read(std::span(&info, 1), !is_known);
  if (is_known) at::_linalg_check_errors(host_alias(info), api_name, is_matrix);
}

// Frees are recorded in the order in which the script makes them; what a copy to the host on that
// stream still reads is marked, and kept until the copy has ended.
void record_stream(at::Tensor& self, at::Stream stream) {
  Block* const block = block_of(self);
  if (block == nullptr || stream.id() == block->stream) return;
  block->kept_for = int32_t(stream.id());
  if (block->copied_on == block->kept_for) record_kept(self, block->kept_for);
}

}  // namespace trnsim::capture
