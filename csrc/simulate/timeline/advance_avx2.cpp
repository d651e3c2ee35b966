// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The same functors for processors with AVX2. The pragma stands behind the headers of others, so
// that no inline function that the rest of the program shares is compiled for it.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "simulate/timeline/bulk_view.h"
#include "simulate/timeline/lanes.h"
#include "simulate/timeline/mix.h"
#include "simulate/timeline/schedule.h"

#pragma GCC target("avx2")
#define TRNSIM_BULK_TARGET avx2
#define TRNSIM_BULK_AVX2
#include "simulate/timeline/bulk_functors.h"
#include "simulate/timeline/replay.h"

namespace trnsim::simulate::avx2 {

TileWork work() { return {advance_tile, replay_tile}; }

}  // namespace trnsim::simulate::avx2
#endif
