// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "report/link_pictures.h"

#include <algorithm>
#include <map>

namespace trnsim::report {
namespace {

// Of one link of a class.
struct Load {
  std::vector<double> of_bin;  // empty where it carries nothing
  double mean = 0, bytes = 0;
};

std::vector<Load> loads_of(const simulate::Timeline& timeline, const Bins& bins) {
  const fold::System& system = *timeline.system;
  std::vector<Load> loads(system.links.size());
  for (const simulate::CallSpan& span : timeline.calls) {
    const auto& phases = system.plan[size_t(span.communicator)][size_t(span.call)];
    for (size_t p = 0; p < phases.size() && p < span.entry_ps.size(); ++p) {
      const fold::Variable& variable = system.variables[size_t(phases[p])];
      const int64_t entry = span.entry_ps[p], end = span.phase_end_ps[p];
      if (variable.bytes == 0 || end <= entry) continue;
      for (const fold::LinkUse& use : variable.uses) {
        const int64_t rate = system.links[size_t(use.link)].rate;
        if (rate == 0) continue;
        Load& load = loads[size_t(use.link)];
        const double bytes = double(variable.bytes) * double(use.weight) / double(fold::kWeightOne);
        load.bytes += bytes;
        load.of_bin.resize(size_t(bins.count()), 0);
        const double full = double(rate) / double(kRateUnitsPerBps) / double(kPsPerSecond);
        const double share = bytes / full / double(end - entry);
        bins.spread(entry, end, [&](int64_t bin, int64_t ps) {
          load.of_bin[size_t(bin)] += share * double(ps) / double(bins.width(bin));
        });
        load.mean += bytes / full / double(timeline.makespan_ps);
      }
    }
  }
  return loads;
}

// How many links of a tier each class has.
using Counts = std::map<int32_t, int64_t>;

std::vector<double> percentiles_of(std::vector<std::pair<double, int64_t>> loads, int64_t links) {
  constexpr int64_t kParts = 20;
  std::sort(loads.begin(), loads.end());
  std::vector<double> percentiles;
  size_t at = 0;
  int64_t passed = 0;
  for (int64_t part = 0; part <= kParts; ++part) {
    const int64_t index = (links - 1) * part / kParts;
    while (passed + loads[at].second <= index) passed += loads[at++].second;
    percentiles.push_back(loads[at].first);
  }
  return percentiles;
}

TierRow make_tier(machine::Tier tier, const machine::Topology& topology, const Counts& counts,
                  const std::vector<Load>& loads, const Bins& bins) {
  TierRow row;
  row.tier = machine::tier_name(tier);
  row.rate_Bps = double(topology.healthy_rate(tier)) / double(kRateUnitsPerBps);
  row.mean_over_time.assign(size_t(bins.count()), 0);
  row.most_over_time.assign(size_t(bins.count()), 0);
  std::vector<std::pair<double, int64_t>> sorted;
  for (const auto& [link_class, count] : counts) {
    row.link_count += count;
    const Load* load = link_class < 0 ? nullptr : &loads[size_t(link_class)];
    const bool is_used = load && !load->of_bin.empty();
    sorted.emplace_back(is_used ? load->mean : 0, count);
    if (!is_used) continue;
    row.used_count += count;
    row.bytes += double(count) * load->bytes;
    row.mean += double(count) * load->mean;
    for (size_t bin = 0; bin < load->of_bin.size(); ++bin) {
      row.mean_over_time[bin] += double(count) * load->of_bin[bin];
      row.most_over_time[bin] = std::max(row.most_over_time[bin], load->of_bin[bin]);
    }
  }
  row.mean /= double(row.link_count);
  for (double& mean : row.mean_over_time) mean /= double(row.link_count);
  row.percentiles = percentiles_of(std::move(sorted), row.link_count);
  return row;
}

// "x+ 0>1" -> "x+", "nic up 5" -> "nic up"
std::string direction_of(const std::string& link_name) {
  return link_name.substr(0, link_name.rfind(' '));
}

std::optional<PodLinks> picture_pod(const project::Run& run, const machine::Topology& topology,
                                    int32_t busiest, const std::vector<Load>& loads) {
  const machine::Link link = topology.link(busiest);
  const int32_t chip = std::max(link.from_node, link.to_node);
  if (chip < 0 || topology.pod_chips() > kLargestPod) return {};
  PodLinks pod;
  pod.pod = topology.pod_of(chip);
  pod.chip_count = topology.pod_chips();
  pod.first_chip = pod.pod * pod.chip_count;
  std::map<std::string, std::vector<double>> of_direction;
  std::vector<int32_t> links;
  for (int64_t c = 0; c < pod.chip_count; ++c) {
    links.clear();
    topology.links_from(int32_t(pod.first_chip + c), links);
    for (const int32_t id : links) {
      auto& of_chip = of_direction[direction_of(topology.link_name(id))];
      of_chip.resize(size_t(pod.chip_count), -1);
      const int32_t link_class = run.cohorts.class_of_link[size_t(id)];
      of_chip[size_t(c)] = link_class < 0 ? 0 : loads[size_t(link_class)].mean;
    }
  }
  for (auto& [direction, of_chip] : of_direction) {
    pod.directions.push_back(direction);
    pod.loads.push_back(std::move(of_chip));
  }
  return pod;
}

}  // namespace

void add_links(const project::Run& run, const Bins& bins, StepPicture& picture) {
  const auto topology = machine::make_topology(run.machine, run.placement.chips,
                                               project::conditions_of(run.options.scenario));
  const std::vector<Load> loads = loads_of(*run.timeline, bins);
  std::map<machine::Tier, Counts> counts;
  int32_t busiest = -1;
  double most = 0;
  for (int32_t link = 0; link < topology->link_count(); ++link) {
    const int32_t link_class = run.cohorts.class_of_link[size_t(link)];
    const machine::Tier tier = topology->tier(link);
    ++counts[tier][link_class];
    const double load = link_class < 0 ? 0 : loads[size_t(link_class)].mean;
    if (load <= most || machine::is_of_fabric(tier)) continue;
    most = load;
    busiest = link;
  }
  for (const auto& [tier, of_class] : counts) {
    picture.tiers.push_back(make_tier(tier, *topology, of_class, loads, bins));
  }
  if (busiest >= 0) picture.pod = picture_pod(run, *topology, busiest, loads);
}

}  // namespace trnsim::report
