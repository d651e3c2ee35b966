// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/refine.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/hash.h"

namespace trnsim::fold {
namespace {

// Marks of small integers that are all taken back at once.
class Marks {
 public:
  explicit Marks(size_t size) : marks_(size, 0) {}
  void clear() { ++epoch_; }
  // Marks it; `key` where it was not marked yet, 0 where it was: no branch, which nobody could
  // foresee.
  uint64_t add(int32_t index, uint64_t key) {
    const bool is_new = marks_[size_t(index)] != epoch_;
    marks_[size_t(index)] = epoch_;
    return key & -uint64_t(is_new);
  }

 private:
  std::vector<uint32_t> marks_;
  uint32_t epoch_ = 0;
};

// Numbers keys from 0 in the order in which they come. For thousands of keys many times over: a
// std::unordered_map spends half of a fold on its nodes.
class Numbering {
 public:
  struct Key {
    int32_t before;
    uint64_t hash;
    bool operator==(const Key&) const = default;
  };

  void start(size_t most_keys) {
    slots_.assign(std::bit_ceil(2 * most_keys + 1), -1);
    keys_.clear();
  }
  int32_t number(const Key& key) {
    const size_t mask = slots_.size() - 1;
    const uint64_t hash = key.hash + uint64_t(key.before) * 0x9e3779b97f4a7c15u;
    for (size_t at = (hash >> 32 ^ hash) & mask;; at = (at + 1) & mask) {
      if (slots_[at] < 0) {
        slots_[at] = count();
        keys_.push_back(key);
      }
      if (keys_[size_t(slots_[at])] == key) return slots_[at];
    }
  }
  int32_t count() const { return int32_t(keys_.size()); }

 private:
  std::vector<int32_t> slots_;
  std::vector<Key> keys_;
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

  void run() {
    split_by_themselves();
    bool is_settled = false;
    while (!stop_early_ || size_t(partition_.ranks) < system_.ranks.size()) {
      hash_communicators();
      bool splits = split(partition_.communicator, partition_.communicators);
      // Links and ranks (with interference: but for who shares their chips) know of communicators
      // alone, and have split by these before.
      if (!splits && is_settled && chips_.of_rank.empty()) break;
      is_settled = true;
      if (size_t(partition_.links) < system_.links.size()) {
        hash_links();
        splits |= split(partition_.link, partition_.links);
      }
      hash_ranks();
      splits |= split(partition_.rank, partition_.ranks);
      if (!splits) break;
    }
  }

 private:
  // What each has of its own, before its neighbours count.
  void split_by_themselves() {
    for (size_t i = 0; i < system_.ranks.size(); ++i) {
      const Rank& rank = system_.ranks[i];
      uint64_t hash = combine(seed_, uint64_t(rank.role));
      hash = combine(hash, uint64_t(rank.factor));
      for (const FactorChange& change : rank.changes) {
        hash = combine(combine(hash, uint64_t(change.time_ps)), uint64_t(change.factor));
      }
      hashes_[i] = combine(hash, uint64_t(rank.start_ps));
    }
    split(partition_.rank, partition_.ranks);
    for (size_t i = 0; i < system_.links.size(); ++i) {
      hashes_[i] = combine(seed_, uint64_t(system_.links[i].rate));
      for (const RateChange& change : system_.links[i].changes) {
        hashes_[i] = combine(combine(hashes_[i], uint64_t(change.time_ps)), uint64_t(change.rate));
      }
    }
    split(partition_.link, partition_.links);
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
    split(partition_.communicator, partition_.communicators);
  }

  void hash_communicators() {
    make_keys(partition_.links, link_keys_);
    make_keys(partition_.ranks, rank_keys_);
    for (size_t i = 0; i < system_.communicators.size(); ++i) {
      uint64_t hash = seed_;
      int32_t place = Callers::kMember;
      rank_marks_.clear();
      for (const auto* caller = callers_.begin(int32_t(i)); caller != callers_.end(int32_t(i));
           ++caller) {
        if (caller->place != place) rank_marks_.clear();
        place = caller->place;
        const int32_t rank = partition_.rank[size_t(caller->rank)];
        hash += rank_marks_.add(rank, rank_keys_[size_t(rank)]) * odd(place);
      }
      for (const auto& phases : system_.plan[i]) {
        for (const int32_t index : phases) {
          link_marks_.clear();
          uint64_t sum = 0;
          for (const LinkUse& use : system_.variables[size_t(index)].uses) {
            const int32_t link = partition_.link[size_t(use.link)];
            sum += link_marks_.add(link, link_keys_[size_t(link)]);
          }
          hash = mix64(hash ^ sum);
        }
      }
      hashes_[i] = hash;
    }
  }

  void hash_links() {
    make_keys(partition_.communicators, communicator_keys_);
    std::fill_n(hashes_.begin(), system_.links.size(), 0);
    for (const Variable& variable : system_.variables) {
      const int32_t communicator = partition_.communicator[size_t(variable.communicator)];
      const uint64_t hash = mix64(communicator_keys_[size_t(communicator)] ^
                                  (uint64_t(variable.call) << 32 | uint32_t(variable.phase)));
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
        chip_hashes_[chip] += rank_marks_.add(of_class, key(of_class));
      }
    }
  }

  void hash_ranks() {
    hash_chips();
    make_keys(partition_.communicators, communicator_keys_);
    const auto class_of = [&](int32_t index) {
      return size_t(partition_.communicator[size_t(index)]);
    };
    for (size_t i = 0; i < system_.ranks.size(); ++i) {
      uint64_t hash = seed_;
      for (const auto* table :
           {&system_.ranks[i].communicator_of_slot, &system_.ranks[i].communicator_of_message}) {
        for (const int32_t index : *table) {
          hash = mix64(hash ^ (index < 0 ? 0 : communicator_keys_[class_of(index)]));
        }
      }
      if (!chips_.of_rank.empty()) hash = combine(hash, chip_hashes_[size_t(chips_.of_rank[i])]);
      hashes_[i] = hash;
    }
  }

  // Of a class, mixed once a round: mixing wherever it counts took most of a fold.
  uint64_t key(int32_t of_class) const { return mix64(seed_ ^ uint64_t(of_class)); }
  void make_keys(int32_t classes, std::vector<uint64_t>& keys) const {
    keys.clear();
    for (int32_t i = 0; i < classes; ++i) keys.push_back(key(i));
  }
  static uint64_t odd(int32_t place) { return uint64_t(uint32_t(place)) << 1 | 1; }

  // Classes by (class before, hash), numbered by their lowest member.
  bool split(std::vector<int32_t>& classes, int32_t& count) {
    numbering_.start(classes.size());
    for (size_t i = 0; i < classes.size(); ++i) {
      // Mixed, since sums of weights that are multiples of 2^16 say nothing in their low bits.
      classes[i] = numbering_.number({classes[i], mix64(hashes_[i]) & mask_});
    }
    return numbering_.count() > std::exchange(count, numbering_.count());
  }

  const System& system_;
  const Callers& callers_;
  uint64_t seed_, mask_;
  bool stop_early_;
  Partition& partition_;
  Marks rank_marks_, link_marks_;
  Numbering numbering_;
  std::vector<uint64_t> hashes_, rank_keys_, communicator_keys_, link_keys_;
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

void refine(const System& system, const Callers& callers, uint64_t seed, int hash_bits,
            bool stop_early, Partition& partition) {
  Refiner(system, callers, seed, hash_bits, stop_early, partition).run();
}

}  // namespace trnsim::fold
