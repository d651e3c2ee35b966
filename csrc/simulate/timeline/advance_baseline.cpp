// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#define TRNSIM_BULK_TARGET baseline
#include "simulate/timeline/bulk_functors.h"

namespace trnsim::simulate {

#if defined(__x86_64__)
namespace avx2 {
void advance(const BulkView& view, int32_t tile);
}
#endif

AdvanceTile advance_for_this_processor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return avx2::advance;
#endif
  return baseline::advance_tile;
}

}  // namespace trnsim::simulate
