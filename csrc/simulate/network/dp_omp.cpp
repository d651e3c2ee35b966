// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/systems/omp.h"

#include "simulate/network/dp_solver.h"

namespace trnsim::simulate {

std::unique_ptr<WholeSolver> make_omp_dp_solver() { return std::make_unique<bulk_omp::Dp>(); }

}  // namespace trnsim::simulate
