// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/group_names.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

namespace trnsim::project {
namespace {

constexpr std::string_view kSharing[] = {"tp", "sp", "pp", "mp", "tensor", "model", "pipe"};
constexpr std::string_view kContext[] = {"cp"};
constexpr std::string_view kExperts[] = {"ep"};
constexpr std::string_view kPartsOfData[] = {"replicate", "shard"};
constexpr std::string_view kData[] = {"dp", "ddp", "fsdp", "data", "replicate", "shard"};

// "mesh_dp_shard" -> {dp, shard}
std::set<std::string> words_of(const workload::Group& group) {
  std::set<std::string> words;
  std::string word;
  for (const char c : group.name + "_") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += char(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.insert(word);
      word.clear();
    }
  }
  words.erase("mesh");
  return words;
}

template <size_t count>
bool is_of(const std::string& word, const std::string_view (&of)[count]) {
  return std::find(std::begin(of), std::end(of), word) != std::end(of);
}

template <size_t count>
bool has_any(const std::set<std::string>& words, const std::string_view (&of)[count]) {
  return std::any_of(words.begin(), words.end(), [&](const auto& word) { return is_of(word, of); });
}

}  // namespace

bool is_named_for_sharing(const workload::Group& group, Words words) {
  const auto of = words_of(group);
  if (words == Words::any) return has_any(of, kSharing);
  return !of.empty() &&
         std::all_of(of.begin(), of.end(), [](const auto& word) { return is_of(word, kSharing); });
}

bool is_named_for_parts(const workload::Group& group) {
  return is_named_for_sharing(group, Words::any) || has_any(words_of(group), kContext);
}

bool is_named_for_context(const workload::Group& group) {
  const auto of = words_of(group);
  return of.size() == 1 && has_any(of, kContext);
}

bool is_named_for_data(const workload::Group& group, Words words) {
  const auto of = words_of(group);
  if (is_named_for_parts(group) || has_any(of, kExperts)) return false;
  if (words == Words::all) return of.count("dp") > 0 && !has_any(of, kPartsOfData);
  return has_any(of, kData);
}

}  // namespace trnsim::project
