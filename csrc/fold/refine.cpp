// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/refine.h"

#include <algorithm>
#include <unordered_map>

#include "base/hash.h"

namespace trnsim::fold {
namespace {

// Marks of small integers that are all taken back at once.
class Marks {
 public:
  explicit Marks(size_t size) : marks_(size, 0) {}
  void clear() { ++epoch_; }
  // Whether it was not marked yet.
  bool add(int32_t index) {
    const bool is_new = marks_[size_t(index)] != epoch_;
    marks_[size_t(index)] = epoch_;
    return is_new;
  }

 private:
  std::vector<uint32_t> marks_;
  uint32_t epoch_ = 0;
};

class Refiner {
 public:
  Refiner(const System& system, const Callers& callers, uint64_t seed, int hash_bits,
          bool stop_early, Partition& partition)
      : system_(system),
        callers_(callers),
        seed_(mix64(seed)),
        mask_(hash_bits >= 64 ? ~uint64_t(0) : (uint64_t(1) << hash_bits) - 1),
        stop_early_(stop_early),
        partition_(partition),
        rank_marks_(system.ranks.size()),
        link_marks_(system.links.size()),
        hashes_(std::max({system.ranks.size(), system.communicators.size(), system.links.size()})) {
    if (has_interference(system)) chips_ = chips_of(system);
  }

  bool run() {
    bool has_split = split_by_themselves();
    while (!stop_early_ || size_t(partition_.ranks) < system_.ranks.size()) {
      hash_communicators();
      bool splits = split(partition_.communicator, partition_.communicators);
      hash_links();
      splits |= split(partition_.link, partition_.links);
      hash_ranks();
      splits |= split(partition_.rank, partition_.ranks);
      if (!splits) break;
      has_split = true;
    }
    return has_split;
  }

 private:
  // What each has of its own, before its neighbours count.
  bool split_by_themselves() {
    for (size_t i = 0; i < system_.ranks.size(); ++i) {
      const Rank& rank = system_.ranks[i];
      uint64_t hash = combine(seed_, uint64_t(rank.role));
      hash = combine(hash, uint64_t(rank.factor));
      for (const FactorChange& change : rank.changes) {
        hash = combine(combine(hash, uint64_t(change.time_ps)), uint64_t(change.factor));
      }
      hashes_[i] = combine(hash, uint64_t(rank.start_ps));
    }
    bool splits = split(partition_.rank, partition_.ranks);
    for (size_t i = 0; i < system_.links.size(); ++i) {
      hashes_[i] = combine(seed_, uint64_t(system_.links[i].rate));
      for (const RateChange& change : system_.links[i].changes) {
        hashes_[i] = combine(combine(hashes_[i], uint64_t(change.time_ps)), uint64_t(change.rate));
      }
    }
    splits |= split(partition_.link, partition_.links);
    for (size_t i = 0; i < system_.communicators.size(); ++i) {
      const Communicator& communicator = system_.communicators[i];
      uint64_t hash = combine(seed_, uint64_t(communicator.slot));
      hash = combine(hash, uint64_t(system_.ranks[size_t(communicator.members[0])].role));
      for (const auto& phases : system_.plan[i]) {
        hash = combine(hash, phases.size());
        for (const int32_t index : phases) {
          const Variable& variable = system_.variables[size_t(index)];
          hash = combine(combine(hash, uint64_t(variable.bytes)), uint64_t(variable.latency_ps));
        }
      }
      hashes_[i] = hash;
    }
    return splits | split(partition_.communicator, partition_.communicators);
  }

  void hash_communicators() {
    for (size_t i = 0; i < system_.communicators.size(); ++i) {
      uint64_t hash = seed_;
      int32_t place = Callers::kMember;
      rank_marks_.clear();
      for (const auto* caller = callers_.begin(int32_t(i)); caller != callers_.end(int32_t(i));
           ++caller) {
        if (caller->place != place) rank_marks_.clear();
        place = caller->place;
        const int32_t rank = partition_.rank[size_t(caller->rank)];
        if (rank_marks_.add(rank)) hash += key(rank, place);
      }
      for (const auto& phases : system_.plan[i]) {
        for (const int32_t index : phases) {
          link_marks_.clear();
          uint64_t sum = 0;
          for (const LinkUse& use : system_.variables[size_t(index)].uses) {
            const int32_t link = partition_.link[size_t(use.link)];
            if (link_marks_.add(link)) sum += key(link, 0);
          }
          hash = combine(hash, sum);
        }
      }
      hashes_[i] = hash;
    }
  }

  void hash_links() {
    std::fill_n(hashes_.begin(), system_.links.size(), 0);
    for (const Variable& variable : system_.variables) {
      const uint64_t hash =
          combine(key(partition_.communicator[size_t(variable.communicator)], variable.call),
                  uint64_t(variable.phase));
      for (const LinkUse& use : variable.uses)
        hashes_[size_t(use.link)] += hash * uint64_t(use.weight);
    }
  }

  // The set of classes on each.
  void hash_chips() {
    chip_hashes_.assign(chips_.ranks.size(), 0);
    for (size_t chip = 0; chip < chips_.ranks.size(); ++chip) {
      rank_marks_.clear();
      for (const int32_t rank : chips_.ranks[chip]) {
        const int32_t of_class = partition_.rank[size_t(rank)];
        if (rank_marks_.add(of_class)) chip_hashes_[chip] += key(of_class, 0);
      }
    }
  }

  void hash_ranks() {
    hash_chips();
    for (size_t i = 0; i < system_.ranks.size(); ++i) {
      uint64_t hash = seed_;
      for (const auto* table :
           {&system_.ranks[i].communicator_of_slot, &system_.ranks[i].communicator_of_message}) {
        for (const int32_t index : *table) {
          const int32_t communicator = index < 0 ? -1 : partition_.communicator[size_t(index)];
          hash = combine(hash, uint64_t(communicator));
        }
      }
      if (!chips_.of_rank.empty()) hash = combine(hash, chip_hashes_[size_t(chips_.of_rank[i])]);
      hashes_[i] = hash;
    }
  }

  uint64_t key(int32_t a, int32_t b) const {
    return mix64(seed_ ^ (uint64_t(uint32_t(a)) << 32 | uint32_t(b)));
  }

  // Classes by (class before, hash), numbered by their lowest member.
  bool split(std::vector<int32_t>& classes, int32_t& count) {
    struct Key {
      int32_t before;
      uint64_t hash;
      bool operator==(const Key&) const = default;
    };
    struct Hash {
      size_t operator()(const Key& key) const { return combine(uint64_t(key.before), key.hash); }
    };
    std::unordered_map<Key, int32_t, Hash> known;
    for (size_t i = 0; i < classes.size(); ++i) {
      // Mixed, since sums of weights that are multiples of 2^16 say nothing in their low bits.
      const Key key{classes[i], mix64(hashes_[i]) & mask_};
      classes[i] = known.try_emplace(key, int32_t(known.size())).first->second;
    }
    const bool splits = int32_t(known.size()) > count;
    count = int32_t(known.size());
    return splits;
  }

  const System& system_;
  const Callers& callers_;
  uint64_t seed_, mask_;
  bool stop_early_;
  Partition& partition_;
  Marks rank_marks_, link_marks_;
  std::vector<uint64_t> hashes_;
  Chips chips_;  // none without interference
  std::vector<uint64_t> chip_hashes_;
};

}  // namespace

Callers::Callers(const System& system) : first_(system.communicators.size() + 1, 0) {
  size_t slots = 0, calls = 0;
  for (const Rank& rank : system.ranks) {
    slots = std::max(slots, rank.communicator_of_slot.size());
    calls = std::max(calls, rank.communicator_of_message.size());
  }
  // Twice the same walk: to count, then to fill.
  const auto walk = [&](const auto& visit) {
    for (size_t i = 0; i < system.communicators.size(); ++i) {
      for (const int32_t rank : system.communicators[i].members) visit(int32_t(i), rank, kMember);
    }
    for (size_t slot = 0; slot < slots + calls; ++slot) {
      const bool is_slot = slot < slots;
      const size_t at = is_slot ? slot : slot - slots;
      for (size_t rank = 0; rank < system.ranks.size(); ++rank) {
        const auto& table = is_slot ? system.ranks[rank].communicator_of_slot
                                    : system.ranks[rank].communicator_of_message;
        if (at >= table.size() || table[at] < 0) continue;
        visit(table[at], int32_t(rank), int32_t(at) + (is_slot ? 0 : kMessage));
      }
    }
  };
  walk([&](int32_t communicator, int32_t, int32_t) { ++first_[size_t(communicator) + 1]; });
  for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  callers_.resize(size_t(first_.back()));
  std::vector<int64_t> next(first_.begin(), first_.end() - 1);
  walk([&](int32_t communicator, int32_t rank, int32_t place) {
    callers_[size_t(next[size_t(communicator)]++)] = {rank, place};
  });
}

Partition coarsest(const System& system) {
  Partition partition;
  partition.rank.assign(system.ranks.size(), 0);
  partition.communicator.assign(system.communicators.size(), 0);
  partition.link.assign(system.links.size(), 0);
  partition.ranks = !system.ranks.empty();
  partition.communicators = !system.communicators.empty();
  partition.links = !system.links.empty();
  return partition;
}

bool refine(const System& system, const Callers& callers, uint64_t seed, int hash_bits,
            bool stop_early, Partition& partition) {
  return Refiner(system, callers, seed, hash_bits, stop_early, partition).run();
}

}  // namespace trnsim::fold
