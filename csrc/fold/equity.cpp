// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// find_inequity: the definition of cohorts.h, class by class, in values.
#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "fold/cohorts.h"
#include "fold/refine.h"

namespace trnsim::fold {
namespace {

// Indices by class, ascending.
class Members {
 public:
  Members(const std::vector<int32_t>& classes, size_t count)
      : first_(count + 1, 0), members_(classes.size()) {
    for (const int32_t c : classes) ++first_[size_t(c) + 1];
    for (size_t c = 0; c < count; ++c) first_[c + 1] += first_[c];
    std::vector<size_t> next(first_.begin(), first_.end() - 1);
    for (size_t i = 0; i < classes.size(); ++i) {
      members_[next[size_t(classes[i])]++] = int32_t(i);
    }
  }
  std::span<const int32_t> of(size_t c) const {
    return std::span(members_).subspan(first_[c], first_[c + 1] - first_[c]);
  }

 private:
  std::vector<size_t> first_;
  std::vector<int32_t> members_;
};

class Checker {
 public:
  Checker(const System& original, const Callers& callers, const Cohorts& cohorts)
      : original_(original), callers_(callers), cohorts_(cohorts), quotient_(*cohorts.system) {}

  std::string find() {
    const auto maps = {
        std::tuple("rank", &cohorts_.class_of_rank, original_.ranks.size(), quotient_.ranks.size()),
        std::tuple("communicator", &cohorts_.class_of_communicator, original_.communicators.size(),
                   quotient_.communicators.size()),
        std::tuple("link", &cohorts_.class_of_link, original_.links.size(),
                   quotient_.links.size())};
    for (const auto& [what, classes, size, count] : maps) {
      std::vector<uint8_t> has_members(count, 0);
      for (const int32_t c : *classes) {
        if (c < 0 || size_t(c) >= count) return std::string("a class of a ") + what;
        has_members[size_t(c)] = 1;
      }
      if (classes->size() != size || std::count(has_members.begin(), has_members.end(), 0) > 0) {
        return std::string("the classes of ") + what + "s";
      }
    }
    for (const auto part :
         {&Checker::find_in_ranks, &Checker::find_in_chips, &Checker::find_in_callers,
          &Checker::find_in_links, &Checker::find_in_variables}) {
      const std::string found = (this->*part)();
      if (!found.empty()) return found;
    }
    return {};
  }

 private:
  static std::string name(const char* what, size_t index) {
    return std::string(what) + " " + std::to_string(index);
  }

  bool same_class(const std::vector<int32_t>& own, const std::vector<int32_t>& in_quotient) const {
    return std::equal(own.begin(), own.end(), in_quotient.begin(), in_quotient.end(),
                      [&](int32_t a, int32_t b) {
                        return a < 0 ? b < 0 : cohorts_.class_of_communicator[size_t(a)] == b;
                      });
  }

  std::string find_in_ranks() {
    std::vector<int64_t> counts(quotient_.ranks.size(), 0);
    for (size_t i = 0; i < original_.ranks.size(); ++i) {
      const size_t c = size_t(cohorts_.class_of_rank[i]);
      const Rank &own = original_.ranks[i], &shown = quotient_.ranks[c];
      counts[c] += own.count;
      if (own.role != shown.role || own.factor != shown.factor || own.start_ps != shown.start_ps ||
          own.changes != shown.changes) {
        return name("role, factor, start or changes of rank", i);
      }
      if (!same_class(own.communicator_of_slot, shown.communicator_of_slot) ||
          !same_class(own.communicator_of_message, shown.communicator_of_message)) {
        return name("a communicator of rank", i);
      }
    }
    for (size_t c = 0; c < counts.size(); ++c) {
      if (counts[c] != quotient_.ranks[c].count) return name("the count of class", c);
    }
    return {};
  }

  // With interference: that the classes on a rank's chip are those on its class's chip.
  std::string find_in_chips() {
    if (original_.speeds != quotient_.speeds) return "the speeds of engines";
    if (!has_interference(original_)) return {};
    const auto classes_on = [](const std::vector<int32_t>& ranks, const auto& class_of) {
      std::vector<int32_t> classes;
      for (const int32_t rank : ranks) classes.push_back(class_of(rank));
      std::sort(classes.begin(), classes.end());
      classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
      return classes;
    };
    const Chips own = chips_of(original_), shown = chips_of(quotient_);
    std::vector<std::vector<int32_t>> expected;
    for (const auto& ranks : shown.ranks) {
      expected.push_back(classes_on(ranks, [](int32_t rank) { return rank; }));
    }
    for (const auto& ranks : own.ranks) {
      const auto classes =
          classes_on(ranks, [&](int32_t rank) { return cohorts_.class_of_rank[size_t(rank)]; });
      for (const int32_t c : classes) {
        if (classes != expected[size_t(shown.of_rank[size_t(c)])]) {
          return name("what shares the chip of rank", size_t(ranks[0]));
        }
      }
    }
    return {};
  }

  // That each caller's communicator is of the right class is known from the ranks; that none is
  // missing is a matter of how many different ones there are.
  std::string find_in_callers() {
    const Callers shown(quotient_);
    std::vector<int64_t> mark(quotient_.ranks.size(), -1);
    int64_t epoch = -1;
    const auto count = [&](const Callers& callers, int32_t communicator, const auto& class_of) {
      int64_t different = 0;
      int32_t place = Callers::kMember;
      ++epoch;
      for (auto* at = callers.begin(communicator); at != callers.end(communicator); ++at) {
        if (at->place != place) ++epoch;
        place = at->place;
        different += std::exchange(mark[size_t(class_of(at->rank))], epoch) != epoch;
      }
      return different;
    };
    std::vector<int64_t> expected;
    for (size_t c = 0; c < quotient_.communicators.size(); ++c) {
      expected.push_back(count(shown, int32_t(c), [](int32_t rank) { return rank; }));
    }
    for (size_t i = 0; i < original_.communicators.size(); ++i) {
      const int32_t c = cohorts_.class_of_communicator[i];
      const Communicator& own_members = original_.communicators[i];
      const Communicator& shown_members = quotient_.communicators[size_t(c)];
      const auto class_of = [&](int32_t rank) { return cohorts_.class_of_rank[size_t(rank)]; };
      if (own_members.slot != shown_members.slot ||
          quotient_.ranks[size_t(class_of(own_members.members[0]))].role !=
              quotient_.ranks[size_t(shown_members.members[0])].role ||
          count(callers_, int32_t(i), class_of) != expected[size_t(c)] ||
          !has_members(own_members.members, c)) {
        return name("who calls on communicator", i);
      }
    }
    return {};
  }

  // Every member's class is a member of the class.
  bool has_members(const std::vector<int32_t>& members, int32_t c) {
    const auto& shown = quotient_.communicators[size_t(c)].members;
    if (members_marked_ != c) {
      is_member_.resize(quotient_.ranks.size(), -1);
      for (const int32_t rank : shown) is_member_[size_t(rank)] = c;
      members_marked_ = c;
    }
    return std::all_of(members.begin(), members.end(), [&](int32_t rank) {
      return is_member_[size_t(cohorts_.class_of_rank[size_t(rank)])] == c;
    });
  }

  std::string find_in_links() {
    for (size_t i = 0; i < original_.links.size(); ++i) {
      const LinkInfo &own = original_.links[i],
                     &shown = quotient_.links[size_t(cohorts_.class_of_link[i])];
      if (own.rate != shown.rate) return name("the rate of link", i);
      if (own.changes != shown.changes) return name("the changes of link", i);
    }
    return {};
  }

  std::string find_in_variables() {
    const Members communicators(cohorts_.class_of_communicator, quotient_.communicators.size());
    touched_.resize(original_.links.size() + 1);
    links_of_class_.assign(quotient_.links.size(), 0);
    for (const int32_t c : cohorts_.class_of_link) ++links_of_class_[size_t(c)];
    sum_.assign(original_.links.size(), 0);
    shown_.assign(quotient_.links.size(), 0);
    touched_of_class_.assign(quotient_.links.size(), 0);
    seen_.assign(quotient_.links.size(), -1);
    for (size_t c = 0; c < quotient_.communicators.size(); ++c) {
      const auto& plan = quotient_.plan[c];
      for (const int32_t i : communicators.of(c)) {
        const auto& own = original_.plan[size_t(i)];
        const bool same = std::equal(own.begin(), own.end(), plan.begin(), plan.end(),
                                     [](auto& a, auto& b) { return a.size() == b.size(); });
        if (!same) return name("the calls on communicator", size_t(i));
      }
      for (size_t call = 0; call < plan.size(); ++call) {
        for (size_t phase = 0; phase < plan[call].size(); ++phase) {
          const std::string found = find_in_variable(communicators.of(c), plan, call, phase);
          if (!found.empty()) return found;
        }
      }
    }
    return {};
  }

  std::string find_in_variable(std::span<const int32_t> communicators,
                               const std::vector<std::vector<int32_t>>& plan, size_t call,
                               size_t phase) {
    const Variable& shown = quotient_.variables[size_t(plan[call][phase])];
    size_t touched = 0;
    for (const LinkUse& use : shown.uses) shown_[size_t(use.link)] = use.weight;
    std::string found;
    for (const int32_t i : communicators) {
      const int32_t index = original_.plan[size_t(i)][call][phase];
      const Variable& own = original_.variables[size_t(index)];
      size_t classes = 0;
      bool same = own.bytes == shown.bytes && own.latency_ps == shown.latency_ps &&
                  own.call == shown.call && own.phase == shown.phase;
      for (const LinkUse& use : own.uses) {
        const size_t c = size_t(cohorts_.class_of_link[size_t(use.link)]);
        same &= shown_[c] > 0;
        classes += std::exchange(seen_[c], index) != index;
        touched_[touched] = use.link;
        touched += sum_[size_t(use.link)] == 0;
        sum_[size_t(use.link)] += use.weight;
      }
      if (!same || classes != shown.uses.size())
        found = name("a variable of communicator", size_t(i));
    }
    for (const int32_t link : std::span(touched_).first(touched)) {
      const size_t c = size_t(cohorts_.class_of_link[size_t(link)]);
      ++touched_of_class_[c];
      if (sum_[size_t(link)] != shown_[c]) found = name("a weight on link", size_t(link));
      sum_[size_t(link)] = 0;
    }
    for (const LinkUse& use : shown.uses) {
      const size_t c = size_t(use.link);
      if (touched_of_class_[c] != links_of_class_[c]) found = name("the links of class", c);
      touched_of_class_[c] = 0;
      shown_[c] = 0;
    }
    return found;
  }

  const System& original_;
  const Callers& callers_;
  const Cohorts& cohorts_;
  const System& quotient_;
  std::vector<int32_t> is_member_;
  int32_t members_marked_ = -1;
  // Of one variable: weight by link, weight and links touched by class of links.
  std::vector<int64_t> sum_, shown_, links_of_class_, touched_of_class_;
  std::vector<int32_t> touched_;  // links of one variable, once each
  std::vector<int32_t> seen_;     // variable that saw the class of links last
};

}  // namespace

std::string find_inequity(const System& original, const Callers& callers, const Cohorts& cohorts) {
  return Checker(original, callers, cohorts).find();
}

std::string find_inequity(const System& original, const Cohorts& cohorts) {
  return find_inequity(original, Callers(original), cohorts);
}

void check_fold(const System& original, const Cohorts& cohorts) {
  const std::string found = find_inequity(original, cohorts);
  TRN_ASSERT(found.empty(), "the fold is not equitable in " + found);
}

}  // namespace trnsim::fold
