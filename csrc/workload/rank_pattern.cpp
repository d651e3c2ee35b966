// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "workload/workload.h"

namespace trnsim::workload {
namespace {

// Coordinates of `rest` on axes order[at..], largest stride first; -1 when there are none. An axis
// is only tried where the smaller ones can still reach what is left, so regular patterns never go
// back.
int64_t find_index(const RankPattern& pattern, const std::vector<size_t>& order,
                   const std::vector<int64_t>& weights, const std::vector<int64_t>& reach,
                   size_t at, int64_t rest) {
  if (at == order.size()) return rest == 0 ? 0 : -1;
  const auto [stride, count] = pattern.axes[order[at]];
  for (int64_t i = std::min(rest / stride, count - 1); i >= 0; --i) {
    const int64_t left = rest - i * stride;
    if (left > reach[at + 1]) break;
    const int64_t inner = find_index(pattern, order, weights, reach, at + 1, left);
    if (inner >= 0) return inner + i * weights[order[at]];
  }
  return -1;
}

[[noreturn]] void fail(const std::string& text) {
  throw Error(ErrorKind::workload, "not a pattern of ranks: '" + text + "'",
              "write 0..63, 0,8,17 or start 0 axes 1x8 64x4");
}

int64_t read_integer(const std::string& word, const std::string& text) {
  int64_t value = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
  if (read.ec != std::errc{} || read.ptr != word.data() + word.size() || value < 0) fail(text);
  return value;
}

}  // namespace

int64_t RankPattern::size() const {
  if (axes.empty()) return listed.empty() ? 1 : int64_t(listed.size());
  int64_t size = 1;
  for (const auto& [stride, count] : axes) size *= count;
  return size;
}

int64_t RankPattern::rank_at(int64_t index) const {
  TRN_ASSERT(index >= 0 && index < size(), "a member outside the group");
  if (axes.empty()) return listed.empty() ? start : listed[size_t(index)];
  int64_t rank = start;
  for (const auto& [stride, count] : axes) {
    rank += stride * (index % count);
    index /= count;
  }
  return rank;
}

int64_t RankPattern::index_of(int64_t rank) const {
  if (axes.empty()) {
    if (listed.empty()) return rank == start ? 0 : -1;
    const auto found = std::find(listed.begin(), listed.end(), rank);
    return found == listed.end() ? -1 : found - listed.begin();
  }
  std::vector<int64_t> weights(axes.size(), 1), reach(axes.size() + 1, 0);
  for (size_t i = 1; i < axes.size(); ++i) weights[i] = weights[i - 1] * axes[i - 1][1];
  std::vector<size_t> order(axes.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return axes[a][0] > axes[b][0]; });
  for (size_t i = axes.size(); i-- > 0;)
    reach[i] = reach[i + 1] + axes[order[i]][0] * (axes[order[i]][1] - 1);
  if (rank < start || rank - start > reach[0]) return -1;
  return find_index(*this, order, weights, reach, 0, rank - start);
}

std::string RankPattern::problem_of(int64_t world_size) const {
  const auto outside = [&](int64_t rank) {
    return "rank " + std::to_string(rank) + " of " + std::to_string(world_size);
  };
  if (start < 0 || start >= world_size) return outside(start);
  const auto problem_of_list = [&](std::vector<int64_t> ranks) -> std::string {
    std::sort(ranks.begin(), ranks.end());
    if (ranks.front() < 0) return outside(ranks.front());
    if (ranks.back() >= world_size) return outside(ranks.back());
    const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
    return twice == ranks.end() ? "" : "rank " + std::to_string(*twice) + " twice";
  };
  if (axes.empty()) return listed.empty() ? "" : problem_of_list(listed);
  bool is_apart = true;  // strides beyond all that the smaller ones reach: no rank comes again
  std::vector<std::array<int64_t, 2>> order = axes;
  std::sort(order.begin(), order.end());
  int64_t last = start;  // the highest rank of the axes so far
  for (const auto& [stride, count] : order) {
    if (count < 1 || stride < 1) return "an axis without ranks (" + text() + ")";
    if (count - 1 > (world_size - 1 - last) / stride) return "ranks beyond " + outside(last);
    if (count > 1 && stride <= last - start) is_apart = false;
    last += stride * (count - 1);
  }
  if (is_apart) return "";
  if (size() > world_size) return "a rank twice (" + text() + ")";
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < size(); ++i) ranks.push_back(rank_at(i));
  return problem_of_list(std::move(ranks));
}

RankPattern RankPattern::of(const std::vector<int64_t>& ranks) {
  TRN_CHECK(!ranks.empty(), workload, "a group has no ranks", "give at least one");
  RankPattern pattern;
  pattern.start = ranks[0];
  if (ranks.size() == 1) return pattern;
  // The longest run of one stride is an axis; its starts are again a list of ranks.
  std::vector<int64_t> level = ranks;
  while (level.size() > 1) {
    const int64_t stride = level[1] - level[0];
    size_t count = 2;
    while (count < level.size() && level[count] - level[count - 1] == stride) ++count;
    if (stride <= 0 || level.size() % count != 0) break;
    pattern.axes.push_back({stride, int64_t(count)});
    std::vector<int64_t> starts;
    for (size_t i = 0; i < level.size(); i += count) starts.push_back(level[i]);
    level = std::move(starts);
  }
  bool regular = level.size() == 1;
  for (size_t i = 0; regular && i < ranks.size(); ++i)
    regular = pattern.rank_at(int64_t(i)) == ranks[i];
  if (!regular) {
    pattern.axes.clear();
    pattern.listed = ranks;
  }
  return pattern;
}

std::string RankPattern::text() const {
  if (axes.size() == 1 && axes[0][0] == 1)
    return std::to_string(start) + ".." + std::to_string(start + axes[0][1] - 1);
  std::string text;
  if (axes.empty()) {
    if (listed.empty()) return std::to_string(start);
    for (const int64_t rank : listed) text += (text.empty() ? "" : ",") + std::to_string(rank);
    return text;
  }
  text = "start " + std::to_string(start) + " axes";
  for (const auto& [stride, count] : axes)
    text += " " + std::to_string(stride) + "x" + std::to_string(count);
  return text;
}

RankPattern RankPattern::parse(const std::string& text) {
  RankPattern pattern;
  std::istringstream words(text);
  std::string word;
  if (!(words >> word)) fail(text);
  if (word == "start") {
    std::string start, axes;
    if (!(words >> start >> axes) || axes != "axes") fail(text);
    pattern.start = read_integer(start, text);
    while (words >> word) {
      const size_t cross = word.find('x');
      if (cross == std::string::npos) fail(text);
      pattern.axes.push_back(
          {read_integer(word.substr(0, cross), text), read_integer(word.substr(cross + 1), text)});
      if (pattern.axes.back()[0] < 1 || pattern.axes.back()[1] < 1) fail(text);
    }
    if (pattern.axes.empty()) fail(text);
    return pattern;
  }
  if (const size_t dots = word.find(".."); dots != std::string::npos) {
    pattern.start = read_integer(word.substr(0, dots), text);
    const int64_t last = read_integer(word.substr(dots + 2), text);
    if (last < pattern.start || words >> word) fail(text);
    pattern.axes.push_back({1, last - pattern.start + 1});
    return pattern;
  }
  std::vector<int64_t> ranks;
  std::istringstream list(text);
  while (std::getline(list, word, ',')) ranks.push_back(read_integer(word, text));
  return of(ranks);
}

}  // namespace trnsim::workload
