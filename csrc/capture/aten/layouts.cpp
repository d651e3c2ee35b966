// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/aten/layouts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "capture/runtime/device_type.h"

namespace trnsim::capture {
namespace {

using torch::CppFunction;

enum class Layout { sparse, nested, quantized };

[[noreturn]] void refuse(Layout layout, const std::string& op) {
  struct Words {
    const char *kind, *way_out;
  };
  const Words words = layout == Layout::sparse ? Words{"sparse", "use dense ones (to_dense())"}
                      : layout == Layout::nested
                          ? Words{"nested", "use layout=torch.jagged, or pad them to dense ones"}
                          : Words{"quantized", "dequantize() them, or use a float8 dtype"};
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, ": ", words.kind, " tensors are not supported on ",
                              device_type_name(), ": ", words.way_out);
  std::abort();
}

template <Layout kLayout>
void refuse_op(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  const c10::OperatorName& name = op.operator_name();
  refuse(kLayout, name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
}

}  // namespace

void refuse_quantized_op(const c10::OperatorHandle& op) {
  refuse_op<Layout::quantized>(op, {}, nullptr);
}

namespace {

// Of PrivateUse1 a fallback is enough, since nobody has kernels; torch's own for CUDA are replaced.
template <Layout kLayout>
void refuse_key(c10::DispatchKey of_trn, c10::DispatchKey of_cuda) {
  const auto key = serves_cuda() ? of_cuda : of_trn;
  const char* const name = serves_cuda() ? "aten" : "_";
  auto* const library = new torch::Library(torch::Library::IMPL, name, key, __FILE__, __LINE__);
  if (!serves_cuda()) {
    library->fallback(CppFunction::makeFromBoxedFunction<&refuse_op<kLayout>>());
    return;
  }
  for (const auto& each : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(each);
    const bool is_aten = each.name.rfind("aten::", 0) == 0 && op && op->hasSchema();
    if (!is_aten || !op->hasKernelForDispatchKey(key)) continue;
    const std::string suffix = each.overload_name.empty() ? "" : "." + each.overload_name;
    library->impl((each.name.substr(6) + suffix).c_str(),
                  CppFunction::makeFromBoxedFunction<&refuse_op<kLayout>>());
  }
}

}  // namespace

void refuse_layouts() {
  using Key = c10::DispatchKey;
  refuse_key<Layout::sparse>(Key::SparsePrivateUse1, Key::SparseCUDA);
  refuse_key<Layout::sparse>(Key::SparseCsrPrivateUse1, Key::SparseCsrCUDA);
  refuse_key<Layout::nested>(Key::NestedTensorPrivateUse1, Key::NestedTensorCUDA);
  refuse_key<Layout::quantized>(Key::QuantizedPrivateUse1, Key::QuantizedCUDA);
  // Of dense tensors; their Meta kernels say that the result is dense, too.
  auto* const dense =
      new torch::Library(torch::Library::IMPL, "aten", dispatch_key(), __FILE__, __LINE__);
  for (const char* const name :
       {"quantize_per_tensor", "quantize_per_tensor.tensor_qparams", "quantize_per_tensor.tensors",
        "quantize_per_channel", "quantize_per_tensor_dynamic"}) {
    dense->impl(name, CppFunction::makeFromBoxedFunction<&refuse_op<Layout::quantized>>());
  }
  // Of dense tensors, too; autograd asks a nested result for its size where nothing may be thrown.
  dense->impl("_nested_tensor_from_tensor_list",
              CppFunction::makeFromBoxedFunction<&refuse_op<Layout::nested>>());
}

void check_layout(const at::Tensor& result, const std::string& op) {
  if (result.is_nested()) refuse(Layout::nested, op);
  TORCH_CHECK_NOT_IMPLEMENTED(result.layout() != at::kMkldnn, op,
                              ": this layout is the CPU's, and not supported on ",
                              device_type_name(), ": use dense tensors");
  if (result.layout() != at::kStrided) refuse(Layout::sparse, op);
  if (result.is_quantized()) refuse(Layout::quantized, op);
}

}  // namespace trnsim::capture
