// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Which call meets which: the k-th call on a communicator is the k-th of each of its members.
//
// All calls of a rank on one communicator stand on one queue, so a task's k is its place in the
// table and known before the run. An instance is one call of one communicator; instances of a
// communicator are consecutive. Messages: the k-th send from a to b in a group with a tag meets b's
// k-th receive from a there; their communicator is the pair. In a folded System one rank may stand
// for both, so a member is named by its place in the communicator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fold/system.h"

namespace trnsim::simulate {

// Calls of one role that can only meet on one communicator: a group's, or a peer's by tag.
struct CallChain {
  int32_t example = 0;  // a call template of the chain
  int32_t queue = 0;
  std::vector<int32_t> tasks;  // the k-th call is tasks[k]
};

class CallTable {
 public:
  // Throws SimulateError when k-th calls differ in kind, algorithm or phases, or, of
  // all but an all-to-all, in bytes.
  explicit CallTable(const fold::System& system);

  int64_t instance_of(int32_t rank, int32_t task) const {
    const Role& role = role_of(rank);
    const int64_t chain = ranks_[size_t(rank)].first_chain + role.chain_of_task[size_t(task)];
    if (first_of_chain_[size_t(chain)] < 0) refuse(rank);
    return first_of_chain_[size_t(chain)] + role.sequence_of_task[size_t(task)];
  }
  int32_t communicator_of(int64_t instance) const { return communicators_[size_t(instance)]; }
  int64_t sequence_of(int64_t instance) const;
  // The task of a member (an index in members) for the instance, -1 when it never makes that call.
  int32_t task_of(int64_t instance, size_t member) const;
  // The same for all members, in order.
  void tasks_of(int64_t instance, std::vector<int32_t>& tasks) const;
  int64_t instance_count() const { return int64_t(communicators_.size()); }
  // Template of the first member (the first that makes the call).
  int32_t template_of(int64_t instance) const;
  const std::vector<int32_t>& phases_of(int64_t instance) const;

 private:
  struct Role {
    std::vector<CallChain> chains;
    std::vector<int32_t> chain_of_task, sequence_of_task;  // -1 unless a call
  };
  struct RankIndex {
    int64_t first_chain = 0;  // in first_of_chain_
    int32_t role = 0;
  };

  const Role& role_of(int32_t rank) const { return roles_[size_t(ranks_[size_t(rank)].role)]; }
  [[noreturn]] void refuse(int32_t rank) const;
  void index_role(const lower::Program& program, Role& role) const;
  void index_ranks();
  void index_instances();
  void check_matches(int32_t communicator) const;
  int32_t find_chain(int32_t communicator, size_t member) const;  // of the rank's role, or -1
  const CallChain* chain_of(int32_t communicator, size_t member) const;

  const fold::System& system_;
  std::vector<Role> roles_;
  std::vector<int64_t> first_instance_;  // by communicator
  std::vector<int32_t> communicators_;   // by instance
  std::vector<int64_t> first_member_;    // by communicator, in chain_of_member_
  std::vector<int32_t> chain_of_member_;
  std::vector<RankIndex> ranks_;
  std::vector<int64_t> first_of_chain_;  // instance of the chain's first call, -1 for no member
};

}  // namespace trnsim::simulate
