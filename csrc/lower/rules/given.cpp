// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A cost that the script gives for an op of its own (trnsim.cost): it stands in the signature, as
// scalars whose names begin with "cost_". What is not given is derived: bytes are those of the
// op's tensors, and the tensor engine's cycles those of its FLOPs at the array's peak.
#include "lower/rules/families.h"

namespace trnsim::lower::rules {
namespace {

std::string text_of(const Signature& signature, const std::string& name) {
  const workload::Scalar* scalar = signature.scalar(name);
  const std::string* text = scalar ? std::get_if<std::string>(&scalar->value) : nullptr;
  return text ? *text : "";
}

// Bytes of no tensor in particular, in long runs.
void replace_streams(Cost& cost, bool is_write, int64_t bytes) {
  std::erase_if(cost.streams, [&](const Stream& stream) { return stream.is_write == is_write; });
  if (bytes == 0) return;
  Stream stream;
  stream.is_write = is_write;
  stream.bytes = stream.run_bytes = bytes;
  cost.streams.push_back(stream);
}

int64_t cycles_of_flops(const Cost& cost, const Target& target) {
  const auto& peaks = target.chip.peaks.physical_flops;
  const auto peak = peaks.find(cost.dtype);
  TRN_CHECK(peak != peaks.end(), lower,
            "a cost in dtype '" + cost.dtype + "', of which the machine gives no rate",
            "name one that trnsim info lists, or give tensor_cycles");
  const Rational of_rank = peak->second * Rational::of(1, target.ranks_per_chip);
  const Rational cycles = target.core().tensor_clock_Hz / of_rank;
  return scale_up(int64_t(cost.executed_flops), cycles);
}

}  // namespace

bool has_given_cycles(const Signature& signature) {
  return signature.int_or("cost_tensor_cycles", 0) > 0 ||
         signature.int_or("cost_vector_cycles", 0) > 0 ||
         signature.int_or("cost_scalar_cycles", 0) > 0 ||
         signature.int_or("cost_gpsimd_cycles", 0) > 0;
}

bool has_given_cost(const Signature& signature) { return signature.int_or("cost_given", 0) != 0; }

Cost given_cost(const Signature& signature, const Target& target) {
  Cost cost = make_cost(signature, target, "given", Fusion::alone);
  for (const auto& [name, is_write] :
       {std::pair{"cost_read_bytes", false}, std::pair{"cost_write_bytes", true}}) {
    const int64_t bytes = signature.int_or(name, -1);
    if (bytes >= 0) replace_streams(cost, is_write, bytes);
  }
  cost.executed_flops = cost.model_flops = cost.model_flops_causal =
      signature.int_or("cost_flops", 0);
  if (cost.executed_flops > 0) cost.dtype = text_of(signature, "cost_dtype");
  const bool has_rate = target.is_neuron() || cost.executed_flops == 0 || cost.dtype == "float32" ||
                        cost.dtype == "float64" ||
                        target.chip.peaks.physical_flops.count(cost.dtype) > 0;
  TRN_CHECK(has_rate, lower,
            "a cost in dtype '" + cost.dtype + "', of which the machine gives no rate",
            "name one that trnsim info lists");
  if (!target.is_neuron()) {
    const bool says_more = cost.executed_flops > 0 || signature.scalar("cost_read_bytes") ||
                           signature.scalar("cost_write_bytes");
    TRN_CHECK(!has_given_cycles(signature) || says_more, lower,
              "the cost of '" + signature.op + "' is in cycles of Trainium's engines alone, and " +
                  "this machine has none",
              "give flops, or read_bytes and write_bytes, beside them");
    return cost;
  }
  cost.tensor_cycles = signature.int_or("cost_tensor_cycles", -1);
  if (cost.tensor_cycles < 0) {
    cost.tensor_cycles = cost.executed_flops > 0 ? cycles_of_flops(cost, target) : 0;
  }
  cost.vector_cycles = signature.int_or("cost_vector_cycles", 0);
  cost.scalar_cycles = signature.int_or("cost_scalar_cycles", 0);
  cost.gpsimd_cycles = signature.int_or("cost_gpsimd_cycles", 0);
  return cost;
}

}  // namespace trnsim::lower::rules
