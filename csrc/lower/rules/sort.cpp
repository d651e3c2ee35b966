// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Selection: eight values a round. k <= 8 is one round of max8 and find_index8; more, or a sort
// (k = N), takes ceil(k / 8) rounds over the row.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Sort and top-k'; nki.isa max8: aws-neuron-sdk@1db4d74e "
    "nki/api/nki/isa/__init__.py; nki-library@d2ad3a57 core/topk/rotational_topk_utils.py";

constexpr int64_t kRound = 8, kInstructionOverhead = 144;  // cycles, of the library's cost model

CostFunction select(bool whole_row) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "sort", Fusion::alone);
    if (!target.is_neuron() || signature.inputs.empty()) return cost;
    const TensorMeta& input = signature.inputs[0].meta;
    const int64_t count = int64_t(input.sizes.size());
    int64_t dim = signature.int_or("dim", -1);
    if (dim < 0) dim += count;
    const int64_t n =
        count == 0
            ? 1
            : std::max<int64_t>(1, input.sizes[size_t(std::clamp<int64_t>(dim, 0, count - 1))]);
    const int64_t k = whole_row ? n : std::max<int64_t>(1, signature.int_or("k", 1));
    const int64_t tiles = row_tiles(input.element_count() / n, target);
    const Instructions core(target, false);
    cost.elements = input.element_count();
    cost.row_length = n;
    if (k <= kRound) {
      cost.vector_cycles = tiles * 2 * core.vector(n);
    } else {
      cost.vector_cycles = tiles * ceil_div(k, kRound) * 2 * (n + kInstructionOverhead);
    }
    return cost;
  };
}

}  // namespace

void register_sort(Registry& registry) {
  const auto add = [&](const std::string& op, bool whole_row) {
    registry.add({"aten::" + op, "sort", kSource, select(whole_row)});
  };
  add("topk", false);
  for (const char* op : {"sort", "argsort", "median", "kthvalue", "msort", "multinomial"}) {
    add(op, true);
  }
}

}  // namespace trnsim::lower::rules
