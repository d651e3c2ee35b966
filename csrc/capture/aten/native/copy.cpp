// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Copies between host and device and on the device, and what the host reads. A read of a value that
// phantom mode does not know is answered by policy: a bool is False (aten/truth.h has exceptions),
// a number is 1.
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

namespace trnsim::capture {
namespace {

workload::TensorSlot slot(const char* name, const at::Tensor& tensor, bool mutated) {
  workload::TensorSlot result;
  result.argument = name;
  result.mutated = mutated;
  result.meta = tensor_meta(tensor);
  return result;
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
}

// Can the target hold values after this copy?
bool writes_values(const at::Tensor& target, bool source_known) {
  Block* const block = block_of(target);
  if (block == nullptr || !source_known) return false;
  if (block->known) return true;
  return covers_storage(target) && can_be_known(block->bytes, target.scalar_type());
}

void fill_by_policy(const at::Tensor& target, const at::Tensor& source) {
  if (target.scalar_type() == at::kBool) target.fill_(taken_as_true(source));
  else target.fill_(1);
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
  if (is_known) target.copy_(host_alias(source));
  else fill_by_policy(target, source);
  record_copy(source, target);
  const bool waits = !(non_blocking && target.is_pinned());
  if (waits || !is_known) record_host_read(std::span(&source, 1), !is_known);
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
    case at::kBool: return taken_as_true(self);
    case at::kComplexFloat:
    case at::kComplexDouble:
    case at::kComplexHalf: return c10::complex<double>(1, 0);
    default: return at::isIntegralType(self.scalar_type(), false) ? at::Scalar(int64_t(1))
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

// Frees are in the order in which the script makes them: nothing to keep for another stream.
void record_stream(at::Tensor&, at::Stream) {}

}  // namespace trnsim::capture
