// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#define TRNSIM_BULK_TARGET baseline
#include "simulate/timeline/bulk_functors.h"
#include "simulate/timeline/replay.h"

#include <cstdlib>
#include <string_view>
#include <vector>

namespace trnsim::simulate {

#if defined(__x86_64__)
namespace avx2 {
TileWork work();
}
namespace avx512 {
TileWork work();
}
#endif

TileWork work_for_this_processor() {
#if defined(__x86_64__)
  const char* set = std::getenv("TRNSIM_CPU");
  const std::string_view asked = set == nullptr ? "" : set;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (has_avx512 && asked != "baseline" && asked != "avx2") return avx512::work();
  if (__builtin_cpu_supports("avx2") && asked != "baseline") return avx2::work();
#endif
  return {baseline::advance_tile, baseline::replay_tile};
}

uint32_t* replay_scratch(int64_t words) {
  struct alignas(64) Line {
    uint32_t words[16];
  };
  static thread_local std::vector<Line> memory;
  const size_t lines = size_t(words) / 16 + 1;
  if (memory.size() < lines) memory.resize(lines);
  return memory.data()->words;
}

}  // namespace trnsim::simulate
