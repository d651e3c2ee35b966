// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// The step: lanes and network, alternated by events. This is the engine's table of contents.
//
//   settle   lanes run, calls whose last member arrived begin, transfers at this time enter or end
//            and release their members, until nothing happens at this time any more
//   slow     with interference: engines of chips where the first flow came or the last one left
//   solve    one allocation for the flows that are in the network now
//   advance  to the earliest next entry, end, or moment of a lane
//
// A private call, one whose links nobody else uses, needs no event: its end is known when its last
// member arrives; nor does one without bytes. With interference none is private. Everything else
// goes through Transfers. On several processes (shard.h) each settles its own lanes, then all
// hear of the calls that concern others.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "simulate/calls.h"
#include "simulate/interference.h"
#include "simulate/network/transfers.h"
#include "simulate/shard.h"
#include "simulate/timeline/lanes.h"

namespace trnsim::simulate {

class Step {
 public:
  Step(std::shared_ptr<const fold::System> system, const SimulateOptions& options);
  Timeline run();

 private:
  struct Instance {
    int32_t missing = 0;  // members that have not arrived
    int64_t first_ps = kNever, ready_ps = 0, end_ps = -1;
  };

  bool settle(int64_t now_ps);
  void slow(int64_t now_ps);
  void take_arrivals(int64_t now_ps);
  bool is_met_here(int64_t instance);
  bool settle_here(int64_t now_ps);
  bool hear_news();
  void begin(int64_t instance);
  void end(int64_t instance, int64_t end_ps);
  int64_t alone_ps(int32_t variable);
  bool ends_inside_lane(const std::vector<int32_t>& phases);
  void check_finished() const;
  void add_up(Timeline& timeline) const;
  void write_calls(Timeline& timeline);
  void report_progress(int64_t ended);
  void report_progress_sometimes();

  std::shared_ptr<const fold::System> system_;
  SimulateOptions options_;
  CallTable table_;
  Transfers transfers_;
  std::unique_ptr<Lanes> lanes_;
  std::optional<Interference> interference_;
  std::vector<Instance> instances_;
  std::vector<int64_t> alone_ps_;  // by variable, -1 until somebody asks
  std::vector<Arrival> arrivals_;
  std::vector<ArrivalNews> news_;  // of calls that other processes must hear of
  std::vector<int32_t> tasks_;     // scratch: of one call's members
  int64_t task_count_ = 0, reported_count_ = 0;
  std::chrono::steady_clock::time_point reported_at_ = {};
  std::string engine_;
};

}  // namespace trnsim::simulate
