// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
//
// Selection: eight values a round. k <= 8 is one round of max8 and find_index8; more, or a sort
// (k = N), takes ceil(k / 8) rounds over the row. A GPU sorts by radix, eight bits a pass.
#include <array>

#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

constexpr const char* kSource =
    "csrc/lower/README.md 'Sort and top-k'; nki.isa max8: aws-neuron-sdk@1db4d74e "
    "nki/api/nki/isa/__init__.py; nki-library@d2ad3a57 core/topk/rotational_topk_utils.py; "
    "GPU: CUB's onesweep";

constexpr int64_t kRound = 8, kInstructionOverhead = 144;  // cycles, of the library's cost model
constexpr int64_t kIndexBytes = 8;

struct Selection {
  int64_t row = 1, count = 1;  // `count` of a row's values are sought
};

Selection read(const Signature& signature, bool whole_row) {
  const TensorMeta& input = signature.inputs[0].meta;
  const int64_t axes = int64_t(input.sizes.size());
  int64_t dim = signature.int_or("dim", -1);
  if (dim < 0) dim += axes;
  const int64_t n =
      axes == 0 ? 1
                : std::max<int64_t>(1, input.sizes[size_t(std::clamp<int64_t>(dim, 0, axes - 1))]);
  return {n, whole_row ? n : std::max<int64_t>(1, signature.int_or("k", 1))};
}

CostFunction select(bool whole_row) {
  return [=](const Signature& signature, const Target& target) {
    Cost cost = make_cost(signature, target, "sort", Fusion::alone);
    if (!target.is_neuron() || signature.inputs.empty()) return cost;
    const int64_t elements = signature.inputs[0].meta.element_count();
    const auto [n, k] = read(signature, whole_row);
    const int64_t tiles = row_tiles(elements / n, target);
    const Instructions core(target, false);
    cost.elements = elements;
    cost.row_length = n;
    if (k <= kRound) {
      cost.vector_cycles = tiles * 2 * core.vector(n);
    } else {
      const int128 rounds = int128(tiles) * ceil_div(k, kRound);
      const int128 cycles = rounds * 2 * (n + kInstructionOverhead);
      check_count(signature, "cycles of one engine", cycles, kMostCycles);
      cost.vector_cycles = int64_t(cycles);
    }
    return cost;
  };
}

// Each pass reads and writes keys and indices. The stream of the input is the read of the
// histogram, those of the outputs are part of what the last pass writes.
Cost sort(const Signature& signature, const Target& target) {
  Cost cost = select(true)(signature, target);
  if (target.is_neuron() || signature.inputs.empty()) return cost;
  const TensorMeta& keys = signature.inputs[0].meta;
  Stream reads, writes;
  reads.bytes = workload::dtype_bytes(keys.dtype) * keys.element_count() *
                (workload::dtype_bytes(keys.dtype) + kIndexBytes);
  writes.bytes = reads.bytes;
  for (const Stream& stream : cost.streams) writes.bytes -= stream.is_write ? stream.bytes : 0;
  writes.is_write = true;
  reads.run_bytes = writes.run_bytes = run_bytes(keys);
  cost.streams.push_back(reads);
  if (writes.bytes > 0) cost.streams.push_back(writes);
  return cost;
}

constexpr std::array kSorts{"sort", "argsort", "msort"};
constexpr std::array kWholeRows{"median", "nanmedian", "kthvalue", "multinomial"};

}  // namespace

void register_sort(Registry& registry) {
  const auto add = [&](const std::string& op, CostFunction cost) {
    registry.add({"aten::" + op, "sort", kSource, std::move(cost)});
  };
  add("topk", select(false));
  for (const char* op : kSorts) add(op, sort);
  for (const char* op : kWholeRows) add(op, select(true));
}

}  // namespace trnsim::lower::rules

namespace trnsim::lower {

std::optional<Guess> guess_of_sort(const workload::Signature& signature, const Target& target) {
  const Rule* rule = registry().find(signature.op);
  if (!rule || rule->family != "sort" || signature.inputs.empty()) return std::nullopt;
  const auto is_one_of = [&](const auto& names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return rule->op == std::string("aten::") + name; });
  };
  const bool sorts = is_one_of(rules::kSorts);
  const auto [n, k] = rules::read(signature, sorts || is_one_of(rules::kWholeRows));
  const std::string name = signature.op + " over " + std::to_string(n);
  if (target.is_neuron()) {
    if (k <= rules::kRound) return std::nullopt;
    return Guess{name, "sorts in rounds of 8 over the row",
                 "quadratic in the row's length; what AWS's compiler does with long sorts is not "
                 "published"};
  }
  if (!sorts) {
    return Guess{name, "one pass over its bytes",
                 "a GPU's selection reads its input again for every digit of a key, or sorts it"};
  }
  const int64_t passes = workload::dtype_bytes(signature.inputs[0].meta.dtype);
  return Guess{name, "radix sort, " + std::to_string(passes) + " passes over keys and indices",
               "eight bits a pass, as CUB's onesweep does; its kernels' own speed is not modelled"};
}

}  // namespace trnsim::lower
