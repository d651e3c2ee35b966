// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/systems/cpp.h"

#include "simulate/network/dp_solver.h"

namespace trnsim::simulate {

std::unique_ptr<WholeSolver> make_cpp_dp_solver() { return std::make_unique<bulk_cpp::Dp>(); }

}  // namespace trnsim::simulate
