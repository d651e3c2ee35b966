// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#define TRNSIM_BULK_TARGET bulk_cpp
#include "simulate/network/dp_solver.h"

namespace trnsim::simulate {

std::unique_ptr<WholeSolver> make_cpp_dp_solver() { return std::make_unique<bulk_cpp::Dp>(); }

}  // namespace trnsim::simulate
