// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/timeline/bulk.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <cstdlib>

#include "base/error.h"
#include "simulate/timeline/bulk_view.h"

namespace trnsim::simulate {

#ifndef TRNSIM_WITH_CUDA
int cuda_device_count() { return 0; }

std::unique_ptr<Lanes> make_cuda_lanes(const fold::System&, bool) {
  throw Error(ErrorKind::simulate, "this build has no CUDA", "build with TRNSIM_CUDA=on");
}
#endif

#ifdef TRNSIM_WITH_TBB
bool has_tbb() { return true; }
#else
bool has_tbb() { return false; }

std::unique_ptr<Lanes> make_tbb_lanes(const fold::System&, bool) {
  throw Error(ErrorKind::simulate, "this build has no TBB", "install libtbb-dev and build again");
}
#endif

namespace {

// Measured with two threads: below, waking them at every round costs what they save. One thread
// does this many tasks in 10 ms.
constexpr int64_t kRanksForThreads = 16 * kTileLanes, kTasksForThreads = 16'000'000;

int32_t thread_count() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

Backend choose_on_cpu(int64_t ranks, int64_t tasks, std::string& why) {
  const int32_t threads = thread_count();
  const bool is_large = ranks >= kRanksForThreads && tasks >= kTasksForThreads;
  why += is_large ? std::to_string(threads) + (threads == 1 ? " thread" : " threads")
                  : "too small for threads";
  return is_large && threads > 1 ? Backend::omp : Backend::cpp;
}

std::string why_no_gpu() {
#ifdef TRNSIM_WITH_CUDA
  return "no CUDA device was found";
#else
  return "this build has no CUDA";
#endif
}

}  // namespace

Backend choose_backend(Backend asked, int64_t ranks, int64_t tasks, std::string& why) {
  if (asked == Backend::automatic) {
    const char* set = std::getenv("TRNSIM_DEVICE");
    const std::string device = set == nullptr || *set == 0 ? "cpu" : set;
    TRN_CHECK(device == "cpu" || device == "cuda", simulate, "TRNSIM_DEVICE is '" + device + "'",
              "set it to cuda or cpu, or leave it out");
    if (device == "cpu") return choose_on_cpu(ranks, tasks, why);
    asked = Backend::cuda;
  }
  if (asked != Backend::cuda || cuda_device_count() > 0) return asked;
  why += why_no_gpu() + ", ";
  return choose_on_cpu(ranks, tasks, why);
}

std::unique_ptr<Lanes> make_bulk_lanes(const fold::System& system, Backend backend,
                                       bool keep_times) {
  switch (backend) {
    case Backend::cpp:
      return make_cpp_lanes(system, keep_times);
    case Backend::omp:
      return make_omp_lanes(system, keep_times);
    case Backend::tbb:
      return make_tbb_lanes(system, keep_times);
    case Backend::cuda:
      return make_cuda_lanes(system, keep_times);
    case Backend::automatic:
      break;
  }
  TRN_ASSERT(false, "a backend is chosen before");
  return nullptr;
}

}  // namespace trnsim::simulate
