// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Chakra: the measured step of a role as the nodes of a Chakra execution trace (MLCommons), which
// other simulators run: what is computed and sent, and what has to wait for what.
//
// A node is an op of the Program (fused ops are one, since their bytes are), a call or a wait of
// the host, in the order in which they are issued. Its data_deps are the nodes that made what it
// reads; its ctrl_deps the node before it on its stream, and calls and events that its stream was
// made to wait for. FLOPs are those that are executed, and bytes those that move between the HBM
// and the chip on this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "project/projection.h"

namespace trnsim::report {

enum class ChakraKind : uint8_t { comp, call, host_read };

struct ChakraNode {
  ChakraKind kind = ChakraKind::comp;
  std::string name;
  int64_t flops = 0, read_bytes = 0, write_bytes = 0;
  int64_t output_bytes = 0;  // of the tensors that it writes, on the chip or not
  std::string dtype;         // of its FLOPs
  int32_t call = -1;         // index in Workload::calls
  int32_t stream = 0, region = -1, module = 0;
  workload::Phase phase = workload::Phase::other;
  bool waits_for_all = false;  // host_read of no value: everything before it
  int64_t start_ps = 0, end_ps = 0;
  std::vector<int32_t> data_deps, ctrl_deps;  // earlier nodes, ascending
};

struct ChakraGraph {
  std::vector<ChakraNode> nodes;
  int64_t ops_of_cycles = 0;  // nodes whose cost is in cycles of Trainium's engines, beside bytes
};

// Of the captured rank of a role. Throws ReportError where collectives are simulated step by step.
ChakraGraph chakra_graph(const project::Run& run, size_t role);

}  // namespace trnsim::report
