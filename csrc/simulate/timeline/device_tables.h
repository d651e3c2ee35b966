// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What lanes of every kind read and never write, in the memory of a device system, as bulk_lanes.h.
#pragma once

#include "simulate/systems/device.h"
#include "simulate/timeline/tiling.h"

namespace trnsim::simulate::TRNSIM_BULK_TARGET {

class DeviceTables {
 public:
  DeviceTables(const LaneTables& tables, const Tiling& tiling) {
    load(roles_, tables.roles);
    load(tasks_, tables.tasks);
    load(deps_, tables.deps);
    load(call_queues_, tables.call_queues);
    load(tiles_, tiling.tiles);
    load(factors_, tiling.factors);
    load(first_change_, tiling.first_change);
    load(change_ps_, tiling.change_ps);
    load(change_factors_, tiling.change_factors);
  }

  void show(BulkView& view) {
    view.roles = raw(roles_);
    view.tasks = raw(tasks_);
    view.deps = raw(deps_);
    view.call_queues = raw(call_queues_);
    view.tiles = raw(tiles_);
    view.factors = raw(factors_);
    view.first_change = raw(first_change_);
    view.change_ps = raw(change_ps_);
    view.change_factors = raw(change_factors_);
  }

 private:
  Device<RoleTable> roles_;
  Device<TaskRow> tasks_;
  Device<DepRow> deps_;
  Device<Tile> tiles_;
  Device<int32_t> call_queues_, factors_, first_change_, change_factors_;
  Device<int64_t> change_ps_;
};

}  // namespace trnsim::simulate::TRNSIM_BULK_TARGET
