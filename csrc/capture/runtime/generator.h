// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The device's random numbers: 16 bytes of state, and the numbers that the CPU would give.
//
// The state is (seed, offset), two little-endian 64-bit integers in 16 bytes as CUDA's generator
// has it, since DTensor reads and writes those bytes. Random ops run on the CPU (on whatever values
// are known), so the numbers are those of PyTorch's CPU generator, a Mersenne twister: with equal
// seeds an op gives what it gives on the CPU. offset counts the twister's 32-bit outputs consumed
// since the seed. A half-used pair of normal numbers is dropped between ops, so the next op's
// numbers are a function of (seed, offset) alone; the CPU keeps it, so the two part after an odd
// number of normals in a tensor of under 16 elements. In phantom mode an op with an unknown result
// draws nothing and leaves the state alone.
//
// Cost: an op pays nothing, as the CPU generator is handed out. get_state walks a copy of the
// engine to where the CPU generator stands (about 1 ns an output drawn since the last get_state)
// and keeps a snapshot; set_state to a snapshot is O(1), to another offset it walks from the
// nearest one below, lazily, when the next op draws. Beyond kLongestWalk outputs it starts a fresh
// engine, seeded by (seed, offset): still a function of the 16 bytes, but another sequence.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>

#include "capture/runtime/device_type.h"

namespace trnsim::capture::runtime {

inline constexpr uint64_t kLongestWalk = uint64_t(1) << 30;  // about a second

class TrnGenerator final : public c10::GeneratorImpl {
 public:
  explicit TrnGenerator(c10::DeviceIndex device, uint64_t seed = c10::default_rng_seed_val);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;  // a random seed, set and returned
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type() { return capture::device_type(); }

  // The CPU generator that stands at this generator's place. What an op draws from it is drawn from
  // this one. Call it once per op, holding mutex_.
  const at::Generator& cpu_generator();

 private:
  TrnGenerator* clone_impl() const override;
  void catch_up() const;  // offset_ and engine_ to where cpu_ stands

  uint64_t seed_;
  mutable uint64_t offset_ = 0;   // of engine_ when is_live_, else where the next draw starts
  mutable at::mt19937 engine_;    // of cpu_ at offset_, when is_live_
  mutable bool is_live_ = false;  // cpu_ stands at offset_ or beyond
  at::Generator cpu_;
};

// Made on first use, one a device.
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator make_generator(c10::DeviceIndex device);

// The CPU generator to run a random op with: for the op's generator argument when it has one (a CPU
// generator is returned as it is), else for the default generator of `device`.
at::Generator cpu_generator_for(const std::optional<at::Generator>& generator,
                                c10::DeviceIndex device);

}  // namespace trnsim::capture::runtime
