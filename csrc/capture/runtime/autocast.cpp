// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// torch.autocast("trn"): PyTorch's own lists of ops by policy, registered for this device.
//
// Ops of the lower-precision list run in autocast's dtype (bfloat16 unless the script says
// otherwise), those of the fp32 lists in float32, those of the promote list in the widest dtype of
// their arguments, and every other op as it is (the fallthrough). binary_cross_entropy is refused
// as on every other accelerator, since its backward needs the logits in float32.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace {

at::Tensor refuse_binary_cross_entropy(const at::Tensor&, const at::Tensor&,
                                       const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast."
      " Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which take the "
      "logits and are safe to autocast.");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  using namespace at;  // torch's list of changed signatures names its types bare
#define TRN_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TRN_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TRN_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TRN_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TRN_LOWER_PRECISION)
  AT_FORALL_FP32(TRN_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TRN_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TRN_PROMOTE)
#undef TRN_LOWER_PRECISION
#undef TRN_FP32
#undef TRN_FP32_SET_OPT_DTYPE
#undef TRN_PROMOTE
  m.impl("binary_cross_entropy", &refuse_binary_cross_entropy);
}
