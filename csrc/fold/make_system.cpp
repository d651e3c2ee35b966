// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "fold/made.h"

namespace trnsim::fold {

System make_system(const Job& job) {
  check_odd(job);
  const Layout layout = lay_out_whole(job, roles_of_ranks(job));
  Profiles profiles(job, layout);
  Made made = make_blocks(job, layout, one_block(), profiles, true);
  complete(job, made, made.system);
  return std::move(made.system);
}

Job one_role(std::shared_ptr<const lower::Program> program, const machine::Machine& machine,
             const machine::Topology& topology, const machine::Placement& placement,
             int64_t used_ranks) {
  TRN_CHECK(used_ranks >= 1 && used_ranks <= placement.ranks, simulate,
            std::to_string(used_ranks) + " ranks do not fit a placement of " +
                std::to_string(placement.ranks),
            "use as many ranks as were placed, or 1 for a script without process groups");
  const workload::RankPattern all{0, {{1, used_ranks}}, {}};
  return {machine, topology, placement, used_ranks, {{std::move(program), all}}};
}

System make_system(std::shared_ptr<const lower::Program> program, const machine::Machine& machine,
                   const machine::Topology& topology, const machine::Placement& placement,
                   int64_t used_ranks) {
  return make_system(one_role(std::move(program), machine, topology, placement, used_ranks));
}

}  // namespace trnsim::fold
