// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#define TRNSIM_BULK_TARGET bulk_cuda
#include "simulate/network/dp_solver.h"

namespace trnsim::simulate {

std::unique_ptr<WholeSolver> make_cuda_dp_solver() { return std::make_unique<bulk_cuda::Dp>(); }

}  // namespace trnsim::simulate
