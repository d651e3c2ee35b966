// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Machines with every tuning knob at 1, and Workloads written by hand.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lower/cost.h"
#include "lower/program.h"

namespace trnsim::lower::testing {

// 16 or 64 chips of Trainium2, and 8 H100.
machine::Machine trainium(int64_t planes);
machine::Machine hopper();

// A rank of one physical core.
inline Target one_core() { return make_target(trainium(1), 8); }
inline Target whole_chip() { return make_target(trainium(1), 1); }

// Builds one step. Storages are named; naming one again as an output makes its next version.
class Script {
 public:
  Script();
  Script& phase(workload::Phase phase);
  Script& stream(int32_t stream);                  // of what follows
  Script& region(const std::string& description);  // compiled, of what follows; "" = eager again
  // "aten::mm(self: bfloat16[4,8], mat2: bfloat16[8,2]) -> (out0: bfloat16[4,2])"
  Script& op(const std::string& text, const std::vector<std::string>& inputs,
             const std::vector<std::string>& outputs);
  Script& call(workload::CallKind kind, int32_t group, int64_t bytes, const std::string& storage);
  Script& wait();  // for the last call
  Script& host_read(const std::vector<std::string>& inputs);
  Script& marker(workload::MarkerKind kind);
  Script& free(const std::string& storage);  // dies before the next record
  int32_t group(const std::vector<int64_t>& ranks);

  workload::Workload workload;
  workload::Step step() const { return {0, int64_t(workload.records.size()), 1, true, false}; }
  Program lower(const machine::Machine& machine, int64_t chips, int64_t ranks_per_chip,
                const std::string& stack = "") const;

 private:
  int32_t storage(const std::string& name, int64_t bytes);
  workload::Record& add(workload::RecordKind kind);

  std::map<std::string, int32_t> storages_;
  std::map<int32_t, int32_t> versions_;
  std::unordered_map<std::string, int32_t> signatures_;
  workload::Phase phase_ = workload::Phase::forward;
  int32_t stream_ = 0, region_ = -1;
};

// Start and end of every task when calls take `alone_ps`: the literal meaning of a Program for one
// rank, to test what a Program says.
std::vector<std::array<int64_t, 2>> run_alone(const Program& program,
                                              const machine::Machine& machine);
int64_t makespan(const Program& program, const machine::Machine& machine);

inline Cost cost(const std::string& text, const Target& target) {
  return cost_of(workload::Signature::parse(text), target);
}

}  // namespace trnsim::lower::testing
