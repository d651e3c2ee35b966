// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/aten/facts.h"

#include <algorithm>
#include <unordered_set>

namespace trnsim::capture {
namespace {

using Names = std::unordered_set<std::string>;

const Names& value_arguments() {
  static const Names names{"alpha", "beta",  "value",        "scalar", "scalars",
                           "other", "lr",    "weight_decay", "weight", "fill_value"};
  return names;
}

const Names& overwriting_ops() {
  static const Names names{
      "aten::fill_.Scalar",     "aten::fill_.Tensor",   "aten::zero_",
      "aten::uniform_",         "aten::normal_",        "aten::random_",
      "aten::random_.from",     "aten::random_.to",     "aten::bernoulli_.float",
      "aten::bernoulli_.Tensor", "aten::exponential_",  "aten::geometric_",
      "aten::cauchy_",          "aten::log_normal_"};
  return names;
}

// Indices, lengths and sizes that the CUDA kernels of these ops take from the host too.
bool takes_host_tensors(const std::string& name) {
  static const char* const kPrefixes[] = {
      "aten::index.",   "aten::_index_put",    "aten::_unsafe_index", "aten::tensor_split",
      "aten::_ctc_loss", "aten::_pad_packed",  "aten::_pack_padded",  "aten::histogram",
      "aten::_histogramdd", "aten::_foreach",  "aten::_fused_",       "aten::_cudnn_rnn",
      "aten::segment_reduce", "aten::repeat_interleave", "aten::_embedding_bag", "aten::_amp_",
      "aten::lstm",     "aten::gru",           "aten::rnn"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](const char* prefix) { return name.rfind(prefix, 0) == 0; });
}

bool has_tag(const c10::OperatorHandle& op, at::Tag tag) {
  const auto& tags = op.getTags();
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

ArgumentFacts argument_facts(const c10::Argument& argument) {
  ArgumentFacts facts;
  facts.name = argument.name();
  facts.mutated = writes(argument);
  facts.is_out = facts.mutated && argument.is_out();
  facts.value_only = value_arguments().count(argument.name()) > 0;
  facts.placement = argument.name() == "device" || argument.name() == "layout" ||
                    argument.name() == "pin_memory" || argument.name() == "generator";
  return facts;
}

}  // namespace

OpFacts facts_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OpFacts facts;
  facts.name = schema.name();
  if (!schema.overload_name().empty()) facts.name += "." + schema.overload_name();
  for (const auto& argument : schema.arguments()) {
    facts.arguments.push_back(argument_facts(argument));
    facts.mutates |= facts.arguments.back().mutated;
  }
  bool returns_only_arguments = true;
  for (const auto& result : schema.returns()) {
    int alias = -1;
    if (result.alias_info() != nullptr && result.alias_info()->isWrite()) {
      for (size_t i = 0; i < schema.arguments().size(); ++i) {
        const auto* const info = schema.arguments()[i].alias_info();
        if (info && info->isWrite() && info->beforeSets() == result.alias_info()->beforeSets()) {
          alias = int(i);
        }
      }
    }
    if (result.name() == "info") facts.info_return = int(facts.alias_of_return.size());
    facts.alias_of_return.push_back(alias);
    returns_only_arguments &= alias >= 0;
  }
  const bool has_out = std::any_of(facts.arguments.begin(), facts.arguments.end(),
                                   [](const ArgumentFacts& a) { return a.is_out; });
  facts.in_place = facts.mutates && returns_only_arguments && !has_out &&
                   !has_tag(op, at::Tag::inplace_view);
  facts.pointwise = has_tag(op, at::Tag::pointwise);
  // Indexing's shape depends on values only through masks, and the kernel has replaced those; the
  // loss' depends on its lengths, which are numbers where they are no tensors.
  facts.dynamic_shape = (has_tag(op, at::Tag::dynamic_output_shape) &&
                         facts.name.rfind("aten::index.", 0) != 0 &&
                         facts.name != "aten::_ctc_loss") ||
                        facts.name == "torchvision::nms";  // not tagged
  facts.is_random = has_tag(op, at::Tag::nondeterministic_seeded);
  facts.overwrites = overwriting_ops().count(facts.name) > 0;
  facts.mixes_devices = takes_host_tensors(facts.name);
  return facts;
}

}  // namespace trnsim::capture
