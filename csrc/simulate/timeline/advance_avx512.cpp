// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The same functors for processors with AVX-512. The pragma stands behind the headers of others, so
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

#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")
#define TRNSIM_BULK_TARGET avx512
#define TRNSIM_BULK_AVX512
#include "simulate/timeline/bulk_functors.h"
#include "simulate/timeline/replay.h"

namespace trnsim::simulate::avx512 {

TileWork work() { return {advance_tile, replay_tile}; }

}  // namespace trnsim::simulate::avx512
#endif
