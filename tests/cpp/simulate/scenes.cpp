// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "scenes.h"

#include <algorithm>
#include <random>

#include "fold/side_by_side.h"

namespace trnsim::scenes {

using lower::Dep;
using lower::DepKind;
using lower::QueueKind;
using lower::TaskKind;

ProgramBuilder::ProgramBuilder() { program.role = "test"; }

int32_t ProgramBuilder::queue(QueueKind kind, int32_t index) {
  program.queues.push_back({kind, index});
  return int32_t(program.queues.size()) - 1;
}

int32_t ProgramBuilder::group(const std::string& name) {
  program.groups.push_back({name, {}});
  return int32_t(program.groups.size()) - 1;
}

int32_t ProgramBuilder::task(int32_t queue, int64_t duration_ps, const std::vector<Dep>& deps) {
  lower::Task task;
  task.duration_ps = duration_ps;
  task.queue = queue;
  task.deps_begin = int32_t(program.deps.size());
  task.deps_count = int32_t(deps.size());
  program.deps.insert(program.deps.end(), deps.begin(), deps.end());
  program.tasks.push_back(task);
  return int32_t(program.tasks.size()) - 1;
}

int32_t ProgramBuilder::call_template(const lower::CallTemplate& call) {
  program.calls.push_back(call);
  return int32_t(program.calls.size()) - 1;
}

int32_t ProgramBuilder::call(int32_t queue, int32_t call_template, const std::vector<Dep>& deps) {
  const int32_t index = task(queue, 0, deps);
  program.tasks.back().kind = TaskKind::call;
  program.tasks.back().call = call_template;
  return index;
}

std::shared_ptr<const lower::Program> ProgramBuilder::build() const {
  return std::make_shared<const lower::Program>(program);
}

Dep after(int32_t task) { return {task, DepKind::end, 0}; }

lower::CallTemplate all_reduce(int32_t slot, int64_t bytes) {
  lower::CallTemplate call;
  call.group = slot;
  call.bytes = bytes;
  call.algorithm = "ring";
  return call;
}

void add_rank(fold::System& system, int32_t role) {
  fold::Rank& rank = system.ranks.emplace_back();
  rank.role = role;
  rank.chip = int32_t(system.ranks.size()) - 1;
  rank.communicator_of_slot.assign(system.roles[size_t(role)]->groups.size(), -1);
}

int32_t add_group(fold::System& system, int32_t slot, const std::vector<int32_t>& members,
                  const std::string& name) {
  const int32_t index = int32_t(system.communicators.size());
  system.communicators.push_back({slot, members, name});
  const int32_t role = system.ranks[size_t(members[0])].role;
  system.plan.emplace_back(system.roles[size_t(role)]->calls.size());
  for (const int32_t rank : members) {
    system.ranks[size_t(rank)].communicator_of_slot[size_t(slot)] = index;
  }
  return index;
}

int32_t add_variable(fold::System& system, int32_t communicator, int32_t call, int64_t latency_ps,
                     int64_t bytes, const std::vector<fold::LinkUse>& uses) {
  auto& phases = system.plan[size_t(communicator)][size_t(call)];
  fold::Variable variable;
  variable.communicator = communicator;
  variable.call = call;
  variable.phase = int32_t(phases.size());
  variable.latency_ps = latency_ps;
  variable.bytes = bytes;
  variable.uses = uses;
  phases.push_back(int32_t(system.variables.size()));
  system.variables.push_back(variable);
  return phases.back();
}

namespace {

class RandomSystem {
 public:
  explicit RandomSystem(uint64_t seed) : random_(seed) {}

  std::shared_ptr<const fold::System> make() {
    rank_count_ = int32_t(pick({1, 2, 3, 4, 6, 8, 12}));
    role_count_ = int32_t(below(3)) + 1;
    slot_count_ = int32_t(below(4));
    has_messages_ = rank_count_ > 1 && one_in(2);
    calm_ = one_in(2);
    make_calls();
    for (int32_t role = 0; role < role_count_; ++role) system_.roles.push_back(make_role());
    for (int32_t rank = 0; rank < rank_count_; ++rank) make_rank(rank);
    make_links();
    make_groups();
    if (has_messages_) make_messages();
    fold::mark_private(system_);
    return std::make_shared<const fold::System>(std::move(system_));
  }

 private:
  struct Called {
    int32_t slot;  // -1: one place on round the ring of all ranks (a send and a receive)
    int32_t call;  // template, the same in every role; the receive is the next one
  };

  uint64_t below(uint64_t count) { return random_() % count; }
  bool one_in(uint64_t count) { return below(count) == 0; }
  int64_t pick(const std::vector<int64_t>& values) { return values[below(values.size())]; }
  int64_t duration() {
    if (calm_) return pick({0, 0, 1000, 1000, 2000, 5000, 10000});
    return one_in(6) ? 0 : int64_t(below(30000));
  }

  void make_calls() {
    const int32_t templates = slot_count_ == 0 ? 0 : int32_t(below(5)) + 1;
    for (int32_t i = 0; i < templates; ++i) {
      lower::CallTemplate call = all_reduce(int32_t(below(uint64_t(slot_count_))), pick({0, 64}));
      call.phases.resize(below(3) + (one_in(4) ? 0 : 1));
      templates_.push_back(call);
    }
    message_call_ = int32_t(templates_.size());
    if (has_messages_) {
      lower::CallTemplate call = all_reduce(slot_count_, 32);
      call.kind = workload::CallKind::send;
      call.peer = 1 % rank_count_;
      call.phases.resize(1);
      templates_.push_back(call);
      call.kind = workload::CallKind::recv;
      call.peer = rank_count_ - 1;
      templates_.push_back(call);
    }
    const int32_t count = int32_t(below(12));
    for (int32_t i = 0; i < count; ++i) {
      if (has_messages_ && (templates == 0 || one_in(3))) {
        sequence_.push_back({-1, message_call_});
      } else if (templates > 0) {
        const int32_t call = int32_t(below(uint64_t(templates)));
        sequence_.push_back({templates_[size_t(call)].group, call});
      }
    }
  }

  std::vector<Dep> random_deps(const ProgramBuilder& builder) {
    std::vector<Dep> deps;
    const int64_t count = int64_t(builder.program.tasks.size());
    for (uint64_t i = below(3); i > 0 && count > 0; --i) {
      Dep dep = after(int32_t(count - 1 - int64_t(below(uint64_t(std::min<int64_t>(count, 8))))));
      if (one_in(4)) dep.kind = one_in(2) ? DepKind::start : DepKind::end_bound;
      if (dep.kind != DepKind::end || one_in(8)) dep.lag_ps = one_in(3) ? 0 : duration();
      deps.push_back(dep);
    }
    return deps;
  }

  std::shared_ptr<const lower::Program> make_role() {
    ProgramBuilder builder;
    const int32_t engines = int32_t(below(4)) + 1;
    for (int32_t i = 0; i < engines; ++i) builder.queue(QueueKind::tensor, i);
    const int32_t streams = 2;
    for (int32_t i = 0; i < streams; ++i) builder.queue(QueueKind::collective, i);
    const int32_t send = builder.queue(QueueKind::send, 0),
                  recv = builder.queue(QueueKind::recv, 0);
    for (int32_t i = 0; i <= slot_count_; ++i) builder.group("group " + std::to_string(i));
    for (const auto& call : templates_) builder.call_template(call);
    const auto compute = [&] {
      for (uint64_t i = below(6); i > 0; --i) {
        const int32_t task =
            builder.task(int32_t(below(uint64_t(engines))), duration(), random_deps(builder));
        if (one_in(4)) builder.program.tasks[size_t(task)].kind = TaskKind::load;
      }
    };
    for (const Called& called : sequence_) {
      compute();
      if (called.slot >= 0) {
        builder.call(engines + called.slot % streams, called.call, random_deps(builder));
      } else {
        // A receive may not wait for this rank's send of the same round, or nobody would start.
        const std::vector<Dep> deps = random_deps(builder);
        builder.call(send, called.call, deps);
        builder.call(recv, called.call + 1, deps);
      }
    }
    compute();
    return builder.build();
  }

  void make_rank(int32_t rank) {
    add_rank(system_, int32_t(below(uint64_t(role_count_))));
    fold::Rank& at = system_.ranks.back();
    at.chip = rank / 2;
    if (one_in(3)) at.factor = int32_t(pick({1 << 15, 3 << 15, 65537, 70000}));
    if (one_in(3)) at.start_ps = duration();
    if (one_in(4)) at.count = 1 + int64_t(below(5));
  }

  void make_links() {
    const int64_t links = 1 + int64_t(below(6));
    for (int64_t i = 0; i < links; ++i) {
      const int64_t gbps = calm_ ? pick({1, 2, 4}) : 1 + int64_t(below(100));
      system_.links.push_back({"link " + std::to_string(i), gbps * 1'000'000'000 * 1024});
    }
  }

  std::vector<fold::LinkUse> random_uses() {
    std::vector<fold::LinkUse> uses;
    for (int32_t link = 0; link < int32_t(system_.links.size()); ++link) {
      if (one_in(2)) uses.push_back({link, 1 + int64_t(below(fold::kWeightOne))});
    }
    if (uses.empty()) uses.push_back({int32_t(below(system_.links.size())), fold::kWeightOne});
    uses[below(uses.size())].weight = fold::kWeightOne;
    return uses;
  }

  void plan_variable(int32_t communicator, int32_t call) {
    const bool empty = one_in(5);
    add_variable(system_, communicator, call, one_in(3) ? 0 : duration(),
                 empty ? 0 : (calm_ ? pick({1, 8, 20}) : 1 + int64_t(below(200))),
                 empty ? std::vector<fold::LinkUse>{} : random_uses());
  }

  void make_groups() {
    for (int32_t slot = 0; slot < slot_count_; ++slot) {
      std::vector<int32_t> order(size_t(rank_count_), 0);
      for (int32_t i = 0; i < rank_count_; ++i) order[size_t(i)] = i;
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(i)]);
      for (int32_t begin = 0; begin < rank_count_;) {
        const int32_t size = 1 + int32_t(below(uint64_t(rank_count_ - begin)));
        const std::vector<int32_t> members(order.begin() + begin, order.begin() + begin + size);
        begin += size;
        const int32_t index = add_group(system_, slot, members, "group " + std::to_string(slot));
        for (size_t call = 0; call < templates_.size() && size > 1; ++call) {
          if (templates_[call].group != slot || int32_t(call) >= message_call_) continue;
          for (size_t i = 0; i < templates_[call].phases.size(); ++i) {
            plan_variable(index, int32_t(call));
          }
        }
      }
    }
  }

  void make_messages() {
    for (auto& rank : system_.ranks) rank.communicator_of_message.assign(templates_.size(), -1);
    for (int32_t rank = 0; rank < rank_count_; ++rank) {
      const int32_t next = (rank + 1) % rank_count_;
      const int32_t index = int32_t(system_.communicators.size());
      system_.communicators.push_back(
          {slot_count_, {rank, next}, "message " + std::to_string(rank)});
      system_.plan.emplace_back(templates_.size());
      system_.ranks[size_t(rank)].communicator_of_message[size_t(message_call_)] = index;
      system_.ranks[size_t(next)].communicator_of_message[size_t(message_call_) + 1] = index;
      plan_variable(index, message_call_);
    }
  }

  std::mt19937_64 random_;
  fold::System system_;
  int32_t rank_count_ = 1, role_count_ = 1, slot_count_ = 0, message_call_ = 0;
  bool has_messages_ = false, calm_ = false;
  std::vector<lower::CallTemplate> templates_;
  std::vector<Called> sequence_;
};

}  // namespace

std::shared_ptr<const fold::System> random_system(uint64_t seed) {
  return RandomSystem(seed).make();
}

std::shared_ptr<const fold::System> many_ranks(uint64_t seed, int32_t ranks) {
  std::mt19937_64 random(seed);
  ProgramBuilder builder;
  for (int32_t i = 0; i < 3; ++i) builder.queue(QueueKind::tensor, i);
  const int32_t stream = builder.queue(QueueKind::collective, 0);
  builder.group("near");
  builder.group("world");
  for (const int32_t slot : {0, 1}) builder.call_template(all_reduce(slot, 64));
  int32_t last = builder.task(0, 1000);
  for (int32_t i = 0; i < 30; ++i) {
    last = builder.task(int32_t(random() % 3), int64_t(random() % 5000), {after(last)});
    if (i % 5 == 4) last = builder.call(stream, i == 19 ? 1 : 0, {after(last)});
  }
  auto system = std::make_shared<fold::System>();
  system->roles = {builder.build()};
  std::vector<int32_t> world;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    add_rank(*system, 0);
    system->ranks.back().factor = 65536 + int32_t(random() % 3000);
    world.push_back(rank);
  }
  for (int32_t link = 0; link < 16; ++link) {
    system->links.push_back({"link", int64_t(1 + random() % 50) * 1'000'000'000 * 1024});
  }
  const auto plan = [&](int32_t communicator, int32_t call) {
    const int32_t link = int32_t(random() % 16);
    add_variable(*system, communicator, call, int64_t(random() % 2) * 700, int64_t(random() % 90),
                 {{link, fold::kWeightOne}});
  };
  plan(add_group(*system, 1, world, "world"), 1);
  for (int32_t begin = 0; begin < ranks;) {
    const int32_t size = std::min<int32_t>(ranks - begin, 1 + int32_t(random() % 16));
    const std::vector<int32_t> members(world.begin() + begin, world.begin() + begin + size);
    const int32_t index = add_group(*system, 0, members, "near");
    if (size > 1) plan(index, 0);
    begin += size;
  }
  fold::mark_private(*system);
  return system;
}

std::shared_ptr<const fold::System> deadlocked(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto system = std::make_shared<fold::System>();
  for (int32_t role = 0; role < 2; ++role) {
    ProgramBuilder builder;
    for (int32_t i = 0; i < 2; ++i) builder.queue(QueueKind::tensor, i);
    const int32_t stream = builder.queue(QueueKind::collective, 0);
    for (const char* name : {"a", "b"}) builder.group(name);
    for (const int32_t slot : {0, 1}) builder.call_template(all_reduce(slot, 0));
    int32_t last = builder.task(0, 10);
    for (uint64_t i = 2 + random() % 4; i > 0; --i) {
      last = builder.call(stream, int32_t(random() % 2), {after(last)});
      builder.task(int32_t(random() % 2), int64_t(random() % 100), {after(last)});
      if (random() % 2 == 0) last = builder.task(int32_t(random() % 2), 5);
    }
    system->roles.push_back(builder.build());
  }
  for (int32_t rank = 0; rank < 4; ++rank) add_rank(*system, rank % 2);
  add_group(*system, 0, {0, 1, 2, 3}, "a");
  add_group(*system, 1, {0, 1}, "b");
  add_group(*system, 1, {2, 3}, "b");
  return system;
}

std::shared_ptr<const fold::System> relabelled(const fold::System& system,
                                               const std::vector<int32_t>& order) {
  fold::System result = system;
  std::vector<int32_t> new_of_old(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    new_of_old[size_t(order[i])] = int32_t(i);
    result.ranks[i] = system.ranks[size_t(order[i])];
  }
  for (auto& communicator : result.communicators) {
    for (int32_t& member : communicator.members) member = new_of_old[size_t(member)];
  }
  std::reverse(result.links.begin(), result.links.end());
  const int32_t last_link = int32_t(result.links.size()) - 1;
  std::reverse(result.variables.begin(), result.variables.end());
  for (auto& variable : result.variables) {
    for (auto& use : variable.uses) use.link = last_link - use.link;
    std::reverse(variable.uses.begin(), variable.uses.end());
  }
  const int32_t last = int32_t(result.variables.size()) - 1;
  for (auto& calls : result.plan) {
    for (auto& phases : calls) {
      for (int32_t& index : phases) index = last - index;
    }
  }
  return std::make_shared<const fold::System>(std::move(result));
}

std::shared_ptr<const fold::System> with_random_changes(const fold::System& system, uint64_t seed) {
  std::mt19937_64 random(seed);
  fold::System result = system;
  for (fold::LinkInfo& link : result.links) {
    int64_t at_ps = -1;
    for (uint64_t i = random() % 4; i > 0; --i) {
      at_ps += 1 + int64_t(random() % 60000);
      link.changes.push_back(
          {at_ps, random() % 3 == 0 ? 0 : link.rate / 8 * int64_t(random() % 16)});
    }
    // Most links that died come back for good.
    if (random() % 8 > 0) link.changes.push_back({at_ps + 1000, link.rate});
  }
  fold::mark_private(result);
  return std::make_shared<const fold::System>(std::move(result));
}

std::shared_ptr<const fold::System> twice(const fold::System& system) {
  const auto one = std::make_shared<const fold::System>(system);
  return fold::place_side_by_side({one, one}).system;
}

std::shared_ptr<const fold::System> throttled(const fold::System& system, uint64_t seed) {
  std::mt19937_64 random(seed);
  fold::System result = system;
  for (auto& rank : result.ranks) {
    int64_t time_ps = -1;
    for (uint64_t i = random() % 4; i > 0; --i) {
      time_ps +=
          1 + int64_t(random() % 4) * 1000 + int64_t(random() % 2) * int64_t(random() % 9000);
      rank.changes.push_back({time_ps, int32_t(random() % 200000)});
    }
  }
  return std::make_shared<const fold::System>(std::move(result));
}

std::shared_ptr<const fold::System> with_interference(const fold::System& system, uint64_t seed) {
  std::mt19937_64 random(seed);
  fold::System result = system;
  for (int32_t& speed : result.speeds) {
    speed = random() % 4 == 0 ? 1 << (1 + random() % 15) : 1 + int32_t(random() % 65536);
  }
  // Engines that may be slowed differently, a host that never is.
  for (auto& role : result.roles) {
    lower::Program program = *role;
    for (lower::Queue& queue : program.queues) {
      if (queue.kind == QueueKind::tensor) queue.kind = QueueKind(random() % 6);
    }
    role = std::make_shared<const lower::Program>(std::move(program));
  }
  fold::mark_private(result);
  return std::make_shared<const fold::System>(std::move(result));
}

std::shared_ptr<const fold::System> grown(uint64_t seed, int doublings, int64_t stretch) {
  std::mt19937_64 random(seed);
  auto base = random_system(seed);
  for (int i = 0; i < doublings; ++i) base = twice(*base);
  fold::System result = *base;
  for (auto& role : result.roles) {
    lower::Program program = *role;
    for (auto& task : program.tasks) task.duration_ps *= stretch;
    for (auto& dep : program.deps) dep.lag_ps *= stretch;
    role = std::make_shared<const lower::Program>(std::move(program));
  }
  const bool jitters = random() % 4 != 0;
  const int32_t least = random() % 4 == 0 ? 40000 : 65536;
  for (auto& rank : result.ranks) {
    if (jitters) rank.factor = least + int32_t(random() % 6000);
    if (random() % 8 == 0) rank.start_ps += int64_t(random() % 20000) * stretch;
  }
  return std::make_shared<const fold::System>(std::move(result));
}

}  // namespace trnsim::scenes
