// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Pooling and resampling: a reduction over the window of every output.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Pooling'; nki.isa tensor_reduce: aws-neuron-sdk@1db4d74e "
    "nki/api/nki/isa/__init__.py; the passes are ours";

// Elements of the window: the kernel, or what the sizes say where there is none (adaptive pooling).
int64_t window_of(const Signature& signature, int64_t inputs, int64_t outputs) {
  int64_t window = 1;
  const std::vector<int64_t> kernel = int_list(signature, "kernel_size");
  for (const int64_t size : kernel) window *= size;
  if (kernel.size() == 1) {
    window *= signature.op.find("2d") != std::string::npos ? kernel[0] : 1;
    window *= signature.op.find("3d") != std::string::npos ? kernel[0] * kernel[0] : 1;
  }
  if (kernel.empty()) window = std::max<int64_t>(1, inputs / std::max<int64_t>(1, outputs));
  return window;
}

// `passes` over each window, of the output forward and of the gradient backward.
CostFunction pool(int passes, bool backward) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "pooling", Fusion::alone);
    if (!target.is_neuron() || signature.inputs.empty() || signature.outputs.empty()) return cost;
    const int64_t in = signature.inputs[0].meta.element_count();
    const int64_t out = signature.outputs[0].meta.element_count();
    const int64_t small = backward ? in : out, large = backward ? out : in;
    const int64_t window = window_of(signature, large, small);
    const Instructions core(target, is_narrow(signature));
    const int64_t n = per_partition(small, target);
    check_count(signature, "cycles of one engine", int128(passes) * n * window, kMostCycles);
    cost.vector_cycles = passes * core.vector(n * window);
    return cost;
  };
}

}  // namespace

void register_pooling(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({"aten::" + op, "pooling", kSource, std::move(cost)});
  };
  // The maximum, and the search for its index.
  for (const char* op : {"max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d",
                         "adaptive_max_pool2d", "adaptive_max_pool3d"}) {
    add(op, pool(2, false));
  }
  for (const char* op :
       {"avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "avg_pool1d", "_adaptive_avg_pool3d",
        "adaptive_avg_pool2d", "upsample_nearest2d", "upsample_nearest1d"}) {
    add(op, pool(1, false));
  }
  for (const char* op : {"upsample_bilinear2d", "upsample_bicubic2d"}) add(op, pool(4, false));
  for (const char* op : {"max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
                         "adaptive_max_pool2d_backward"}) {
    add(op, pool(2, true));
  }
  for (const char* op :
       {"avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward",
        "_adaptive_avg_pool3d_backward", "upsample_nearest2d_backward"}) {
    add(op, pool(1, true));
  }
  add("upsample_bilinear2d_backward", pool(4, true));
}

}  // namespace trnsim::lower::rules
