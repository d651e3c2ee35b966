// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "project/disturbance.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "machine/clos_shape.h"
#include "machine/quantity.h"

namespace trnsim::project {
namespace {

using Kind = DisturbanceKind;

struct Sort {
  const char* name;
  Kind kind;
  const char* amount;  // key, "" where there is none; it must be given
  const char* count;   // key
  const char* other;   // "tier" or "pods", which must be given if `needs`
  bool needs;
  const char* example;
};
constexpr Sort kSorts[] = {
    {"jitter", Kind::jitter, "sigma", "", "", false, "jitter:sigma=0.01"},
    {"straggler", Kind::straggler, "factor", "chips", "", false, "straggler:chips=2,factor=1.1"},
    {"throttle", Kind::throttle, "factor", "chips", "", false, "throttle:chips=2,factor=1.3"},
    {"slow-link", Kind::slow_link, "share", "links", "tier", false, "slow-link:tier=x,share=0.5"},
    {"dead-link", Kind::slow_link, "", "links", "tier", false, "dead-link:tier=x"},
    {"dead-chip", Kind::dead_chip, "", "chips", "", false, "dead-chip"},
    {"dead-domain", Kind::domain, "", "domains", "pods", true, "dead-domain:pods=4"},
    {"dead-switch", Kind::dead_switch, "", "switches", "tier", true, "dead-switch:tier=spine"},
    {"ecmp-hash", Kind::hashed_routes, "", "", "", false, "ecmp-hash"},
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(at, begin)) != std::string::npos; begin = end + 1) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

int64_t parse_count(const std::string& value, const std::string& word) {
  const bool is_number = !value.empty() && value.size() < 10 &&
                         value.find_first_not_of("0123456789") == std::string::npos;
  TRN_CHECK(is_number && std::stoll(value) > 0, project, "'" + word + "' is no count",
            "give a whole number from 1");
  return std::stoll(value);
}

int32_t parse_sigma(const std::string& text) {
  Rational sigma{-1, 1};
  try {
    sigma = Rational::parse(text);
  } catch (const Error&) {
  }
  TRN_CHECK(!(sigma < Rational{0, 1}) && !(Rational{1, 10} < sigma), project,
            "sigma '" + text + "' is no standard deviation from 0 to 0.1",
            "give it as a share of a chip's time, such as 0.01");
  return int32_t(scale_up(1, sigma * Rational{1 << 16, 1}));
}

// Whether it is a number from `least` to `most`, alone: no time after it.
bool is_amount(const std::string& amount, int64_t least, int64_t most) {
  try {
    const Rational value = Rational::parse(amount);
    return !(value < Rational{least, 1}) && !(Rational{most, 1} < value);
  } catch (const Error&) {
    return false;
  }
}

void check_amount(const std::string& text, const Sort& sort, const std::string& amount,
                  int64_t least, int64_t most) {
  TRN_CHECK(is_amount(amount, least, most), project,
            "'" + text + "' has a " + sort.amount + " that is not from " + std::to_string(least) +
                " to " + std::to_string(most),
            std::string("write it as in ") + sort.example);
}

const Sort& find_sort(const std::string& name) {
  std::string names;
  for (const Sort& sort : kSorts) {
    if (name == sort.name) return sort;
    names += (names.empty() ? "" : ", ") + std::string(sort.name);
  }
  throw Error(ErrorKind::project, "'" + name + "' is no disturbance", "use one of " + names);
}

void set_key(const Sort& sort, const std::string& word, Disturbance& part) {
  const size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  const auto is = [&](const char* known) { return *known != 0 && key == known; };
  const bool is_switch = sort.kind == Kind::dead_switch;
  if (!value.empty() && is(sort.amount)) {
    part.amount = value;
  } else if (!value.empty() && is(sort.count)) {
    part.count = parse_count(value, word);
  } else if (!value.empty() && is(sort.other) && key == "pods") {
    part.pods = parse_count(value, word);
  } else if (!value.empty() && is(sort.other)) {
    part.tier = value;
  } else if (is_switch && !value.empty() && key == "box") {
    part.box = parse_count(value, word);
  } else if (is_switch && (word == "by=spray" || word == "by=ecmp")) {
    part.is_sprayed = word == "by=spray";
  } else {
    std::string keys;
    const char* own[] = {is_switch ? "box" : "", is_switch ? "by" : ""};
    for (const char* known : {sort.amount, sort.count, sort.other, own[0], own[1]}) {
      if (*known != 0) keys += (keys.empty() ? "" : ", ") + std::string(known) + "=";
    }
    throw Error(
        ErrorKind::project, std::string(sort.name) + " has no '" + word + "'",
        "give it " + keys + (is_switch ? " (spray or ecmp)" : "") + ", such as " + sort.example);
  }
}

Disturbance parse_part(const std::string& text) {
  const size_t colon = text.find(':');
  const Sort& sort = find_sort(text.substr(0, colon));
  Disturbance part;
  part.kind = sort.kind;
  part.name = sort.name;
  bool has_other = false;
  std::set<std::string> keys;
  if (colon != std::string::npos) {
    for (const std::string& word : split(text.substr(colon + 1), ',')) {
      set_key(sort, word, part);
      const std::string key = word.substr(0, word.find('='));
      TRN_CHECK(keys.insert(key).second, project, "'" + text + "' says its " + key + " twice",
                "say it once");
      has_other |= word.starts_with(std::string(sort.other) + "=");
    }
  }
  const std::string like = std::string("write it as in ") + sort.example;
  TRN_CHECK(*sort.amount == 0 || !part.amount.empty(), project,
            "'" + text + "' does not say its " + sort.amount, like);
  TRN_CHECK(!sort.needs || has_other, project, "'" + text + "' does not say its " + sort.other,
            like);
  if (part.kind == Kind::jitter) parse_sigma(part.amount);
  if (part.kind == Kind::straggler || part.kind == Kind::throttle) {
    check_amount(text, sort, part.amount, 1, kMostFactor);
  }
  if (part.name == "slow-link") check_amount(text, sort, part.amount, 0, 1);
  if (part.name == "dead-link") part.amount = "0";
  return part;
}

// The one of no disturbance's own is 0.
constexpr uint64_t kStream = uint64_t(1) << 32;

}  // namespace

DisturbanceSet parse_disturbance(const std::string& text) {
  DisturbanceSet set{text, {}};
  for (const std::string& part : split(text, '+')) set.parts.push_back(parse_part(part));
  int64_t pods_out = 0, jitters = 0;
  for (const Disturbance& part : set.parts) {
    pods_out += part.kind == Kind::dead_chip || part.kind == Kind::domain;
    jitters += part.kind == Kind::jitter;
  }
  TRN_CHECK(pods_out == 0 || set.parts.size() == 1, project,
            "'" + text + "' has pods out of service beside other things",
            "give what takes pods out of service alone");
  TRN_CHECK(jitters < 2, project, "'" + text + "' has two jitters", "give one");
  return set;
}

Grounds::Grounds(const machine::Machine& machine, const machine::Topology& topology,
                 int64_t chips_used, int64_t step_ps)
    : machine_(machine), topology_(topology), chips_(chips_used), step_ps_(step_ps) {}

const std::vector<int32_t>& Grounds::links_of(const std::string& tier) {
  const auto [found, is_new] = links_.try_emplace(tier);
  std::vector<int32_t>& links = found->second;
  if (!is_new) return links;
  for (int32_t link = 0; link < topology_.link_count(); ++link) {
    if (is_wide(topology_.tier(link))) continue;
    if (tier.empty() || tier == machine::tier_name(topology_.tier(link))) links.push_back(link);
  }
  return links;
}

bool Grounds::is_wide(machine::Tier tier) const {
  return machine_.fabric.paths == machine::Paths::sprayed && tier >= machine::Tier::tor_up;
}

// Whether switches of the tier stand behind wide links, by number.
bool Grounds::has_wide(const std::string& tier) const {
  if (machine_.fabric.paths != machine::Paths::sprayed) return false;
  return tier == "spine" || (tier == "leaf" && machine_.fabric.has_tor);
}

const std::vector<int32_t>& Grounds::switches_of(const std::string& tier) {
  const auto [found, is_new] = switches_.try_emplace(tier);
  if (!is_new) return found->second;
  if (has_wide(tier)) {
    const machine::ClosShape shape(machine_, topology_.chip_count(), topology_.pod_places());
    const bool has_tor = machine_.fabric.has_tor, is_top = has_tor && tier == "spine";
    const std::vector<machine::Tier> tiers = topology_.tiers();
    const machine::Tier below = is_top || !has_tor ? machine::Tier::leaf_up : machine::Tier::tor_up;
    const bool can_fill = std::find(tiers.begin(), tiers.end(), below) != tiers.end();
    const int64_t there = is_top ? shape.tops() : shape.middles();
    for (int32_t i = 0; can_fill && i < there; ++i) found->second.push_back(i);
    return found->second;
  }
  const int64_t from = topology_.pod_count() * topology_.pod_link_count();
  std::set<int32_t, std::greater<>> nodes;  // switches are below 0, the first the highest
  for (int64_t link = from; link < topology_.link_count(); ++link) {
    if (topology_.tier(int32_t(link)) < machine::Tier::tor_up) continue;  // a NIC's
    const machine::Link of = topology_.link(int32_t(link));
    nodes.insert({of.from_node, of.to_node});
  }
  for (const int32_t node : nodes) {
    if (topology_.node_name(node).starts_with(tier + " ")) found->second.push_back(node);
  }
  return found->second;
}

int64_t Grounds::domains_of(int64_t pods) const { return ceil_div(topology_.pod_count(), pods); }

int64_t Grounds::count_of(const Disturbance& part) {
  switch (part.kind) {
    case Kind::slow_link:
      return int64_t(links_of(part.tier).size());
    case Kind::dead_switch:
      return ceil_div(int64_t(switches_of(part.tier).size()), part.box);
    case Kind::domain:
      return domains_of(part.pods);
    default:
      return chips_;
  }
}

void Grounds::check(const DisturbanceSet& set) {
  std::map<std::string, int64_t> asked;
  for (const Disturbance& part : set.parts) {
    if (part.kind == Kind::jitter) continue;
    if (part.kind == Kind::hashed_routes) {
      TRN_CHECK(machine_.fabric.paths == machine::Paths::hashed && topology_.pod_count() > 1,
                project,
                "'" + set.text + "': no routes of " + std::to_string(topology_.chip_count()) +
                    " chips of " + machine_.name + " are hashed",
                "take several pods, with --set fabric.ecmp=hashed");
      continue;
    }
    const int64_t there = count_of(part);
    if (part.kind == Kind::slow_link) {
      std::string tiers;
      for (const machine::Tier tier : topology_.tiers()) {
        if (is_wide(tier)) continue;
        tiers += (tiers.empty() ? "" : ", ") + std::string(machine::tier_name(tier));
      }
      TRN_CHECK(there > 0, project,
                "'" + set.text + "': " + std::to_string(topology_.chip_count()) + " chips of " +
                    machine_.name + " have no links of tier '" + part.tier + "'",
                "use one of " + tiers + ", or leave tier out");
    }
    if (part.kind == Kind::dead_switch) {
      TRN_CHECK(there > 0, project,
                "'" + set.text + "': " + std::to_string(topology_.chip_count()) + " chips of " +
                    machine_.name + " have no switch '" + part.tier + "' with links that can fill",
                "use tor, leaf or spine, on as many pods as reach it, on a machine whose "
                "fabric.*.links are blocking");
    }
    TRN_CHECK(part.kind != Kind::dead_switch || part.is_sprayed || !has_wide(part.tier), project,
              "'" + set.text + "': " + machine_.name + " spreads packets over all paths, and no " +
                  "pair of chips keeps to one",
              "leave by=ecmp out, or take another --set fabric.ecmp");
    const bool of_chips =
        part.kind == Kind::straggler || part.kind == Kind::throttle || part.kind == Kind::dead_chip;
    int64_t& total = asked[of_chips ? "chips" : part.name + part.tier];
    total += part.count;
    TRN_CHECK(total <= there, project,
              "'" + set.text + "' takes " + std::to_string(total) + " of " + std::to_string(there),
              "take fewer");
  }
}

class Grounds::Drawing {
 public:
  Drawing(const Grounds& grounds, uint64_t seed) : of_(grounds), seed_(seed) {}

  Draw draw(const DisturbanceSet& set) {
    for (size_t i = 0; i < set.parts.size(); ++i) {
      stream_ = kStream + i;
      counter_ = 0;
      add(set.parts[i]);
    }
    return std::move(draw_);
  }

 private:
  void add(const Disturbance& part) {
    switch (part.kind) {
      case Kind::jitter:
        draw_.sigma = parse_sigma(part.amount);
        return;
      case Kind::straggler:
      case Kind::throttle:
        return add_slow_chips(part);
      case Kind::slow_link:
        return add_links(part);
      case Kind::dead_chip:
        return add_dead_chips(part);
      case Kind::domain:
        return add_domains(part);
      case Kind::dead_switch:
        return add_switches(part);
      case Kind::hashed_routes:
        draw_.hash_seed = random_bits(seed_, stream_, counter_) | 1;
        draw_.what.push_back("routes are hashed anew");
        return;
    }
  }

  int64_t next(int64_t count) {
    return int64_t(pick(random_bits(seed_, stream_, counter_++), uint64_t(count)));
  }
  // So many of `of`, ascending, none of which is_new has seen before.
  template <typename IsNew>
  std::vector<int64_t> take(int64_t count, int64_t of, const IsNew& is_new) {
    std::vector<int64_t> chosen;
    while (int64_t(chosen.size()) < count) {
      const int64_t one = next(of);
      if (is_new(one)) chosen.push_back(one);
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }
  std::vector<int64_t> take_chips(int64_t count) {
    return take(count, of_.chips_, [&](int64_t chip) { return chips_.insert(chip).second; });
  }

  void add_slow_chips(const Disturbance& part) {
    for (const int64_t chip : take_chips(part.count)) {
      std::string text = std::to_string(chip) + "=" + part.amount;
      if (part.kind == Kind::throttle) text += "@" + std::to_string(next(of_.step_ps_)) + "ps";
      draw_.slow_chips.push_back(std::move(text));
    }
  }

  void add_links(const Disturbance& part) {
    const std::vector<int32_t>& links = of_.links_.at(part.tier);
    const auto is_new = [&](int64_t index) { return links_.insert(links[size_t(index)]).second; };
    for (const int64_t index : take(part.count, int64_t(links.size()), is_new)) {
      const std::string name = of_.topology_.link_name(links[size_t(index)]);
      draw_.faults.push_back(name + "=" + part.amount);
    }
  }

  void add_dead_chips(const Disturbance& part) {
    for (const int64_t chip : take_chips(part.count)) {
      const int64_t pod = of_.topology_.pod_of(int32_t(chip));
      draw_.what.push_back("chip " + std::to_string(chip) + " is dead");
      if (draw_.pods_out.empty() || draw_.pods_out.back() != pod) draw_.pods_out.push_back(pod);
    }
  }

  void add_domains(const Disturbance& part) {
    std::set<int64_t> seen;
    const auto is_new = [&](int64_t domain) { return seen.insert(domain).second; };
    for (const int64_t domain : take(part.count, of_.domains_of(part.pods), is_new)) {
      const int64_t end = std::min((domain + 1) * part.pods, of_.topology_.pod_count());
      draw_.what.push_back("power domain " + std::to_string(domain) + " is dead");
      for (int64_t pod = domain * part.pods; pod < end; ++pod) draw_.pods_out.push_back(pod);
    }
  }

  void add_switches(const Disturbance& part) {
    const std::vector<int32_t>& nodes = of_.switches_.at(part.tier);
    const int64_t count = int64_t(nodes.size());
    std::set<int64_t> seen;
    const auto is_new = [&](int64_t box) { return seen.insert(box).second; };
    std::vector<int64_t> taken;  // indices of switches
    for (const int64_t box : take(part.count, ceil_div(count, part.box), is_new)) {
      const int64_t end = std::min(count, (box + 1) * part.box);
      for (int64_t index = box * part.box; index < end; ++index) taken.push_back(index);
    }
    if (of_.has_wide(part.tier)) return narrow(part.tier, taken);
    std::set<int32_t> sprayed;
    for (const int64_t index : taken) {
      const int32_t node = nodes[size_t(index)];
      if (!dead_.insert(node).second) continue;  // of another part of the set
      const std::string name = of_.topology_.node_name(node);
      if (part.is_sprayed && !switches_below(node).empty()) {
        sprayed.insert(node);
        draw_.what.push_back(name + " is dead, those beside it carry its share");
      } else {
        draw_.faults.push_back(name + "=0");
      }
    }
    spray(sprayed);
  }

  // Of wide links, what stands for dead switches among those behind them.
  void narrow(const std::string& tier, const std::vector<int64_t>& switches) {
    const machine::ClosShape shape(of_.machine_, of_.topology_.chip_count(),
                                   of_.topology_.pod_places());
    const bool has_tor = of_.machine_.fabric.has_tor, is_top = has_tor && tier == "spine";
    std::map<int64_t, int64_t> dead;  // by cluster
    for (const int64_t one : switches) {
      ++dead[is_top ? 0 : one / shape.planes];
      draw_.what.push_back(tier + " " + std::to_string(one) +
                           " is dead, those beside it carry its share");
    }
    const auto middle = [&](int64_t cluster) {
      return has_tor ? "leaves " + std::to_string(cluster) : std::string("spines 0");
    };
    const std::vector<machine::Tier> tiers = of_.topology_.tiers();
    const bool has_top =
        has_tor && std::find(tiers.begin(), tiers.end(), machine::Tier::leaf_up) != tiers.end();
    if (is_top) {
      const Rational share = Rational::of(shape.tops() - dead[0], shape.tops());
      for (int64_t k = 0; k < shape.clusters; ++k) leave(middle(k), "spines 0", share);
      return;
    }
    for (const auto& [cluster, count] : dead) {
      const Rational share = Rational::of(shape.planes - count, shape.planes);
      const int64_t first = cluster * shape.edges_per_cluster;
      for (int64_t edge = first; edge < shape.edges_end(cluster); ++edge) {
        leave((has_tor ? "tor " : "leaf ") + std::to_string(edge), middle(cluster), share);
      }
      if (has_top) leave(middle(cluster), "spines 0", share);
    }
  }

  // Both ways between two switches.
  void leave(const std::string& low, const std::string& high, Rational share) {
    draw_.sprayed.push_back({low + ">" + high, share});
    draw_.sprayed.push_back({high + ">" + low, share});
  }

  std::vector<int32_t> switches_below(int32_t node) const {
    std::vector<int32_t> links, below;
    of_.topology_.links_from(node, links);
    for (const int32_t link : links) {
      const machine::Link of = of_.topology_.link(link);
      const bool is_down =
          of.tier == machine::Tier::tor_down || of.tier == machine::Tier::leaf_down;
      if (is_down && of.to_node < 0) below.push_back(of.to_node);
    }
    return below;
  }
  std::vector<machine::Link> links_up(int32_t node) const {
    std::vector<int32_t> links;
    std::vector<machine::Link> up;
    of_.topology_.links_from(node, links);
    for (const int32_t link : links) {
      const machine::Link of = of_.topology_.link(link);
      if (of.tier == machine::Tier::tor_up || of.tier == machine::Tier::leaf_up) up.push_back(of);
    }
    return up;
  }

  void spray(const std::set<int32_t>& dead) {
    std::set<int32_t> below;
    for (const int32_t node : dead) {
      for (const int32_t under : switches_below(node)) below.insert(under);
    }
    std::map<std::pair<int32_t, int32_t>, Rational> left;  // of links upward
    for (const int32_t node : below) {
      const std::vector<machine::Link> up = links_up(node);
      const auto lost = std::count_if(up.begin(), up.end(), [&](const machine::Link& link) {
        return dead.contains(link.to_node);
      });
      const Rational share = Rational::of(int128(up.size()) - lost, int128(up.size()));
      for (const machine::Link& link : up) {
        left[{link.from_node, link.to_node}] = share;
        for (const machine::Link& above : links_up(link.to_node)) {
          left[{above.from_node, above.to_node}] = share;
        }
      }
    }
    for (const auto& [ends, share] : left) {
      const std::string low = of_.topology_.node_name(ends.first);
      const std::string high = of_.topology_.node_name(ends.second);
      leave(low, high, share);
    }
  }

  const Grounds& of_;
  const uint64_t seed_;
  uint64_t stream_ = 0, counter_ = 0;
  std::set<int64_t> chips_;
  std::set<int32_t> links_, dead_;
  Draw draw_;
};

Draw Grounds::draw(const DisturbanceSet& set, uint64_t seed) const {
  Draw draw = Drawing(*this, seed).draw(set);
  for (const std::string& line : describe(parse_scenario(draw.slow_chips, draw.faults))) {
    draw.what.push_back(line);
  }
  return draw;
}

}  // namespace trnsim::project
