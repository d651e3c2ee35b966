// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <algorithm>
#include <tuple>

#include "fold/layout.h"
#include "fold/made.h"
#include "fold/refine.h"

namespace trnsim::fold {
namespace {

// Whether topologies of the same number of chips have the same links and routes.
bool has_same_links(const machine::Machine& a, const machine::Machine& b) {
  const auto tier = [](const machine::SwitchTier& t) {
    return std::tuple(t.down_ports, t.up_ports, t.is_blocking);
  };
  const auto of = [&](const machine::Machine& m) {
    const machine::Fabric& f = m.fabric;
    std::vector<std::pair<std::array<int64_t, 3>, std::array<bool, 3>>> slices;
    for (const machine::Slice& slice : m.slices) slices.emplace_back(slice.extent, slice.wraps);
    return std::tuple(
        std::tuple(m.server.chips, m.scale_up, m.torus, m.switch_chips, m.switch_multicasts,
                   m.hypercube_axes, slices, m.job_chips),
        std::tuple(f.pods, f.rails, f.has_tor, tier(f.tor), tier(f.leaf), f.spine_ports, f.paths));
  };
  return of(a) == of(b);
}

// Whether the same links change: when and to what is the job's own.
bool links_alike(const Job& job, const std::vector<int32_t>& changing) {
  return std::equal(job.changing_links.begin(), job.changing_links.end(), changing.begin(),
                    changing.end(), [](const auto& of, int32_t link) { return of.first == link; });
}

// Whether two Programs call alike: they may differ in durations, bytes and latencies.
bool calls_alike(const lower::Program& a, const lower::Program& b) {
  const auto phase_alike = [](const lower::PhaseTemplate& x, const lower::PhaseTemplate& y) {
    return shape_of(x, 0) == shape_of(y, 0) && (x.bytes == 0) == (y.bytes == 0);
  };
  const auto call_alike = [&](const lower::CallTemplate& x, const lower::CallTemplate& y) {
    return std::tie(x.kind, x.group, x.peer, x.tag) == std::tie(y.kind, y.group, y.peer, y.tag) &&
           std::equal(x.phases.begin(), x.phases.end(), y.phases.begin(), y.phases.end(),
                      phase_alike);
  };
  return a.rank == b.rank && a.groups == b.groups &&
         std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(), call_alike);
}

}  // namespace

Mould::Mould(const Job& job)
    : machine_(job.machine),
      placement_(job.placement),
      rank_count_(job.rank_count),
      faults_(job.topology.faults()),
      pod_places_(job.topology.pod_places()),
      roles_(job.roles),
      odd_ranks_(job.odd_ranks) {
  check_odd(job);
  for (const auto& [link, changes] : job.changing_links) changing_links_.push_back(link);
  const std::vector<int32_t> roles = roles_of_ranks(job);
  std::optional<Layout> layout = find_blocks(job, roles);
  std::optional<Profiles> profiles;
  std::optional<Blocks> blocks;
  if (layout) {
    profiles.emplace(job, *layout);
    blocks = class_blocks(job, *layout, *profiles);
  }
  if (!blocks) {
    layout = lay_out_whole(job, roles);
    profiles.emplace(job, *layout);
    blocks = one_block();
  }
  made_ = std::make_shared<const Made>(make_blocks(job, *layout, *blocks, *profiles, false));
  ranks_ = std::make_shared<const Stripes>(layout->ranks);
  class_of_block_ = blocks->class_of;
  block_classes_ = int64_t(blocks->representative.size());
}

bool Mould::fits(const Job& job) const {
  return job.rank_count == rank_count_ && job.placement.chips == placement_.chips &&
         job.placement.ranks_per_chip == placement_.ranks_per_chip &&
         job.topology.faults() == faults_ && job.topology.pod_places() == pod_places_ &&
         has_same_links(job.machine, machine_) && job.odd_ranks == odd_ranks_ &&
         links_alike(job, changing_links_) &&
         std::equal(job.roles.begin(), job.roles.end(), roles_.begin(), roles_.end(),
                    [](const JobRole& a, const JobRole& b) {
                      return a.ranks == b.ranks && calls_alike(*a.program, *b.program);
                    });
}

Cohorts Mould::cast(const Job& job) const {
  TRN_ASSERT(fits(job), "a mould serves jobs of one shape");
  auto system = std::make_shared<System>(made_->system);
  complete(job, *made_, *system);
  Cohorts cohorts = fold_system(std::move(system), 64, false);
  std::vector<int32_t> class_of_rank, class_of_link;
  class_of_rank.reserve(size_t(rank_count_));
  const Stripes made{ranks_->width, block_classes_};
  for (int64_t rank = 0; rank < rank_count_; ++rank) {
    const int64_t block_class = class_of_block_[size_t(ranks_->block_of(rank))];
    const int64_t at = made.at(block_class, ranks_->place_of(rank));
    class_of_rank.push_back(cohorts.class_of_rank[size_t(at)]);
  }
  class_of_link.reserve(made_->link_made.size());
  for (const int32_t made : made_->link_made) {
    class_of_link.push_back(made < 0 ? -1 : cohorts.class_of_link[size_t(made)]);
  }
  return {std::move(cohorts.system), std::move(class_of_rank), {}, std::move(class_of_link)};
}

Cohorts make_cohorts(const Job& job) { return Mould(job).cast(job); }

}  // namespace trnsim::fold
