// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which kernel serves which op on the device.
//
// Every aten op gets an AtenKernel but: ops that PyTorch composes of others (their parts are
// recorded), unless kPinned names them because an accelerator has one kernel for them; and the ops
// of aten/native/kernels.h. Without pinning, CompositeExplicitAutogradNonFunctional wrappers would
// turn add.Tensor into empty_strided and add.out.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>

#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "capture/aten/kernel.h"
#include "capture/aten/layouts.h"
#include "capture/aten/native/kernels.h"
#include "capture/aten/register.h"
#include "capture/aten/results.h"
#include "capture/aten/truth.h"
#include "capture/recorder.h"
#include "capture/runtime/device_type.h"

namespace trnsim::capture {
namespace {

using torch::CppFunction;

// Composites that are one kernel on an accelerator. Every _foreach_ op is, too.
const std::unordered_set<std::string>& pinned() {
  static const std::unordered_set<std::string> names{
      "aten::convolution", "aten::convolution_backward", "aten::embedding",
      "aten::native_layer_norm", "aten::native_group_norm", "aten::native_dropout",
      "aten::native_dropout_backward", "aten::masked_fill.Scalar", "aten::masked_fill.Tensor",
      "aten::repeat", "aten::silu_backward", "aten::mish_backward", "aten::_fused_rms_norm",
      "aten::_fused_rms_norm_backward", "aten::native_channel_shuffle",
      "aten::_scaled_dot_product_fused_attention_overrideable",
      "aten::_scaled_dot_product_fused_attention_overrideable_backward",
      "aten::_grouped_mm", "aten::constant_pad_nd", "aten::_chunk_cat",
      "aten::split_with_sizes_copy.out"};
  return names;
}

// Bound by hand below, or left to PyTorch on purpose.
const std::unordered_set<std::string>& bound_by_hand() {
  static const std::unordered_set<std::string> names{
      "aten::empty.memory_format", "aten::empty_strided", "aten::_copy_from",
      "aten::_copy_from_and_resize", "aten::resize_", "aten::_lazy_clone",
      "aten::set_.source_Storage",
      "aten::set_.source_Storage_storage_offset", "aten::set_.source_Tensor", "aten::set_",
      "aten::view", "aten::as_strided", "aten::_reshape_alias", "aten::unfold",
      "aten::view_as_real", "aten::view_as_complex", "aten::is_set_to", "aten::equal",
      "aten::_local_scalar_dense", "aten::record_stream",
      "aten::_has_compatible_shallow_copy_type", "aten::_linalg_check_errors",
      "aten::as_strided_", "aten::_nested_view_from_buffer", "aten::_coalesced_",
      "aten::sparse_resize_", "aten::sparse_resize_and_clear_", "aten::copy_sparse_to_sparse_",
      "aten::_values", "aten::_indices", "aten::_nnz", "aten::_dimI", "aten::_dimV",
      "aten::quantize_per_tensor", "aten::quantize_per_tensor.tensor_qparams",
      "aten::quantize_per_tensor.tensors", "aten::quantize_per_channel",
      "aten::quantize_per_tensor_dynamic",
      "aten::new_empty_strided", "aten::_transformer_encoder_layer_fwd",
      "aten::_native_multi_head_attention", "aten::_nested_tensor_from_mask_left_aligned"};
  return names;
}

bool wants_kernel(const c10::OperatorHandle& op, const std::string& name) {
  if (bound_by_hand().count(name)) return false;
  if (pinned().count(name) || name.rfind("aten::_foreach_", 0) == 0) return true;
  return !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// What to register for an op that has no kernel of which the mode has need.
void advise(const c10::OperatorHandle& op) {
  const std::string name = full_name(op.operator_name());
  const bool on_cpu = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  const std::string values = "torch.library.register_kernel(\"" + name + "\", \"cpu\", function)";
  TORCH_CHECK_NOT_IMPLEMENTED(mode() == Mode::phantom || on_cpu, name,
                              " has no CPU kernel, which compute mode runs: register one with ",
                              values, ", or use phantom mode");
  TORCH_CHECK_NOT_IMPLEMENTED(mode() == Mode::compute || on_cpu, name,
                              " has neither a CPU nor a Meta kernel: register the shapes of its "
                              "results with torch.library.register_fake(\"",
                              name, "\", function), or its values with ", values);
}

// Ops of other libraries (torchvision, custom ops): a kernel is made at the first call.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static std::mutex mutex;
  static auto* const kernels = new std::unordered_map<std::string, std::unique_ptr<AtenKernel>>;
  AtenKernel* kernel = nullptr;
  // Their weights are packed in objects, whose bytes and products no record would show.
  if (op.operator_name().name.rfind("quantized::", 0) == 0) refuse_quantized_op(op);
  {
    const std::lock_guard lock(mutex);
    auto& slot = (*kernels)[full_name(op.operator_name())];
    if (!slot) slot = std::make_unique<AtenKernel>(op);
    kernel = slot.get();
  }
  try {
    (*kernel)(op, keys, stack);
  } catch (const c10::NotImplementedError&) {
    advise(op);
    throw;
  } catch (python_error& error) {
    if (is_python_not_implemented(error)) advise(op);
    throw;
  }
}

// Composites that CUDA has a kernel of its own for: here they stay composites, so that a script
// asks for the same ops on both device types. PrivateUse1, without kernels then, has theirs.
void composite(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
}

void serve_every_op(torch::Library& library) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasSchema()) continue;
    const std::string short_name = full_name(name).substr(6);
    if (wants_kernel(*op, full_name(name))) {
      library.impl(short_name.c_str(),
                   CppFunction::makeFromBoxedFunctor(std::make_unique<AtenKernel>(*op)));
    } else if (serves_cuda() && !bound_by_hand().count(full_name(name)) &&
               op->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) {
      library.impl(short_name.c_str(), CppFunction::makeFromBoxedFunction<&composite>());
    }
  }
}

// CUDA asks which of two libraries has a kernel for the loss; neither is there.
template <typename Lengths>
bool no_library_ctc_loss(const at::Tensor&, const at::Tensor&, Lengths, Lengths, int64_t) {
  return false;
}

void serve_cuda_by_hand(torch::Library& m) {
  m.impl("copy_", TORCH_FN(copy_));  // torch's own would copy by libcudart
  m.impl("_use_cudnn_ctc_loss", TORCH_FN(no_library_ctc_loss<c10::IntArrayRef>));
  m.impl("_use_cudnn_ctc_loss.Tensor", TORCH_FN(no_library_ctc_loss<const at::Tensor&>));
  m.impl("_use_miopen_ctc_loss", TORCH_FN(no_library_ctc_loss<c10::IntArrayRef>));
  m.impl("_use_miopen_ctc_loss.Tensor", TORCH_FN(no_library_ctc_loss<const at::Tensor&>));
}

void serve_by_hand(torch::Library& m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("_lazy_clone", TORCH_FN(lazy_clone));
  m.impl("set_.source_Storage", TORCH_FN(set_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset_));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor_));
  m.impl("set_", TORCH_FN(set_nothing_));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  m.impl("equal", TORCH_FN(equal));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  m.impl("_is_all_true", TORCH_FN(is_all_true));
  m.impl("_linalg_check_errors", TORCH_FN(linalg_check_errors));
  m.impl("_native_multi_head_attention", TORCH_FN(native_multi_head_attention));
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(transformer_encoder_layer));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(nested_tensor_from_mask_left_aligned));
}

}  // namespace

void register_kernels() {
  // For the life of the process: the dispatcher outlives static destructors.
  const auto library = [](const char* name) {
    return new torch::Library(torch::Library::IMPL, name, dispatch_key(), __FILE__, __LINE__);
  };
  auto* const aten = library("aten");
  serve_every_op(*aten);
  serve_by_hand(*aten);
  if (serves_cuda()) serve_cuda_by_hand(*aten);
  refuse_layouts();
  library("_")->fallback(CppFunction::makeFromBoxedFunction<&fallback>());
}

bool serve_op(const std::string& name, bool replace) {
  const size_t colons = name.find("::"), dot = name.find('.', colons);
  const auto op = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  TRN_CHECK(op.has_value(), capture, "no op '" + name + "'",
            "define it, with torch.library, before its cost");
  if (!replace && op->hasKernelForDispatchKey(dispatch_key())) return false;
  auto* const library = new torch::Library(torch::Library::IMPL, name.substr(0, colons),
                                           dispatch_key(), __FILE__, __LINE__);
  library->impl(name.substr(colons + 2).c_str(), CppFunction::makeFromBoxedFunction<&fallback>());
  return true;
}

// Our copies read tensors with these bits, so nothing needs to be resolved first; the fallbacks
// would clone, and a clone is a copy again, without end.
#define TRN_COPY_FALLTHROUGH(key)                                          \
  TORCH_LIBRARY_IMPL(aten, key, m) {                                       \
    m.impl("_copy_from", CppFunction::makeFallthrough());                  \
    m.impl("_copy_from_and_resize", CppFunction::makeFallthrough());       \
  }
TRN_COPY_FALLTHROUGH(Conjugate)
TRN_COPY_FALLTHROUGH(Negative)
TRN_COPY_FALLTHROUGH(ZeroTensor)

}  // namespace trnsim::capture
