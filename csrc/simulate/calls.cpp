// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/calls.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "workload/messages.h"

namespace trnsim::simulate {
namespace {

using lower::CallTemplate;

std::string describe(const CallTemplate& call) {
  return std::string(workload::call_kind_name(call.kind)) + " of " + std::to_string(call.bytes) +
         " bytes";
}

// On the way back from uneven parts each member sends as much as it got: only what all send, which
// the phases have, is the same.
bool meets(const CallTemplate& a, const CallTemplate& b) {
  if (a.bytes != b.bytes && a.kind != workload::CallKind::all_to_all) return false;
  if (workload::is_message(a.kind)) return workload::is_message(b.kind);
  return a.kind == b.kind && a.algorithm == b.algorithm && a.phases == b.phases;
}

}  // namespace

CallTable::CallTable(const fold::System& system) : system_(system), roles_(system.roles.size()) {
  for (size_t role = 0; role < roles_.size(); ++role) {
    index_role(*system.roles[role], roles_[role]);
  }
  index_ranks();
  for (size_t index = 0; index < system.communicators.size(); ++index) {
    first_instance_.push_back(instance_count());
    first_member_.push_back(int64_t(chain_of_member_.size()));
    size_t calls = 0;
    for (size_t member = 0; member < system.communicators[index].members.size(); ++member) {
      chain_of_member_.push_back(find_chain(int32_t(index), member));
      const CallChain* chain = chain_of(int32_t(index), member);
      if (chain != nullptr) calls = std::max(calls, chain->tasks.size());
    }
    check_matches(int32_t(index));
    communicators_.insert(communicators_.end(), calls, int32_t(index));
  }
  index_instances();
}

void CallTable::index_ranks() {
  int64_t first_chain = 0;
  for (const fold::Rank& rank : system_.ranks) {
    ranks_.push_back({first_chain, rank.role});
    first_chain += int64_t(roles_[size_t(rank.role)].chains.size());
  }
}

void CallTable::index_instances() {
  for (int32_t rank = 0; rank < int32_t(ranks_.size()); ++rank) {
    for (const CallChain& chain : role_of(rank).chains) {
      const int32_t on = fold::communicator_of(system_, rank, chain.example);
      first_of_chain_.push_back(on < 0 ? -1 : first_instance_[size_t(on)]);
    }
  }
}

void CallTable::index_role(const lower::Program& program, Role& role) const {
  std::map<std::tuple<int32_t, int, int32_t, int32_t>, int32_t> chains;
  role.chain_of_task.assign(program.tasks.size(), -1);
  role.sequence_of_task.assign(program.tasks.size(), -1);
  for (size_t task = 0; task < program.tasks.size(); ++task) {
    const lower::Task& at = program.tasks[task];
    if (at.kind != lower::TaskKind::call) continue;
    const CallTemplate& call = program.calls[size_t(at.call)];
    const bool message = workload::is_message(call.kind);
    const auto key = message ? std::tuple(call.group, int(call.kind), call.peer, call.tag)
                             : std::tuple(call.group, -1, -1, 0);
    const auto [found, added] = chains.emplace(key, int32_t(role.chains.size()));
    if (added) role.chains.push_back({at.call, at.queue, {}});
    CallChain& chain = role.chains[size_t(found->second)];
    TRN_CHECK(chain.queue == at.queue, simulate,
              "calls on one communicator stand on two queues of role " + program.role,
              "put all calls of a group, or of a peer, on one queue");
    role.chain_of_task[task] = found->second;
    role.sequence_of_task[task] = int32_t(chain.tasks.size());
    chain.tasks.push_back(int32_t(task));
  }
}

int32_t CallTable::find_chain(int32_t communicator, size_t member) const {
  const int32_t rank = system_.communicators[size_t(communicator)].members[member];
  const std::vector<CallChain>& chains = role_of(rank).chains;
  for (size_t chain = 0; chain < chains.size(); ++chain) {
    const int32_t example = chains[chain].example;
    if (fold::communicator_of(system_, rank, example) != communicator) continue;
    const lower::Program& program = *system_.roles[size_t(ranks_[size_t(rank)].role)];
    const workload::CallKind kind = program.calls[size_t(example)].kind;
    const bool is_other_end =
        workload::is_message(kind) && (kind == workload::CallKind::send) != (member == 0);
    if (!is_other_end) return int32_t(chain);
  }
  return -1;
}

void CallTable::check_matches(int32_t communicator) const {
  const auto& on = system_.communicators[size_t(communicator)];
  const int32_t first = on.members[0];
  const int32_t first_role = system_.ranks[size_t(first)].role;
  const CallChain* mine = chain_of(communicator, 0);
  for (size_t i = 0; i < on.members.size(); ++i) {
    const int32_t member = on.members[i];
    const int32_t role = system_.ranks[size_t(member)].role;
    const CallChain* theirs = chain_of(communicator, i);
    if (mine == theirs || mine == nullptr || theirs == nullptr) continue;
    const size_t count = std::min(mine->tasks.size(), theirs->tasks.size());
    const auto template_at = [&](int32_t of_role, int32_t task) -> const CallTemplate& {
      const lower::Program& program = *system_.roles[size_t(of_role)];
      return program.calls[size_t(program.tasks[size_t(task)].call)];
    };
    for (size_t k = 0; k < count; ++k) {
      const CallTemplate& a = template_at(first_role, mine->tasks[k]);
      const CallTemplate& b = template_at(role, theirs->tasks[k]);
      TRN_CHECK(meets(a, b), simulate,
                "call " + std::to_string(k) + " on " + on.name + " does not match: rank " +
                    std::to_string(first) + " makes " + describe(a) + ", rank " +
                    std::to_string(member) + " makes " + describe(b),
                "make the same calls in the same order on every member");
    }
  }
}

void CallTable::refuse(int32_t rank) const {
  throw Error(ErrorKind::simulate,
              "rank " + std::to_string(rank) + " makes a call on a group that it is no member of",
              "leave the call out or make the group hold every rank that plays this role");
}

int64_t CallTable::sequence_of(int64_t instance) const {
  return instance - first_instance_[size_t(communicator_of(instance))];
}

const CallChain* CallTable::chain_of(int32_t communicator, size_t member) const {
  const int32_t chain = chain_of_member_[size_t(first_member_[size_t(communicator)]) + member];
  const int32_t rank = system_.communicators[size_t(communicator)].members[member];
  return chain < 0 ? nullptr : &role_of(rank).chains[size_t(chain)];
}

int32_t CallTable::task_of(int64_t instance, size_t member) const {
  const CallChain* chain = chain_of(communicator_of(instance), member);
  const size_t sequence = size_t(sequence_of(instance));
  return chain == nullptr || sequence >= chain->tasks.size() ? -1 : chain->tasks[sequence];
}

void CallTable::tasks_of(int64_t instance, std::vector<int32_t>& tasks) const {
  const size_t on = size_t(communicator_of(instance));
  const std::vector<int32_t>& members = system_.communicators[on].members;
  const int32_t* chains = chain_of_member_.data() + first_member_[on];
  tasks.clear();
  int32_t role = -1, chain = -1;
  for (size_t i = 0; i < members.size(); ++i) {
    const int32_t their_role = ranks_[size_t(members[i])].role;
    const bool same = their_role == role && chains[i] == chain;  // as the member before
    tasks.push_back(same ? tasks.back() : task_of(instance, i));
    role = their_role;
    chain = chains[i];
  }
}

int32_t CallTable::template_of(int64_t instance) const {
  const auto& members = system_.communicators[size_t(communicator_of(instance))].members;
  for (size_t member = 0; member < members.size(); ++member) {
    const int32_t task = task_of(instance, member);
    if (task < 0) continue;
    const int32_t role = system_.ranks[size_t(members[member])].role;
    return system_.roles[size_t(role)]->tasks[size_t(task)].call;
  }
  return -1;
}

const std::vector<int32_t>& CallTable::phases_of(int64_t instance) const {
  return system_.plan[size_t(communicator_of(instance))][size_t(template_of(instance))];
}

}  // namespace trnsim::simulate
