// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "simulate/shard.h"

#include "simulate/timeline/bulk.h"

namespace trnsim::simulate {
namespace {

class ShardLanes final : public Lanes {
 public:
  ShardLanes(const fold::System& system, Backend backend, const SimulateOptions& options)
      : rank_count_(system.ranks.size()),
        first_(int32_t(options.first_rank)),
        end_(int32_t(options.end_rank)) {
    part_.roles = system.roles;
    part_.ranks.assign(system.ranks.begin() + first_, system.ranks.begin() + end_);
    lanes_ = make_bulk_lanes(part_, backend, options.keep_times);
  }

  void run(int64_t now_ps, std::vector<Arrival>& arrivals) override {
    const size_t before = arrivals.size();
    lanes_->run(now_ps, arrivals);
    for (size_t i = before; i < arrivals.size(); ++i) arrivals[i].rank += first_;
  }

  void release(const std::vector<int32_t>& ranks, const std::vector<int32_t>& tasks,
               int64_t time_ps) override {
    our_ranks_.clear();
    our_tasks_.clear();
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] < first_ || ranks[i] >= end_) continue;
      our_ranks_.push_back(ranks[i] - first_);
      our_tasks_.push_back(tasks[i]);
    }
    lanes_->release(our_ranks_, our_tasks_, time_ps);
  }

  int64_t next_ps() const override { return lanes_->next_ps(); }
  int64_t ended_count() const override { return lanes_->ended_count(); }
  int32_t head(int32_t rank, int32_t queue) const override {
    return lanes_->head(rank - first_, queue);
  }
  bool head_started(int32_t rank, int32_t queue) const override {
    return lanes_->head_started(rank - first_, queue);
  }

  void write(Timeline& timeline) const override {
    lanes_->write(timeline);
    auto& first = timeline.first_task;  // ranks of others have no tasks here
    first.insert(first.begin(), size_t(first_), 0);
    first.resize(rank_count_ + 1, first.back());
    timeline.last_end_ps.insert(timeline.last_end_ps.begin(), size_t(first_), 0);
    timeline.last_end_ps.resize(rank_count_, 0);
  }

 private:
  size_t rank_count_;
  int32_t first_, end_;
  fold::System part_;
  std::unique_ptr<Lanes> lanes_;
  std::vector<int32_t> our_ranks_, our_tasks_;
};

}  // namespace

std::unique_ptr<Lanes> make_shard_lanes(const fold::System& system, Backend backend,
                                        const SimulateOptions& options) {
  return std::make_unique<ShardLanes>(system, backend, options);
}

std::vector<ArrivalNews> share_news(Exchange& exchange, const std::vector<ArrivalNews>& mine) {
  std::vector<int64_t> numbers;
  for (const ArrivalNews& news : mine) {
    numbers.insert(numbers.end(), {news.instance, news.members, news.first_ps, news.last_ps});
  }
  const std::vector<int64_t> all = exchange.all_gather(numbers);
  TRN_ASSERT(all.size() % 4 == 0, "processes run different versions");
  std::vector<ArrivalNews> result;
  for (size_t i = 0; i < all.size(); i += 4) {
    result.push_back({all[i], all[i + 1], all[i + 2], all[i + 3]});
  }
  return result;
}

}  // namespace trnsim::simulate
