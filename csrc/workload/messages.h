// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Messages between two ranks, which unlike collectives have a sender and a receiver.
#pragma once

#include <utility>
#include <vector>

#include "workload/workload.h"

namespace trnsim::workload {

bool is_message(CallKind kind);

// Is the record the call of a message?
bool is_message(const Workload& workload, const Record& record);

// (group, rank) of everybody that the rank exchanges messages with in the step, each once.
std::vector<std::pair<int32_t, int64_t>> peers_in_step(const Workload& workload, const Step& step);

}  // namespace trnsim::workload
