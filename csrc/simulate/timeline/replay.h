// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Replaying a Segment on the lanes of one tile. g++ compiles it for AVX-512, AVX2 and any
// processor.
//
// Narrow, where the times that a piece reads and what it may add fit 32 bits: rows of 32-bit
// offsets in a scratch of a few cache lines each, eight or sixteen lanes a vector. A time below the
// base (of a row that only holds back) becomes the base: it holds back nothing either way. Wide,
// otherwise: on the rows of the view as they are.
//
// The hash needs the sum of the ends and the sum of their squares (mix.h), so both come from the
// offsets while these are in registers, and are moved to the base once a piece.
//
// The includer defines TRNSIM_BULK_TARGET (and TRNSIM_BULK_AVX2 or TRNSIM_BULK_AVX512, which the
// compiler's own macros do not say of a pragma), and includes the headers below before it asks for
// more instructions. No templates of the standard library in here: the rest of the program shares
// them.
#pragma once

#include <cstdint>

#include "simulate/timeline/bulk_view.h"
#include "simulate/timeline/lanes.h"
#include "simulate/timeline/mix.h"
#include "simulate/timeline/schedule.h"
#if defined(TRNSIM_BULK_AVX2) || defined(TRNSIM_BULK_AVX512)
#include <immintrin.h>
#endif

#define TRN_INLINE __attribute__((always_inline)) inline

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

#if defined(TRNSIM_BULK_AVX512)
inline constexpr int32_t kWords = 16;
#else
inline constexpr int32_t kWords = 8;
#endif
using Words = uint32_t __attribute__((vector_size(4 * kWords)));
using Longs = uint64_t __attribute__((vector_size(4 * kWords)));
inline constexpr uint32_t kOne = 1 << 16;  // the factor 1

// Products of the low halves of 64-bit elements.
TRN_INLINE void multiply(Longs& to, const Longs& a, const Longs& b) {
#if defined(TRNSIM_BULK_AVX512)
  to = Longs(_mm512_maskz_mul_epu32(0xff, __m512i(a), __m512i(b)));
#elif defined(TRNSIM_BULK_AVX2)
  to = Longs(_mm256_mul_epu32(__m256i(a), __m256i(b)));
#else
  for (int i = 0; i < kWords / 2; ++i) to[i] = uint64_t(uint32_t(a[i])) * uint32_t(b[i]);
#endif
}

TRN_INLINE void raise(Words& to, const Words& least) {
#if defined(TRNSIM_BULK_AVX512)
  to = Words(_mm512_maskz_max_epu32(0xffff, __m512i(to), __m512i(least)));
#elif defined(TRNSIM_BULK_AVX2)
  to = Words(_mm256_max_epu32(__m256i(to), __m256i(least)));
#else
  to = to < least ? least : to;
#endif
}

// Even elements of `even`, odd elements of `odd`.
TRN_INLINE void join(Words& to, const Longs& even, const Longs& odd) {
#if defined(TRNSIM_BULK_AVX512)
  to = Words(_mm512_mask_blend_epi32(0xaaaa, __m512i(even), __m512i(odd)));
#elif defined(TRNSIM_BULK_AVX2)
  to = Words(_mm256_blend_epi32(__m256i(even), __m256i(odd), 0xaa));
#else
  to = Words((even & 0xffffffff) | (odd & 0xffffffff00000000));
#endif
}

// Sums over the lanes of a task: of ends and of squares, of even and odd lanes.
struct LaneSums {
  Longs both{}, odd{}, even_squares{}, odd_squares{};

  TRN_INLINE void add(const Words& time) {
    const Longs pairs = Longs(time), high = pairs >> 32;
    Longs square;
    both += pairs;  // even + 2^32 * odd
    odd += high;
    multiply(square, pairs, pairs);
    even_squares += square;
    multiply(square, high, high);
    odd_squares += square;
#if defined(TRNSIM_BULK_AVX2)
    // One vector after the other: summed as a tree, eight of them do not fit the registers.
    asm("" : "+x"(both), "+x"(odd), "+x"(even_squares), "+x"(odd_squares));
#endif
  }
  // Their mix (mix.h), but for what the seed and the base add, in parts whose sum it is: with
  // AVX-512, which multiplies 64 bits, summing over the lanes waits for the end of the piece.
#if defined(TRNSIM_BULK_AVX512)
  using Mix = Longs;
#else
  using Mix = uint64_t;
#endif
  TRN_INLINE Mix mix(const HashWeights& weights, uint64_t twice_base) const {
    const Longs ends = both - (odd << 32) + odd, squares = even_squares + odd_squares;
#if defined(TRNSIM_BULK_AVX512)
    return weights.c * ((weights.a + twice_base) * ends + squares);
#else
    // The two sums of four, together.
    const Longs low = __builtin_shuffle(ends, squares, Longs{0, 4, 2, 6}),
                high = __builtin_shuffle(ends, squares, Longs{1, 5, 3, 7}), sums = low + high;
    return weights.c * ((weights.a + twice_base) * (sums[0] + sums[2]) + (sums[1] + sums[3]));
#endif
  }
};

TRN_INLINE uint64_t total(uint64_t mix) { return mix; }
TRN_INLINE uint64_t total(const Longs& mix) {
  uint64_t sum = 0;
  for (int i = 0; i < kWords / 2; ++i) sum += mix[i];
  return sum;
}

// A piece on V vectors of 32-bit offsets. Full: all lanes are valid. Scaled: factors other than 1.
template <int V, bool Full, bool Scaled>
class NarrowReplay {
 public:
  // small_ps: durations up to it are Small.
  NarrowReplay(Words* rows, const Segment& segment, uint32_t small_ps)
      : rows_(rows), terms_(segment.terms.data()), small_ps_(small_ps) {}

  // The hash of the ends of ops [begin, end); twice_base is twice what the offsets count from.
  uint64_t run(const Segment& segment, int32_t begin, int32_t end, uint64_t twice_base) const {
    const Op* ops = segment.ops.data();
    const QuickOp* quick_ops = segment.quick_ops.data();
    LaneSums::Mix hash{};
    for (int32_t i = begin; i < end; ++i) {
      const QuickOp& op = quick_ops[i];
      if (!op.is_quick) {
        hash += run_slowly(ops[i], twice_base);
      } else if (op.second != Rows::kNobody) {
        hash += run_quickly<false, true, 2>(op, twice_base);
      } else if (op.duration_ps > small_ps_) {
        hash += run_quickly<false, false, 2>(op, twice_base);
      } else if (op.waits == 0) {
        hash += run_quickly<true, false, 0>(op, twice_base);
      } else if (op.waits == 1) {
        hash += run_quickly<true, false, 1>(op, twice_base);
      } else {
        hash += run_quickly<true, false, 2>(op, twice_base);
      }
    }
    return total(hash);
  }

 private:
  TRN_INLINE Words* row(int32_t number) const { return rows_ + int64_t(number) * V; }

  TRN_INLINE void count(const Words& time, int v, LaneSums& sums) const {
    sums.add(Full ? time : time & row(Rows::kMask)[v]);
  }

  // (d * f + 32768) >> 16, of rows 0 and 1 of `factors` on even and on odd lanes. Small: d times
  // row 2, f - 2^16, fits 32 bits on every lane.
  template <bool Small>
  TRN_INLINE void add_duration(uint32_t duration_ps, const Words* factors, int v,
                               Words& time) const {
    if (!Scaled) {
      time += duration_ps;
    } else if (Small) {
      time += duration_ps + ((factors[2 * V + v] * duration_ps + 32768) >> 16);
    } else {
      const Longs duration = Longs{} + uint64_t(duration_ps);
      Longs even, odd;
      multiply(even, duration, Longs(factors[v]));
      multiply(odd, duration, Longs(factors[V + v]));
      Words scaled;
      join(scaled, (even + 32768) >> 16, (odd + 32768) << 16);
      time += scaled;
    }
  }

  // Second: to two rows.
  template <bool Small, bool Second, int Waits>
  TRN_INLINE LaneSums::Mix run_quickly(const QuickOp& op, uint64_t twice_base) const {
    LaneSums sums;
    Words* rows = rows_;
    // Addresses that the variants share must not be worked out, and spilled, before they part.
    asm("" : "+r"(rows));
    const Words *from = rows + int64_t(op.from) * V, *factors = rows + int64_t(op.factors) * V;
    const Words *first = rows + int64_t(op.others[0]) * V,
                *other = rows + int64_t(op.others[1]) * V;
    Words *to = rows + int64_t(op.to) * V, *second = rows + int64_t(op.second) * V;
    const uint32_t duration_ps = op.duration_ps;
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      Words time = from[v];
      if (Waits > 0) raise(time, first[v]);
      if (Waits > 1) raise(time, other[v]);
      add_duration<Small>(duration_ps, factors, v, time);
      to[v] = time;
      if (Second) second[v] = time;
      count(time, v, sums);
    }
    return sums.mix(op.weights, twice_base);
  }

  TRN_INLINE void wait(Words (&time)[V], const Term* terms, int32_t count) const {
    for (int32_t i = 0; i < count; ++i) {
      const Words* other = row(terms[i].row);
      for (int v = 0; v < V; ++v) raise(time[v], other[v] + uint32_t(terms[i].lag_ps));
    }
  }
  TRN_INLINE void keep(int32_t number, const Words (&time)[V]) const {
    if (number == Rows::kNobody) return;
    for (int v = 0; v < V; ++v) row(number)[v] = time[v];
  }

  __attribute__((noinline)) LaneSums::Mix run_slowly(const Op& op, uint64_t twice_base) const {
    Words time[V];
    for (int v = 0; v < V; ++v) time[v] = row(op.from)[v];
    const Term* terms = terms_ + op.terms_begin;
    if (op.starts) {
      wait(time, terms, op.start_terms);
      keep(op.start, time);
      keep(op.arrival, time);
      for (int v = 0; v < V; ++v)
        add_duration<false>(uint32_t(op.duration_ps), row(op.factors), v, time[v]);
      keep(op.base, time);
    }
    if (!op.ends) return LaneSums::Mix{};
    wait(time, terms + op.start_terms, op.bounds);
    keep(op.end, time);
    keep(op.free, time);
    LaneSums sums;
    for (int v = 0; v < V; ++v) count(time[v], v, sums);
    return sums.mix(hash_weights(op.seed), twice_base);
  }

  Words* rows_;
  const Term* terms_;
  uint32_t small_ps_;
};

// The rows of one tile in the view, and its pieces.
class TileReplay {
 public:
  TileReplay(const BulkView& view, int32_t tile, const Rows& rows, const Segment& segment)
      : view_(view), tile_(view.tiles[tile]), rows_(rows), segment_(segment) {}

  void run() {
    for (const Piece& piece : segment_.pieces) {
      if (!run_narrow(piece)) run_wide(piece);
    }
    for (const int32_t queue : segment_.consumed) {
      int64_t* release = row(rows_.release(queue));
      for (int32_t lane = 0; lane < kTileLanes; ++lane) release[lane] = kNone;
    }
    view_.hashes[tile_.lane_base] += hash_;
  }

 private:
  // A row of the view, [lane].
  int64_t* row(int32_t number) const {
    const auto at = [](int64_t* array, int64_t base, int32_t index) {
      return array + base + int64_t(index) * kTileLanes;
    };
    if (number < rows_.base(0)) return at(view_.free_ps, tile_.queue_base, number - rows_.free(0));
    if (number < rows_.release(0)) {
      return at(view_.base_ps, tile_.queue_base, number - rows_.base(0));
    }
    if (number < rows_.arrival(0)) {
      return at(view_.release_ps, tile_.call_base, number - rows_.release(0));
    }
    if (number < rows_.slot(0)) {
      return at(view_.arrival_ps, tile_.call_base, number - rows_.arrival(0));
    }
    return at(view_.times_ps, tile_.slot_base, number - rows_.slot(0));
  }

  // False where the piece may not fit 32 bits.
  bool run_narrow(const Piece& piece) {
    return tile_.lanes == kTileLanes ? choose_narrow<true>(piece) : choose_narrow<false>(piece);
  }

  template <bool Full>
  bool choose_narrow(const Piece& piece) {
    const int32_t lanes = Full ? kTileLanes : tile_.lanes;
    int64_t first = INT64_MAX, last = 0;
    for (const int32_t number : piece.anchors) {
      const int64_t* times = row(number);
      for (int32_t lane = 0; lane < lanes; ++lane) {
        first = times[lane] < first ? times[lane] : first;
        last = times[lane] > last ? times[lane] : last;
      }
    }
    for (const int32_t number : piece.others) {
      const int64_t* times = row(number);
      for (int32_t lane = 0; lane < lanes; ++lane) last = times[lane] > last ? times[lane] : last;
    }
    if (last - first + piece.span_ps > int64_t(UINT32_MAX)) return false;
    constexpr int kAll = kTileLanes / kWords;
    if (Full || lanes > kWords) {
      tile_.is_scaled ? run_narrow<kAll, Full, true>(piece, first)
                      : run_narrow<kAll, Full, false>(piece, first);
    } else {
      tile_.is_scaled ? run_narrow<1, false, true>(piece, first)
                      : run_narrow<1, false, false>(piece, first);
    }
    return true;
  }

  template <int V, bool Full, bool Scaled>
  void run_narrow(const Piece& piece, int64_t base) {
    constexpr int32_t kLanes = V * kWords;
    uint32_t* scratch = replay_scratch(int64_t(rows_.count()) * kLanes);
    Words* rows = reinterpret_cast<Words*>(scratch);
    const uint32_t small_ps = write_constants<V>(rows);
    for (const auto* numbers : {&piece.anchors, &piece.others}) {
      for (const int32_t number : *numbers) {
        const int64_t* from = row(number);
        uint32_t* to = scratch + int64_t(number) * kLanes;
        for (int32_t i = 0; i < kLanes; ++i) to[i] = from[i] < base ? 0 : uint32_t(from[i] - base);
      }
    }
    const NarrowReplay<V, Full, Scaled> replay(rows, segment_, small_ps);
    hash_ += replay.run(segment_, piece.begin, piece.end, 2 * uint64_t(base));
    const uint64_t ends = uint64_t(tile_.lanes) * uint64_t(base);
    hash_ += uint64_t(tile_.lanes) * piece.seeds +
             ends * (uint64_t(base) * piece.weights_c + piece.weights_ca);
    for (const int32_t number : piece.written) {
      const uint32_t* from = scratch + int64_t(number) * kLanes;
      int64_t* to = row(number);
      for (int32_t i = 0; i < kLanes; ++i) to[i] = base + int64_t(from[i]);
    }
  }

  // Returns the longest duration that is Small, 0 where a factor is below 1 or far above it.
  template <int V>
  uint32_t write_constants(Words* rows) const {
    const int32_t* factors = view_.factors + tile_.lane_base;
    Words most{};
    for (int v = 0; v < V; ++v) {
      uint32_t* lanes = reinterpret_cast<uint32_t*>(rows + Rows::kFactors * V + v);
      uint32_t* mask = reinterpret_cast<uint32_t*>(rows + Rows::kMask * V + v);
      for (int i = 0; i < kWords; ++i) {
        lanes[i] = uint32_t(factors[v * kWords + i]);
        mask[i] = v * kWords + i < tile_.lanes ? UINT32_MAX : 0;
      }
      const Words factor = rows[Rows::kFactors * V + v];
      const Words extra = factor - kOne;  // of a factor below 1: a large one
      rows[(Rows::kFactors + 1) * V + v] = Words(Longs(factor) >> 32);
      rows[(Rows::kFactors + 2) * V + v] = extra;
      rows[Rows::kOnes * V + v] = rows[(Rows::kOnes + 1) * V + v] = Words{} + kOne;
      rows[(Rows::kOnes + 2) * V + v] = Words{};
      raise(most, extra);
    }
    uint32_t extra = 0;
    for (int i = 0; i < kWords; ++i) extra = most[i] > extra ? most[i] : extra;
    return extra == 0 ? UINT32_MAX : (UINT32_MAX - 32768) / extra;
  }

  void run_wide(const Piece& piece) {
    for (int32_t index = piece.begin; index < piece.end; ++index) {
      const Op& op = segment_.ops[size_t(index)];
      int64_t time[kTileLanes];
      const int64_t* from = row(op.from);
      for (int32_t lane = 0; lane < tile_.lanes; ++lane) time[lane] = from[lane];
      if (op.starts) {
        wait(op.terms_begin, op.start_terms, time);
        keep(op.start, time);
        keep(op.arrival, time);
        add_duration(op, time);
        keep(op.base, time);
      }
      if (!op.ends) continue;
      wait(op.terms_begin + op.start_terms, op.bounds, time);
      keep(op.end, time);
      keep(op.free, time);
      uint64_t ends = 0, squares = 0;
      for (int32_t lane = 0; lane < tile_.lanes; ++lane) {
        ends += uint64_t(time[lane]);
        squares += uint64_t(time[lane]) * uint64_t(time[lane]);
      }
      hash_ += mix_ends(op.seed, uint64_t(tile_.lanes), ends, squares);
    }
  }

  void wait(int32_t first, int32_t count, int64_t* time) const {
    for (int32_t i = first; i < first + count; ++i) {
      const Term& term = segment_.terms[size_t(i)];
      const int64_t* other = row(term.row);
      for (int32_t lane = 0; lane < tile_.lanes; ++lane) {
        const int64_t least = other[lane] + term.lag_ps;
        time[lane] = time[lane] < least ? least : time[lane];
      }
    }
  }
  void keep(int32_t number, const int64_t* time) const {
    if (number == Rows::kNobody) return;
    int64_t* to = row(number);
    for (int32_t lane = 0; lane < tile_.lanes; ++lane) to[lane] = time[lane];
  }
  void add_duration(const Op& op, int64_t* time) const {
    const int32_t* factors = view_.factors + tile_.lane_base;
    for (int32_t lane = 0; lane < tile_.lanes; ++lane) {
      const int32_t factor = op.factors == Rows::kFactors ? factors[lane] : 1 << 16;
      time[lane] += scale_duration(op.duration_ps, factor);
    }
  }

  const BulkView& view_;
  const Tile& tile_;
  const Rows& rows_;
  const Segment& segment_;
  uint64_t hash_ = 0;
};

inline void replay_tile(const BulkView& view, int32_t tile, const Rows& rows,
                        const Segment& segment) {
  TileReplay(view, tile, rows, segment).run();
}

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
