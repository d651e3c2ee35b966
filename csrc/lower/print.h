// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What a Program says, for people: text of every task and op, and coverage by rule.
#pragma once

#include <string>
#include <vector>

#include "lower/program.h"

namespace trnsim::lower {

struct RuleShare {
  std::string rule;
  RuleClass rule_class = RuleClass::formula;
  int64_t op_count = 0;
  int64_t bound_ps = 0;  // sum over its ops
};
// Descending by time; the shares of all are taken of their sum.
std::vector<RuleShare> coverage(const Program& program);
const char* rule_class_name(RuleClass rule_class);
const char* task_kind_name(TaskKind kind);
const char* dep_kind_name(DepKind kind);
const char* pattern_name(Pattern pattern);

// One line a task: index, queue, kind, duration, op or call, dependences.
std::string print_task(const Program& program, size_t task);
std::string print_call(const CallTemplate& call);

}  // namespace trnsim::lower
