// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Time of HBM traffic on the DMA engines of one rank: a descriptor of d bytes takes
// max(fixed + d / peak, d / practice) on one of the engines, and the HBM share bounds the sum of
// bytes. Sums stay exact and are rounded up once.
#pragma once

#include "lower/cost.h"

namespace trnsim::lower {

class DmaLoad {
 public:
  void add(int64_t bytes, int64_t run_bytes, const Target& target);
  void merge(const DmaLoad& other);
  int64_t bytes() const { return bytes_; }
  int64_t duration_ps(const Target& target) const;

 private:
  int64_t bytes_ = 0;
  int128 fixed_ps_ = 0;        // of descriptors that are bound by their fixed cost
  int128 peak_bytes_ = 0;      // the bytes of those
  int128 practice_bytes_ = 0;  // bytes of descriptors bound by the engine
};

}  // namespace trnsim::lower
