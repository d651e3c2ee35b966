// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/timeline/bulk.h"

namespace trnsim::simulate {

#ifndef TRNSIM_WITH_CUDA
int cuda_device_count() { return 0; }

std::unique_ptr<Lanes> make_cuda_lanes(const fold::System&, bool) {
  throw Error(ErrorKind::simulate, "this build has no CUDA", "build with TRNSIM_CUDA=on");
}
#endif

Backend available_backend(Backend asked, std::string& why) {
  if (asked != Backend::cuda || cuda_device_count() > 0) return asked;
#ifdef TRNSIM_WITH_CUDA
  why += "no CUDA device was found";
#else
  why += "this build has no CUDA";
#endif
  return Backend::cpp;
}

std::unique_ptr<Lanes> make_bulk_lanes(const fold::System& system, Backend backend,
                                       bool keep_times) {
  switch (backend) {
    case Backend::cpp:
      return make_cpp_lanes(system, keep_times);
    case Backend::omp:
      return make_omp_lanes(system, keep_times);
    case Backend::cuda:
      return make_cuda_lanes(system, keep_times);
  }
  return nullptr;
}

}  // namespace trnsim::simulate
