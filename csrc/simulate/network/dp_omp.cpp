// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#if defined(_OPENMP)
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_OMP
#else
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP  // a compiler without OpenMP: one thread
#endif
#define TRNSIM_BULK_TARGET bulk_omp
#include "simulate/network/dp_solver.h"

namespace trnsim::simulate {

std::unique_ptr<WholeSolver> make_omp_dp_solver() { return std::make_unique<bulk_omp::Dp>(); }

}  // namespace trnsim::simulate
