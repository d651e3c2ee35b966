// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/cohorts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "fold/refine.h"

namespace trnsim::fold {
namespace {

bool is_message(const Callers& callers, int32_t communicator) {
  return callers.end(communicator) != callers.begin(communicator) &&
         (callers.end(communicator) - 1)->place >= Callers::kMessage;
}

// The lowest member of each class, which are numbered by it.
std::vector<int32_t> representatives(const std::vector<int32_t>& classes) {
  std::vector<int32_t> lowest;
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i] == int32_t(lowest.size())) lowest.push_back(int32_t(i));
  }
  return lowest;
}

void map(std::vector<int32_t>& indices, const std::vector<int32_t>& classes) {
  for (int32_t& index : indices) index = index < 0 ? index : classes[size_t(index)];
}

class Quotient {
 public:
  Quotient(const System& system, const Callers& callers, const Partition& partition)
      : system_(system),
        callers_(callers),
        partition_(partition),
        communicators_(representatives(partition.communicator)) {}

  System make() {
    result_.speeds = system_.speeds;
    result_.roles = system_.roles;
    make_ranks();
    if (has_interference(system_)) share_chips();
    make_communicators();
    make_links();
    make_variables();
    add_weights();
    mark_private(result_);
    return std::move(result_);
  }

 private:
  void make_ranks() {
    for (const int32_t rank : representatives(partition_.rank)) {
      Rank& at = result_.ranks.emplace_back(system_.ranks[size_t(rank)]);
      at.count = 0;
      map(at.communicator_of_slot, partition_.communicator);
      map(at.communicator_of_message, partition_.communicator);
    }
    for (size_t rank = 0; rank < system_.ranks.size(); ++rank) {
      result_.ranks[size_t(partition_.rank[rank])].count += system_.ranks[rank].count;
    }
  }

  // Classes that stand together on one chip do so in the quotient: on the first with their set.
  void share_chips() {
    const Chips chips = chips_of(system_);
    std::map<std::vector<int32_t>, int32_t> first;
    for (const auto& ranks : chips.ranks) {
      std::vector<int32_t> classes;
      for (const int32_t rank : ranks) classes.push_back(partition_.rank[size_t(rank)]);
      std::sort(classes.begin(), classes.end());
      classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
      const auto [found, is_new] =
          first.try_emplace(std::move(classes), system_.ranks[size_t(ranks[0])].chip);
      if (!is_new) continue;
      for (const int32_t c : found->first) result_.ranks[size_t(c)].chip = found->second;
    }
  }

  void make_communicators() {
    std::vector<int32_t> last_seen(result_.ranks.size(), -1);
    for (const int32_t index : communicators_) {
      Communicator& at = result_.communicators.emplace_back(system_.communicators[size_t(index)]);
      map(at.members, partition_.rank);
      if (is_message(callers_, index)) continue;  // sender and receiver, though they be the same
      std::erase_if(at.members, [&](int32_t rank) {
        return std::exchange(last_seen[size_t(rank)], index) == index;
      });
    }
  }

  void make_links() {
    for (const int32_t link : representatives(partition_.link)) {
      link_representatives_.push_back(link);
      result_.links.push_back(system_.links[size_t(link)]);
    }
  }

  void make_variables() {
    for (size_t i = 0; i < communicators_.size(); ++i) {
      auto plan = system_.plan[size_t(communicators_[i])];
      for (auto& phases : plan) {
        for (int32_t& index : phases) {
          Variable& at = result_.variables.emplace_back(system_.variables[size_t(index)]);
          at.communicator = int32_t(i);
          at.uses.clear();
          index = int32_t(result_.variables.size()) - 1;
        }
      }
      result_.plan.push_back(std::move(plan));
    }
  }

  // The weight of a class of communicators on a class of links: what all of them together put on
  // one of its links.
  void add_weights() {
    for (const Variable& variable : system_.variables) {
      const int32_t communicator = partition_.communicator[size_t(variable.communicator)];
      const auto& plan = result_.plan[size_t(communicator)];
      const size_t call = size_t(variable.call), phase = size_t(variable.phase);
      if (call >= plan.size() || phase >= plan[call].size()) continue;  // find_inequity will say
      auto& uses = result_.variables[size_t(plan[call][phase])].uses;
      for (const LinkUse& use : variable.uses) {
        const int32_t link = partition_.link[size_t(use.link)];
        if (link_representatives_[size_t(link)] == use.link) uses.push_back({link, use.weight});
      }
    }
    for (Variable& variable : result_.variables) {
      auto& uses = variable.uses;
      std::sort(uses.begin(), uses.end(),
                [](const LinkUse& a, const LinkUse& b) { return a.link < b.link; });
      size_t count = 0;
      for (const LinkUse& use : uses) {
        if (count > 0 && uses[count - 1].link == use.link) {
          uses[count - 1].weight += use.weight;
        } else {
          uses[count++] = use;
        }
      }
      uses.resize(count);
    }
  }

  const System& system_;
  const Callers& callers_;
  const Partition& partition_;
  std::vector<int32_t> communicators_, link_representatives_;
  System result_;
};

}  // namespace

Cohorts make_quotient(const System& system, const Callers& callers, const Partition& partition) {
  return {std::make_shared<const System>(Quotient(system, callers, partition).make()),
          partition.rank, partition.communicator, partition.link};
}

Cohorts leave_unfolded(std::shared_ptr<const System> system) {
  const auto each = [](size_t size) {
    std::vector<int32_t> classes(size);
    std::iota(classes.begin(), classes.end(), 0);
    return classes;
  };
  const System& of = *system;
  return {std::move(system), each(of.ranks.size()), each(of.communicators.size()),
          each(of.links.size())};
}

Cohorts fold_system(std::shared_ptr<const System> system, int hash_bits, bool stop_early) {
  const Callers callers(*system);
  Partition partition = coarsest(*system);
  for (uint64_t seed = 0;; ++seed) {  // another one where hashes collide
    refine(*system, callers, seed, hash_bits, stop_early, partition);
    if (stop_early && size_t(partition.ranks) == system->ranks.size()) {
      return leave_unfolded(std::move(system));
    }
    Cohorts cohorts = make_quotient(*system, callers, partition);
    const std::string inequity = find_inequity(*system, callers, cohorts);
    if (inequity.empty()) return cohorts;
    TRN_ASSERT(seed < 1000, "folding does not settle: " + inequity);
  }
}

Cohorts fold_system(std::shared_ptr<const System> system) {
  return fold_system(std::move(system), 64, true);
}

}  // namespace trnsim::fold
