// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Solvers: they bring a network's rates to its allocation, the only one there is, so that all of
// them give the same numbers.
//
//   reference   the definition of network.h read aloud; normative
//   heap        links close in ascending order of level, from a heap; one core, whole networks
//   dp          every link that closes before its neighbours closes at once; Thrust, whole networks
//   repair      from the last solution, only what changed (repair.h); what a run uses
//
// How heap and dp close links: share_l = max(largest rate already frozen on l, ceil(rest_l / W_l)),
// rest = capacity less frozen load, W = weight of the flows that still rise. The max is what makes
// ties free of order. A share never falls when a flow frozen at or below it is taken out.
#pragma once

#include <memory>
#include <vector>

#include "simulate/network/network.h"
#include "simulate/timeline.h"

namespace trnsim::simulate {

class Solver {
 public:
  virtual ~Solver() = default;
  // Brings rates up to date, forgets the network's changes, and appends the active flows whose rate
  // is not what it was (of a flow that came: 0).
  virtual void solve(Network& network, std::vector<int32_t>& changed) = 0;
  // Solves that looked at the whole network.
  virtual int64_t whole_count() const = 0;
};

// Allocates from nothing each time.
class WholeSolver : public Solver {
 public:
  void solve(Network& network, std::vector<int32_t>& changed) final;
  int64_t whole_count() const final { return whole_count_; }
  // Rates in the order of network.active().
  virtual const std::vector<int64_t>& allocate(const Network& network) = 0;

 private:
  int64_t whole_count_ = 0;
};

std::unique_ptr<WholeSolver> make_reference_solver();          // O(links x flows x log rate)
std::unique_ptr<WholeSolver> make_heap_solver();               // O(uses + closings x log links)
std::unique_ptr<WholeSolver> make_dp_solver(Backend backend);  // O(uses x rounds), in parallel

// One a backend; the last needs a GPU.
std::unique_ptr<WholeSolver> make_cpp_dp_solver();
std::unique_ptr<WholeSolver> make_omp_dp_solver();
std::unique_ptr<WholeSolver> make_tbb_dp_solver();
std::unique_ptr<WholeSolver> make_cuda_dp_solver();

}  // namespace trnsim::simulate
