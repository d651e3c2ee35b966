// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The same functor for processors with AVX2. The pragma stands behind the headers of others, so
// that no inline function that the rest of the program shares is compiled for it.
#if defined(__x86_64__)
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulate/timeline/bulk_view.h"
#include "simulate/timeline/mix.h"

#pragma GCC target("avx2")
#define TRNSIM_BULK_TARGET avx2
#include "simulate/timeline/bulk_functors.h"

namespace trnsim::simulate::avx2 {

void advance(const BulkView& view, int32_t tile) { advance_tile(view, tile); }

}  // namespace trnsim::simulate::avx2
#endif
