// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
#include "lower/dma.h"

#include <algorithm>

namespace trnsim::lower {
namespace {

Rational ps_per_byte(Rational bandwidth_Bps) {
  return Rational::of(int128(kPsPerSecond) * bandwidth_Bps.denominator, bandwidth_Bps.numerator);
}

}  // namespace

void DmaLoad::add(int64_t bytes, int64_t run_bytes, const Target& target) {
  if (bytes <= 0) return;
  bytes_ += bytes;
  if (!target.is_neuron()) return;
  const machine::NeuronCore& core = target.core();
  const int64_t run = std::max<int64_t>(1, std::min(run_bytes, bytes));
  const Rational peak = ps_per_byte(core.dma_engine_peak_Bps);
  const Rational practice = ps_per_byte(core.dma_engine_Bps);
  const int64_t descriptors = ceil_div(bytes, run);
  // fixed + run * peak >= run * practice
  const int128 left = int128(core.dma_descriptor_ps) * peak.denominator * practice.denominator +
                      int128(run) * peak.numerator * practice.denominator;
  if (left >= int128(run) * practice.numerator * peak.denominator) {
    fixed_ps_ += int128(descriptors) * core.dma_descriptor_ps;
    peak_bytes_ += bytes;
  } else {
    practice_bytes_ += bytes;
  }
}

void DmaLoad::merge(const DmaLoad& other) {
  bytes_ += other.bytes_;
  fixed_ps_ += other.fixed_ps_;
  peak_bytes_ += other.peak_bytes_;
  practice_bytes_ += other.practice_bytes_;
}

int64_t DmaLoad::duration_ps(const Target& target) const {
  if (bytes_ == 0) return 0;
  const int64_t memory_ps = trnsim::duration_ps(bytes_, target.hbm_Bps);
  if (!target.is_neuron()) return memory_ps;
  const machine::NeuronCore& core = target.core();
  const Rational peak = ps_per_byte(core.dma_engine_peak_Bps);
  const Rational practice = ps_per_byte(core.dma_engine_Bps);
  const int128 top = fixed_ps_ * peak.denominator * practice.denominator +
                     peak_bytes_ * peak.numerator * practice.denominator +
                     practice_bytes_ * practice.numerator * peak.denominator;
  const int128 bottom =
      int128(peak.denominator) * practice.denominator * core.dma_engines * target.cores;
  return std::max(memory_ps, int64_t(ceil_div(top, bottom)));
}

}  // namespace trnsim::lower
