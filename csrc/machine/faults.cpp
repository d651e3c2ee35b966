// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Links that are dead or slow from the start: which ones are meant, and the ways round them that no
// regular route knows.
#include <algorithm>
#include <optional>
#include <queue>

#include "machine/piece.h"

namespace trnsim::machine {
namespace {

std::optional<int64_t> number_in(const std::string& text) {
  if (text.empty() || text.size() > 9) return {};
  if (text.find_first_not_of("0123456789") != std::string::npos) return {};
  return std::stoll(text);
}

}  // namespace

void Topology::apply(const LinkFault& fault) {
  TRN_CHECK(!(Rational{1, 1} < fault.factor), machine,
            "a fault at " + fault.where + " makes its links faster",
            "write a factor between 0 (dead) and 1");
  const std::vector<int32_t> ids = find_links(fault.where);
  if (ids.empty()) {
    throw Error(ErrorKind::machine,
                "a fault names '" + fault.where +
                    "', which is no link, no neighbours and no node " + "of " +
                    std::to_string(chip_count()) + " chips of " + machine_name_,
                "write a link such as '" + (link_count_ > 0 ? link_name(0) : "x+ 0>1") +
                    "', neighbours such as '0>1', or a node such as 'chip 0'");
  }
  for (const int32_t id : ids) {
    Rational& factor = factors_.emplace(id, Rational{1, 1}).first->second;
    factor = factor * fault.factor;
    if (link(id).rate > 0) continue;
    if (dead_.empty()) dead_.assign(size_t(link_count_), false);
    dead_[size_t(id)] = true;
    if (!is_in_fabric(id)) continue;
    const int64_t plane = fabric_->plane_of(id - pod_links_from());
    if (plane >= 0) dead_planes_.insert(plane);
  }
}

std::vector<int32_t> Topology::find_links(const std::string& where) const {
  std::vector<int32_t> ids;
  const size_t arrow = where.find('>'), space = where.rfind(' ', arrow);
  const std::string left = where.substr(0, arrow);
  if (arrow != std::string::npos) {
    int32_t from = find_node(left);
    const int32_t to = find_node(where.substr(arrow + 1));
    const bool named = from == kNoNode && space != std::string::npos;  // "x+ 0>1"
    if (named) from = find_node(left.substr(space + 1));
    if (from == kNoNode || to == kNoNode) return {};
    links_from(from, ids);
    std::erase_if(ids, [&](int32_t id) {
      return link(id).to_node != to || (named && link_name(id) != where);
    });
    return ids;
  }
  const int32_t node = find_node(where);
  if (node != kNoNode) {
    links_from(node, ids);
    links_to(node, ids);
    return ids;
  }
  if (space == std::string::npos) return {};
  const int32_t chip = find_node(where.substr(space + 1));  // "nic up 5"
  if (chip == kNoNode) return {};
  links_from(chip, ids);
  links_to(chip, ids);
  std::erase_if(ids, [&](int32_t id) { return link_name(id) != where; });
  return ids;
}

int32_t Topology::find_node(const std::string& name) const {
  const size_t space = name.find(' ');
  const std::string word = space == std::string::npos ? "chip" : name.substr(0, space);
  const auto number = number_in(space == std::string::npos ? name : name.substr(space + 1));
  if (!number) return kNoNode;
  if (word == "chip") return *number < chip_count() ? int32_t(*number) : kNoNode;
  const int64_t pod_switches = pod_count_ * pod_switches_;
  if (word == "switch") return *number < pod_switches ? int32_t(-1 - *number) : kNoNode;
  for (int32_t i = 0; fabric_ && i < fabric_->switch_count(); ++i) {
    if (fabric_->switch_name(i) == name) return int32_t(-1 - pod_switches - i);
  }
  return kNoNode;
}

// Every link has one back.
void Topology::links_to(int32_t node, std::vector<int32_t>& links) const {
  std::vector<int32_t> out, back;
  links_from(node, out);
  std::vector<int32_t> neighbours;
  for (const int32_t id : out) neighbours.push_back(link(id).to_node);
  std::sort(neighbours.begin(), neighbours.end());
  neighbours.erase(std::unique(neighbours.begin(), neighbours.end()), neighbours.end());
  for (const int32_t neighbour : neighbours) links_from(neighbour, back);
  for (const int32_t id : back) {
    if (link(id).to_node == node) links.push_back(id);
  }
}

// The shortest way inside the pod over links that work; of equal ones the one found first, taking
// the links of a node in their order.
bool Topology::detour(int32_t from_chip, int32_t to_chip, std::vector<int32_t>& links) const {
  if (dead_.empty()) return false;
  std::map<int32_t, int32_t> arrived_by{{from_chip, -1}};  // node -> link
  std::queue<int32_t> queue({from_chip});
  std::vector<int32_t> out;
  while (!queue.empty() && arrived_by.count(to_chip) == 0) {
    out.clear();
    links_from(queue.front(), out);
    queue.pop();
    for (const int32_t id : out) {
      if (is_in_fabric(id) || dead_[size_t(id)]) continue;
      const int32_t next = link(id).to_node;
      if (arrived_by.emplace(next, id).second) queue.push(next);
    }
  }
  if (arrived_by.count(to_chip) == 0) return false;
  const size_t start = links.size();
  for (int32_t node = to_chip; node != from_chip; node = link(links.back()).from_node) {
    links.push_back(arrived_by[node]);
  }
  std::reverse(links.begin() + int64_t(start), links.end());
  return true;
}

// The chips of its pod that `chip` reaches, or that reach it, nearest first; ties by number.
std::vector<int32_t> Topology::chips_by_distance(int32_t chip, bool towards_it) const {
  std::vector<std::pair<size_t, int32_t>> order;
  std::vector<int32_t> links;
  const int64_t first = pod_of(chip) * pod_chips_;
  for (int32_t other = int32_t(first); other < first + pod_chips_; ++other) {
    links.clear();
    const int32_t from = towards_it ? other : chip, to = towards_it ? chip : other;
    if (route_in_pod(from, to, links)) order.emplace_back(links.size(), other);
  }
  std::sort(order.begin(), order.end());
  std::vector<int32_t> chips;
  for (const auto& [distance, other] : order) chips.push_back(other);
  return chips;
}

bool Topology::route_by_other_nics(int32_t from_chip, int32_t to_chip,
                                   std::vector<int32_t>& links) const {
  if (dead_.empty()) return false;
  const size_t start = links.size();
  const std::vector<int32_t> exits = chips_by_distance(from_chip, false);
  const std::vector<int32_t> entries = chips_by_distance(to_chip, true);
  for (const int32_t exit : exits) {
    for (const int32_t entry : entries) {
      if (route_in_pod(from_chip, exit, links) && route_in_fabric(exit, entry, links) &&
          route_in_pod(entry, to_chip, links)) {
        return true;
      }
      links.resize(start);
    }
  }
  return false;
}

}  // namespace trnsim::machine
