// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "jobs.h"

#include <algorithm>
#include <map>
#include <random>

#include "simulate/scenes.h"

namespace trnsim::jobs {
namespace {

using lower::QueueKind;
using scenes::after;
using scenes::ProgramBuilder;

constexpr int64_t kGBps = 1'000'000'000 * int64_t(1024);
enum Slot : int32_t { kTensor, kData, kWorld, kAlone, kPipeline, kSlots };

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t count) { return int64_t(random_() % uint64_t(count)); }
  bool one_in(int64_t count) { return below(count) == 0; }
  int64_t pick(const std::vector<int64_t>& values) {
    return values[size_t(below(int64_t(values.size())))];
  }

 private:
  std::mt19937_64 random_;
};

class Maker {
 public:
  explicit Maker(const Shape& shape) : random_(shape.seed), job_{shape, nullptr} {
    job_.system = std::make_shared<fold::System>();
    calm_ = random_.one_in(2);
  }

  Job make() {
    make_templates();
    for (int32_t stage = 0; stage < shape().stages; ++stage) {
      system().roles.push_back(make_role(stage));
    }
    for (int32_t rank = 0; rank < shape().rank_count(); ++rank) {
      scenes::add_rank(system(), rank / shape().tensor % shape().stages);
      system().ranks.back().communicator_of_message.assign(templates_.size(), -1);
    }
    make_links();
    make_groups();
    for (const bool forward : {true, false}) make_messages(forward);
    fold::mark_private(system());
    return std::move(job_);
  }

 private:
  const Shape& shape() const { return job_.shape; }
  fold::System& system() { return *job_.system; }
  int64_t duration() {
    if (calm_) return random_.pick({0, 0, 1000, 1000, 2000, 5000});
    return random_.one_in(6) ? 0 : random_.below(30000);
  }

  // Collectives first, then send and receive of activations, of gradients.
  void make_templates() {
    for (const int32_t slot : {kTensor, kTensor, kData, kData, kWorld, kAlone}) {
      templates_.push_back(scenes::all_reduce(slot, random_.pick({0, 64})));
      templates_.back().phases.resize(size_t(1 + random_.below(2)));
    }
    for (int32_t i = 0; i < 4; ++i) {
      lower::CallTemplate call = scenes::all_reduce(kPipeline, 32);
      call.kind = i % 2 == 0 ? workload::CallKind::send : workload::CallKind::recv;
      call.peer = (i == 0 || i == 3) ? 1 : 0;  // the next stage or the one before
      call.tag = i / 2;
      call.phases.resize(1);
      templates_.push_back(call);
    }
  }
  static int32_t message_call(bool forward, bool is_send) {
    return 6 + (forward ? 0 : 2) + (is_send ? 0 : 1);
  }

  std::vector<lower::Dep> random_deps(const ProgramBuilder& builder) {
    std::vector<lower::Dep> deps;
    const auto count = int64_t(builder.program.tasks.size());
    for (int64_t i = random_.below(3); i > 0 && count > 0; --i) {
      deps.push_back(after(int32_t(count - 1 - random_.below(std::min<int64_t>(count, 6)))));
      if (random_.one_in(4)) deps.back().kind = lower::DepKind::end_bound;
      if (random_.one_in(4)) deps.back().lag_ps = duration();
    }
    return deps;
  }

  // All forward micro-batches, then all backward ones, then gradients.
  std::shared_ptr<const lower::Program> make_role(int32_t stage) {
    ProgramBuilder builder;
    std::vector<int32_t> engines, streams;
    for (int32_t i = 0; i < 2; ++i) engines.push_back(builder.queue(QueueKind::tensor, i));
    for (int32_t i = 0; i < 2; ++i) streams.push_back(builder.queue(QueueKind::collective, i));
    std::map<int32_t, int32_t> message_queues;
    for (int32_t call = 6; call < 10; ++call) {
      message_queues[call] =
          builder.queue(call % 2 == 0 ? QueueKind::send : QueueKind::recv, call / 2);
    }
    for (int32_t slot = 0; slot < kSlots; ++slot) builder.group("group " + std::to_string(slot));
    for (const auto& call : templates_) builder.call_template(call);
    const auto collective = [&](int32_t call) {
      const int32_t stream = templates_[size_t(call)].group == kTensor ? 0 : 1;
      builder.call(streams[size_t(stream)], call, random_deps(builder));
    };
    const auto message = [&](int32_t call) {
      builder.call(message_queues[call], call, random_deps(builder));
    };
    const auto compute = [&](bool with_call) {
      for (int64_t i = 1 + random_.below(3); i > 0; --i) {
        builder.task(engines[size_t(random_.below(2))], duration(), random_deps(builder));
      }
      if (with_call) collective(0);
    };
    const bool is_first = stage == 0, is_last = stage + 1 == shape().stages;
    for (const bool forward : {true, false}) {
      for (int32_t batch = 0; batch < shape().micro_batches; ++batch) {
        if (forward ? !is_first : !is_last) message(message_call(forward, false));
        compute(true);
        if (random_.one_in(3)) collective(1);
        if (forward ? !is_last : !is_first) message(message_call(forward, true));
      }
    }
    for (int32_t call = 2; call < 6; ++call) {
      if (call == kCallsOfWorld || has_call(call)) collective(call);
      compute(false);
    }
    return builder.build();
  }
  // Calls that all stages make, or none: drawn once.
  static constexpr int32_t kCallsOfWorld = 4;
  bool has_call(int32_t call) { return ((shape().seed >> call) & 1) == 0; }

  void make_links() {
    const auto add = [&](const std::string& name, int64_t count) {
      const int64_t gbps = calm_ ? random_.pick({1, 2, 4}) : 1 + random_.below(100);
      for (int64_t i = 0; i < count; ++i) {
        system().links.push_back({name + " " + std::to_string(i), gbps * kGBps});
      }
    };
    add("ring", shape().rank_count());
    add("nic up", shape().rank_count());
    add("nic down", shape().rank_count());
    add("shared", job_.pods());
    add("leaf up", job_.leaves());
    add("leaf down", job_.leaves());
  }

  // Sizes are drawn once for each call and stage, so that replicas are alike.
  struct Drawn {
    int64_t latency_ps, bytes;
    std::array<int64_t, 3> weights;
  };
  const Drawn& drawn(int32_t call, size_t phase, int32_t stage) {
    const auto [found, is_new] = drawn_.try_emplace({call, phase, stage});
    if (is_new) {
      found->second = {random_.one_in(3) ? 0 : duration(),
                       random_.one_in(5) ? 0 : 1 + random_.below(calm_ ? 20 : 200),
                       {fold::kWeightOne, 1 + random_.below(fold::kWeightOne),
                        random_.one_in(2) ? 0 : 1 + random_.below(fold::kWeightOne)}};
    }
    return found->second;
  }

  void add_uses(std::map<int32_t, int64_t>& uses, int32_t rank, int32_t call, const Drawn& of) {
    const int32_t slot = templates_[size_t(call)].group;
    if (slot == kTensor) {
      uses[job_.ring(rank)] += of.weights[0];
      uses[job_.shared(job_.pod(rank))] += of.weights[1];
      uses[job_.nic_up(rank)] += of.weights[2];
    } else {
      for (const bool up : {true, false}) {
        uses[up ? job_.nic_up(rank) : job_.nic_down(rank)] += of.weights[0];
        uses[up ? job_.leaf_up(rank) : job_.leaf_down(rank)] += of.weights[1];
      }
      uses[job_.shared(job_.pod(rank))] += of.weights[2];
    }
  }

  void plan(int32_t communicator, int32_t call, int32_t stage) {
    for (size_t phase = 0; phase < templates_[size_t(call)].phases.size(); ++phase) {
      const Drawn& of = drawn(call, phase, stage);
      std::map<int32_t, int64_t> weights;
      if (of.bytes > 0) {
        for (const int32_t rank : system().communicators[size_t(communicator)].members) {
          add_uses(weights, rank, call, of);
        }
      }
      std::vector<fold::LinkUse> uses;
      for (const auto& [link, weight] : weights) {
        if (weight > 0) uses.push_back({link, weight});
      }
      scenes::add_variable(system(), communicator, call, of.latency_ps, of.bytes, uses);
    }
  }

  void add_group(int32_t slot, const std::vector<int32_t>& members) {
    const int32_t index =
        scenes::add_group(system(), slot, members, "group " + std::to_string(slot));
    const int32_t stage = slot == kWorld ? 0 : system().ranks[size_t(members[0])].role;
    for (int32_t call = 0; call < 6 && members.size() > 1; ++call) {
      if (templates_[size_t(call)].group == slot) plan(index, call, stage);
    }
  }

  void make_groups() {
    std::vector<int32_t> world;
    for (int32_t rank = 0; rank < shape().rank_count(); ++rank) {
      world.push_back(rank);
      add_group(kAlone, {rank});
    }
    add_group(kWorld, world);
    for (int32_t stage = 0; stage < shape().stages; ++stage) {
      for (int32_t index = 0; index < shape().tensor; ++index) {
        std::vector<int32_t> members;
        for (int32_t d = 0; d < shape().replicas; ++d) {
          members.push_back(job_.rank(d, stage, index));
        }
        add_group(kData, members);
      }
      for (int32_t d = 0; d < shape().replicas; ++d) {
        std::vector<int32_t> members;
        for (int32_t i = 0; i < shape().tensor; ++i) members.push_back(job_.rank(d, stage, i));
        add_group(kTensor, members);
      }
    }
  }

  void make_messages(bool forward) {
    for (int32_t rank = 0; rank < shape().rank_count(); ++rank) {
      const int32_t stage = rank / shape().tensor % shape().stages;
      const int32_t to = stage + (forward ? 1 : -1);
      if (to < 0 || to >= shape().stages) continue;
      const int32_t peer = rank + (to - stage) * shape().tensor;
      const int32_t index = int32_t(system().communicators.size());
      system().communicators.push_back(
          {kPipeline, {rank, peer}, "message " + std::to_string(index)});
      system().plan.emplace_back(templates_.size());
      const int32_t send = message_call(forward, true);
      system().ranks[size_t(rank)].communicator_of_message[size_t(send)] = index;
      system().ranks[size_t(peer)].communicator_of_message[size_t(send) + 1] = index;
      plan(index, send, stage);
    }
  }

  Random random_;
  Job job_;
  bool calm_ = false;
  std::vector<lower::CallTemplate> templates_;
  std::map<std::tuple<int32_t, size_t, int32_t>, Drawn> drawn_;
};

void disturb(Random& random, Job& job) {
  fold::System& system = *job.system;
  const auto slow_rank = [&](fold::Rank& rank) {
    rank.factor = int32_t(random.pick({1 << 15, 3 << 15, 65537, 70000}));
  };
  const auto any = [&](auto& list) -> auto& {
    return list[size_t(random.below(int64_t(list.size())))];
  };
  switch (random.below(8)) {
    case 0:
      slow_rank(any(system.ranks));
      break;
    case 1:
      any(system.ranks).start_ps = 1 + random.below(40000);
      break;
    case 2:
    case 3:
    case 4:
      any(system.links).rate /= random.pick({2, 3, 10});
      break;
    case 5:
      for (fold::Rank& rank : system.ranks) {
        if (random.one_in(10)) slow_rank(rank);
      }
      break;
    case 6: {
      fold::Variable& variable = any(system.variables);
      if (!variable.uses.empty()) any(variable.uses).weight = 1 + random.below(fold::kWeightOne);
      break;
    }
    default:
      any(system.ranks).count += 3;
  }
}

}  // namespace

Job make_job(const Shape& shape) { return Maker(shape).make(); }

Job random_job(uint64_t seed) {
  Random random(seed);
  Shape shape;
  shape.replicas = int32_t(random.pick({2, 3, 4, 5, 8, 16}));
  shape.stages = int32_t(1 + random.below(4));
  shape.tensor = int32_t(random.pick({1, 4, 6, 8}));
  shape.pods_per_leaf = int32_t(random.pick({1, 1, 2, 4, 100}));
  shape.micro_batches = int32_t(1 + random.below(3));
  shape.seed = seed;
  Job job = make_job(shape);
  for (int64_t i = random.below(3); i > 0; --i) disturb(random, job);
  fold::mark_private(*job.system);
  return job;
}

}  // namespace trnsim::jobs
