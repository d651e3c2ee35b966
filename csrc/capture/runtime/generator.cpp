// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>

#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "capture/runtime/device_type.h"

namespace trnsim::capture::runtime {
namespace {

constexpr size_t kStateBytes = 16;
constexpr uint64_t kLongAgo = uint64_t(1) << 16;  // outputs; some 60 us
constexpr size_t kSnapshotLimit = 256;  // 2.5 KB each: one a checkpointed layer of a deep model

at::CPUGeneratorImpl* cpu_impl(const at::Generator& generator) {
  return generator.get<at::CPUGeneratorImpl>();
}

// left_ - 1 outputs remain in the engine's block of 624; the output after them makes the next
// block.
void skip(at::mt19937& engine, uint64_t count) {
  at::mt19937_data_pod data = engine.data();
  while (count > 0) {
    const auto rest = uint64_t(data.left_ - 1);
    if (count <= rest) {
      data.left_ -= int(count);
      data.next_ += uint32_t(count);
      engine.set_data(data);
      return;
    }
    count -= rest + 1;
    data.left_ = 1;
    engine.set_data(data);
    engine();
    data = engine.data();
  }
}

// Outputs from `from` to `to`, which was reached by drawing only. Cost: one block at a time.
uint64_t distance(at::mt19937 from, const at::mt19937_data_pod& to) {
  uint64_t count = 0;
  for (at::mt19937_data_pod data = from.data(); data.state_ != to.state_; data = from.data()) {
    count += uint64_t(data.left_ - 1) + 1;
    data.left_ = 1;
    from.set_data(data);
    from();
  }
  return count + to.next_ - from.data().next_;
}

uint64_t mix(uint64_t seed, uint64_t offset) {
  uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (offset + 1);  // splitmix64's finalizer
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Engines at places that somebody asked for, the least recently used dropped first.
class Snapshots {
 public:
  using Place = std::pair<uint64_t, uint64_t>;  // seed, offset

  void keep(Place place, const at::mt19937& engine) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = kept_.try_emplace(place, Kept{engine, {}});
    if (!is_new) order_.erase(at->second.position);
    at->second.position = order_.insert(order_.end(), place);
    if (kept_.size() <= kSnapshotLimit) return;
    kept_.erase(order_.front());
    order_.pop_front();
  }

  at::mt19937 engine_at(Place place) {
    const auto [seed, offset] = place;
    auto [start, engine] = nearest(place);
    if (offset - start > kLongestWalk) return at::mt19937(mix(seed, offset));
    skip(engine, offset - start);
    if (offset - start > kLongAgo) keep(place, engine);  // or the next draw walks it again
    return engine;
  }

 private:
  struct Kept {
    at::mt19937 engine;
    std::list<Place>::iterator position;
  };

  std::pair<uint64_t, at::mt19937> nearest(Place place) {
    const std::lock_guard lock(mutex_);
    auto above = kept_.upper_bound(place);
    if (above == kept_.begin() || std::prev(above)->first.first != place.first) {
      return {0, at::mt19937(place.first)};
    }
    --above;
    order_.splice(order_.end(), order_, above->second.position);
    return {above->first.second, above->second.engine};
  }

  std::mutex mutex_;
  std::map<Place, Kept> kept_;
  std::list<Place> order_;
};

Snapshots& snapshots() {
  static Snapshots* const kept = new Snapshots;
  return *kept;
}

}  // namespace

TrnGenerator::TrnGenerator(c10::DeviceIndex device, uint64_t seed)
    : c10::GeneratorImpl(c10::Device(device_type(), device), c10::DispatchKeySet(dispatch_key())),
      seed_(seed),
      cpu_(at::detail::createCPUGenerator(seed)) {}

void TrnGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  set_offset(0);
}

uint64_t TrnGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

void TrnGenerator::set_offset(uint64_t offset) {
  offset_ = offset;
  is_live_ = false;
}

uint64_t TrnGenerator::get_offset() const {
  catch_up();
  return offset_;
}

void TrnGenerator::catch_up() const {
  if (!is_live_) return;
  auto* cpu = cpu_impl(cpu_);
  const std::lock_guard lock(cpu->mutex_);
  const at::mt19937 now = cpu->engine();
  offset_ += distance(engine_, now.data());
  engine_ = now;
}

void TrnGenerator::set_state(const c10::TensorImpl& state) {
  TRN_CHECK(state.is_cpu() && state.is_contiguous() &&
                state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
                state.numel() == int64_t(kStateBytes),
            capture, "the state of a device's generator is a CPU tensor of 16 bytes (seed, offset)",
            "pass what get_rng_state() or Generator.get_state() of this device returned");
  uint64_t fields[2];
  std::memcpy(fields, state.data(), kStateBytes);
  seed_ = fields[0];
  set_offset(fields[1]);
}

c10::intrusive_ptr<c10::TensorImpl> TrnGenerator::get_state() const {
  catch_up();
  if (is_live_) snapshots().keep({seed_, offset_}, engine_);
  at::TensorBase state = at::detail::empty_cpu({int64_t(kStateBytes)}, at::kByte);
  const uint64_t fields[2] = {seed_, offset_};
  std::memcpy(state.mutable_data_ptr(), fields, kStateBytes);
  return state.getIntrusivePtr();
}

const at::Generator& TrnGenerator::cpu_generator() {
  auto* cpu = cpu_impl(cpu_);
  if (!is_live_) engine_ = snapshots().engine_at({seed_, offset_});
  const std::lock_guard lock(cpu->mutex_);
  if (!is_live_) cpu->set_engine(engine_);
  is_live_ = true;
  cpu->set_next_float_normal_sample(std::nullopt);
  cpu->set_next_double_normal_sample(std::nullopt);
  return cpu_;
}

TrnGenerator* TrnGenerator::clone_impl() const {
  catch_up();
  if (is_live_) snapshots().keep({seed_, offset_}, engine_);
  auto* copy = new TrnGenerator(device().index(), seed_);
  copy->set_offset(offset_);
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* const made = new std::deque<at::Generator>;  // references stay valid as it grows
  TRN_ASSERT(device >= 0, "a default generator needs a device index");
  const std::lock_guard lock(mutex);
  while (made->size() <= size_t(device)) {
    made->push_back(make_generator(c10::DeviceIndex(made->size())));
  }
  return (*made)[size_t(device)];
}

at::Generator make_generator(c10::DeviceIndex device) {
  return at::make_generator<TrnGenerator>(device);
}

at::Generator cpu_generator_for(const std::optional<at::Generator>& generator,
                                c10::DeviceIndex device) {
  const bool is_given = generator.has_value() && generator->defined();
  if (is_given && generator->device().is_cpu()) return *generator;
  at::Generator mine = is_given ? *generator : default_generator(device);
  TORCH_CHECK(mine.device().type() == device_type(), "trnsim: expected a generator of a ",
              device_type_name(), " device, got ", mine.device());
  const std::lock_guard lock(mine.mutex());
  return mine.get<TrnGenerator>()->cpu_generator();
}

}  // namespace trnsim::capture::runtime
