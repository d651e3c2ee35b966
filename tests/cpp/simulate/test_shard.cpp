// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// One run on several "processes", here threads, equals one process's to the last digit.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "scenes.h"
#include "simulate/shard.h"

namespace trnsim::simulate {
namespace {

// Threads that tell each other through memory. They wait without spinning: cores are shared.
class Meeting {
 public:
  explicit Meeting(size_t size) : said_(size) {}

  std::vector<int64_t> all_gather(size_t index, const std::vector<int64_t>& mine) {
    std::unique_lock lock(mutex_);
    said_[index] = mine;
    if (++here_ == said_.size()) {
      all_.clear();
      for (const auto& one : said_) all_.insert(all_.end(), one.begin(), one.end());
      here_ = 0;
      ++round_;
      all_said_.notify_all();
    } else {
      all_said_.wait(lock, [&, round = round_] { return round_ != round; });
    }
    return all_;  // nobody can end the next round before everybody has read this one
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_said_;
  std::vector<std::vector<int64_t>> said_;
  std::vector<int64_t> all_;
  size_t here_ = 0;
  int64_t round_ = 0;
};

struct Member final : Exchange {
  Member(Meeting& m, size_t i) : meeting(m), index(i) {}
  std::vector<int64_t> all_gather(const std::vector<int64_t>& mine) override {
    rounds += 1;
    return meeting.all_gather(index, mine);
  }
  Meeting& meeting;
  size_t index;
  int64_t rounds = 0;
};

struct Part {
  Timeline timeline;
  std::string error;
  int64_t first = 0, end = 0, rounds = 0;
};

std::vector<Part> run_in_parts(const std::shared_ptr<const fold::System>& system, size_t count) {
  Meeting meeting(count);
  std::vector<Part> parts(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      Member member(meeting, i);
      SimulateOptions options;
      options.backend = Backend::cpp;
      options.exchange = &member;
      options.first_rank = parts[i].first = int64_t(system->ranks.size() * i / count);
      options.end_rank = parts[i].end = int64_t(system->ranks.size() * (i + 1) / count);
      try {
        parts[i].timeline = simulate_step(system, options);
      } catch (const Error& error) {
        parts[i].error = error.what();
      }
      parts[i].rounds = member.rounds;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return parts;
}

using CallKey = std::pair<int32_t, int64_t>;  // communicator, sequence
std::map<CallKey, CallSpan> calls_of(const Timeline& timeline) {
  std::map<CallKey, CallSpan> calls;
  for (const CallSpan& span : timeline.calls) calls[{span.communicator, span.sequence}] = span;
  return calls;
}

void expect_part_of(const Part& part, const Timeline& whole, uint64_t seed) {
  const Timeline& got = part.timeline;
  ASSERT_EQ(got.hash, whole.hash) << "seed " << seed;
  ASSERT_EQ(got.makespan_ps, whole.makespan_ps) << "seed " << seed;
  for (int64_t rank = 0; rank < int64_t(whole.system->ranks.size()); ++rank) {
    const size_t begin = size_t(got.first_task[size_t(rank)]);
    const size_t size = size_t(got.first_task[size_t(rank) + 1]) - begin;
    if (rank < part.first || rank >= part.end) {
      ASSERT_EQ(size, 0) << "seed " << seed;
      continue;
    }
    const size_t at = size_t(whole.first_task[size_t(rank)]);
    ASSERT_EQ(size, size_t(whole.first_task[size_t(rank) + 1]) - at) << "seed " << seed;
    for (size_t task = 0; task < size; ++task) {
      ASSERT_EQ(got.ends_ps[begin + task], whole.ends_ps[at + task]) << "seed " << seed;
      ASSERT_EQ(got.starts_ps[begin + task], whole.starts_ps[at + task]) << "seed " << seed;
    }
  }
}

// Each call was met on some process, and wherever it was, as in one.
void expect_calls_of(const std::vector<Part>& parts, const Timeline& whole, uint64_t seed) {
  const std::map<CallKey, CallSpan> expected = calls_of(whole);
  std::map<CallKey, CallSpan> met;
  for (const Part& part : parts) {
    for (const auto& [key, span] : calls_of(part.timeline)) {
      const CallSpan& same = expected.at(key);
      ASSERT_EQ(span.first_arrival_ps, same.first_arrival_ps) << "seed " << seed;
      ASSERT_EQ(span.start_ps, same.start_ps) << "seed " << seed;
      ASSERT_EQ(span.end_ps, same.end_ps) << "seed " << seed;
      ASSERT_EQ(span.phase_end_ps, same.phase_end_ps) << "seed " << seed;
      met[key] = span;
    }
  }
  ASSERT_EQ(met.size(), expected.size()) << "seed " << seed;
}

TEST(Shard, PartsEqualTheWholeOnRandomSystems) {
  int64_t compared = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto system = scenes::with_random_changes(*scenes::random_system(seed), seed);
    if (system->ranks.size() < 2) continue;
    SimulateOptions options;
    options.backend = Backend::cpp;
    Timeline whole;
    std::string error;
    try {
      whole = simulate_step(system, options);
    } catch (const Error& caught) {
      error = caught.what();  // a link died for good
    }
    for (const size_t count : {size_t(2), std::min<size_t>(4, system->ranks.size())}) {
      const std::vector<Part> parts = run_in_parts(system, count);
      for (const Part& part : parts) ASSERT_EQ(part.error, error) << "seed " << seed;
      if (!error.empty()) continue;
      for (const Part& part : parts) expect_part_of(part, whole, seed);
      expect_calls_of(parts, whole, seed);
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

// Two jobs side by side whose links are their own: nobody needs to hear of anybody's calls, but
// that there are none.
TEST(Shard, CallsOfOneProcessAloneStayThere) {
  scenes::ProgramBuilder builder;
  const int32_t group = builder.group("pod");
  const int32_t queue = builder.queue(lower::QueueKind::tensor, 0);
  const int32_t stream = builder.queue(lower::QueueKind::collective, 0);
  const int32_t call = builder.call_template(scenes::all_reduce(group, 1000));
  int32_t before = builder.task(queue, 100);
  for (int i = 0; i < 20; ++i) {
    before = builder.task(queue, 100,
                          {scenes::after(builder.call(stream, call, {scenes::after(before)}))});
  }
  auto job = std::make_shared<fold::System>();
  job->roles.push_back(builder.build());
  for (int rank = 0; rank < 4; ++rank) scenes::add_rank(*job, 0);
  for (int32_t pod = 0; pod < 2; ++pod) {
    job->links.push_back({"link " + std::to_string(pod), 1 << 20});
    const int32_t on = scenes::add_group(*job, group, {pod * 2, pod * 2 + 1}, "pod");
    scenes::add_variable(*job, on, call, 10, 1000, {{pod, fold::kWeightOne}});
  }
  fold::mark_private(*job);
  const std::vector<Part> parts = run_in_parts(job, 2);
  const Timeline whole = simulate_step(job, {});
  for (const Part& part : parts) {
    expect_part_of(part, whole, 0);
    EXPECT_EQ(part.rounds, 3);  // once that there is no news, ended tasks, makespan and hash
    EXPECT_EQ(part.timeline.calls.size(), 20);
  }
}

TEST(Shard, AJobThatCannotEndSaysSoEverywhere) {
  int64_t stuck = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto system = scenes::deadlocked(seed);
    if (system->ranks.size() < 2) continue;
    std::string error;
    try {
      simulate_step(system, {});
    } catch (const Error& caught) {
      error = caught.what();
    }
    for (const Part& part : run_in_parts(system, 2)) {
      ASSERT_EQ(part.error.empty(), error.empty()) << "seed " << seed << ": " << error;
      stuck += part.error.find("wait for ever") != std::string::npos;
    }
  }
  EXPECT_GT(stuck, 20);
}

}  // namespace
}  // namespace trnsim::simulate
