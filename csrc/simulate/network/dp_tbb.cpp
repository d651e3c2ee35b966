// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#ifdef TRNSIM_WITH_TBB
#include "simulate/systems/tbb.h"

#include "simulate/network/dp_solver.h"

namespace trnsim::simulate {

std::unique_ptr<WholeSolver> make_tbb_dp_solver() { return std::make_unique<bulk_tbb::Dp>(); }

}  // namespace trnsim::simulate
#endif
