// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Algorithms of collectives: what is chosen, and how long it takes alone.
#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

#include "lower/collectives.h"
#include "make.h"

namespace trnsim::lower::testing {
namespace {

using workload::CallKind;

machine::Placement placed(int64_t chips, int64_t ranks_per_chip) {
  machine::Placement placement;
  placement.chips = chips;
  placement.ranks_per_chip = ranks_per_chip;
  placement.ranks = chips * ranks_per_chip;
  return placement;
}

std::vector<int64_t> first(int64_t count) {
  std::vector<int64_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

CallTemplate make(CallKind kind, int64_t bytes, const std::vector<int64_t>& ranks,
                  const machine::Machine& machine, int64_t chips, int64_t ranks_per_chip = 1,
                  const std::string& forced = "") {
  workload::Call call;
  call.kind = kind;
  call.bytes = bytes;
  const auto shapes =
      shapes_of(workload::RankPattern::of(ranks), machine, placed(chips, ranks_per_chip));
  return make_call(call, 0, shapes, machine, forced);
}

TEST(Golden, G9_an_all_gather_of_64_MiB_on_a_server_takes_the_kanga_ring) {
  const machine::Machine machine = trainium(1);
  for (const int64_t ranks_per_chip : {1, 4}) {
    const CallTemplate call = make(CallKind::all_gather, 64 << 20, first(16 * ranks_per_chip),
                                   machine, 16, ranks_per_chip);
    EXPECT_EQ(call.algorithm, "kanga");
    EXPECT_EQ(alone_ps(call, machine), 188'976'000);
    ASSERT_EQ(call.phases.size(), 1u);
    EXPECT_EQ(call.phases[0].bytes * 4, 65'011'712);  // over the 4 links of a chip
  }
  const auto alone = [&](int64_t bytes, const std::string& algorithm) {
    const CallTemplate call =
        make(CallKind::all_gather, bytes, first(16), machine, 16, 1, algorithm);
    return double(alone_ps(call, machine)) / 1e6;
  };
  EXPECT_NEAR(alone(64 << 20, "mesh"), 595.7, 0.1);
  EXPECT_NEAR(alone(64 << 20, "rdh"), 198.8, 0.1);
  EXPECT_NEAR(alone(1 << 20, "mesh"), 12.3, 0.1);
  EXPECT_NEAR(alone(1 << 20, "rdh"), 10.5, 0.1);
  EXPECT_NEAR(alone(1 << 20, "kanga"), 64.0, 0.1);
}

// The library switches near 1 MB and 56 MB; the constants put the switches at 0.752 and 56.9 MB.
TEST(Collectives, change_algorithm_at_two_sizes) {
  const machine::Machine machine = trainium(1);
  const auto chosen = [&](int64_t bytes) {
    return make(CallKind::all_reduce, bytes, first(16), machine, 16).algorithm;
  };
  const auto crossover = [&](const std::string& below, int64_t low, int64_t high) {
    while (high - low > 1000) {
      const int64_t middle = (low + high) / 2;
      (chosen(middle) == below ? low : high) = middle;
    }
    return double(low) / 1e6;
  };
  EXPECT_EQ(chosen(4), "mesh");
  EXPECT_NEAR(crossover("mesh", 4, 10'000'000), 0.76, 0.01);
  EXPECT_NEAR(crossover("rdh", 10'000'000, 100'000'000), 57.2, 0.5);
  EXPECT_EQ(chosen(1'000'000'000), "kanga");
}

TEST(Collectives, an_all_reduce_is_a_reduce_scatter_and_an_all_gather) {
  for (const auto& [machine, chips] :
       {std::pair{trainium(1), int64_t(16)}, {trainium(4), 64}, {trainium(1), 4}}) {
    for (const int64_t bytes : {int64_t(1) << 16, int64_t(1) << 24, int64_t(1) << 28}) {
      const auto alone = [&](CallKind kind) {
        return alone_ps(make(kind, bytes, first(chips), machine, chips), machine);
      };
      EXPECT_EQ(alone(CallKind::all_reduce),
                alone(CallKind::reduce_scatter) + alone(CallKind::all_gather));
    }
  }
}

// 2 x (3/4) x (B/16) over two links of 64 GB/s, and 15/16 of B over four of 128 GB/s twice.
TEST(Collectives, four_planes_reduce_in_the_plane_and_along_z) {
  const machine::Machine machine = trainium(4);
  const int64_t bytes = int64_t(1) << 30;
  const CallTemplate call = make(CallKind::all_reduce, bytes, first(64), machine, 64);
  EXPECT_EQ(call.algorithm, "hierarchical");
  ASSERT_EQ(call.phases.size(), 4u);
  EXPECT_EQ(call.phases[1].pattern, Pattern::axis_ring);
  EXPECT_EQ(call.phases[1].axis, 2);
  EXPECT_EQ(call.phases[1].bytes + call.phases[2].bytes, 2 * 3 * (bytes / 16) / 4 / 2);
  EXPECT_EQ(call.phases[0], call.phases[3]);
}

TEST(Collectives, a_row_takes_the_ring_of_its_axis_and_odd_groups_a_plain_ring) {
  const machine::Machine machine = trainium(1);
  const CallTemplate row = make(CallKind::all_gather, 4096, {4, 5, 6, 7}, machine, 16);
  EXPECT_EQ(row.algorithm, "axis_rings");
  ASSERT_EQ(row.phases.size(), 1u);
  EXPECT_EQ(row.phases[0].axis, 0);
  EXPECT_EQ(row.phases[0].bytes, 4096 * 3 / 4 / 2);
  const CallTemplate column = make(CallKind::all_gather, 4096, {1, 5, 9, 13}, machine, 16);
  ASSERT_EQ(column.phases.size(), 1u);
  EXPECT_EQ(column.phases[0].axis, 1);
  EXPECT_EQ(make(CallKind::all_gather, 4096, {0, 1, 6}, machine, 16).algorithm, "ring");
}

TEST(Collectives, an_algorithm_that_does_not_suit_is_refused_with_those_that_do) {
  const machine::Machine machine = trainium(1);
  try {
    make(CallKind::all_reduce, 4096, {0, 1, 6}, machine, 16, 1, "kanga");
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::lower);
    EXPECT_NE(std::string(error.what()).find("use one of ring"), std::string::npos) << error.what();
  }
}

TEST(Collectives, a_group_outside_the_placement_is_refused) {
  EXPECT_THROW(make(CallKind::all_reduce, 4096, first(32), trainium(1), 16), Error);
}

// 14 us once, 2 x 7 steps of 1.9 us, 2 x 7/8 of the buffer at 370 GB/s.
TEST(Collectives, eight_gpus_take_a_ring_over_the_switch) {
  const machine::Machine machine = hopper();
  const CallTemplate call = make(CallKind::all_reduce, 370'000'000, first(8), machine, 8);
  EXPECT_EQ(call.algorithm, "ring");
  EXPECT_EQ(alone_ps(call, machine), 14'000'000 + 14 * 1'900'000 + 1'750'000'000);
  const int64_t small = alone_ps(make(CallKind::all_reduce, 4, first(8), machine, 8), machine);
  EXPECT_LT(small, 41'000'000);  // 40 us measured at 32 KiB
}

// Two servers, ranks in order: a flat ring leaves a server twice, and what a member sends passes
// both.
TEST(Collectives, of_several_pods_wait_for_the_fabric_where_the_ring_leaves_a_pod) {
  machine::Machine machine = hopper();
  machine.fabric.pods = 2;
  machine.fabric.step_ps = 20'000'000;
  const auto latency = [&](CallKind kind, const std::vector<int64_t>& ranks) {
    const std::string forced = kind == CallKind::all_to_all ? "" : "ring";
    const CallTemplate call = make(kind, 1 << 20, ranks, machine, 16, 1, forced);
    const PhaseTemplate& phase = call.phases.at(0);
    return phase.steps * phase.step_ps + phase.fixed_ps - 14'000'000;
  };
  EXPECT_EQ(latency(CallKind::all_gather, first(16)), 13 * 1'900'000 + 2 * 20'000'000);
  EXPECT_EQ(latency(CallKind::all_gather, first(8)), 7 * 1'900'000);
  EXPECT_EQ(latency(CallKind::all_gather, {0, 8}), 20'000'000);            // one step
  EXPECT_EQ(latency(CallKind::all_gather, {0, 8, 1, 9}), 3 * 20'000'000);  // never inside
  EXPECT_EQ(latency(CallKind::all_to_all, first(16)), 2 * 20'000'000);
}

// Where a group is on several switches, a send counts more on NVLink, and its bytes are the NIC's.
TEST(Collectives, of_several_pods_leave_the_nic_whole) {
  machine::Machine machine = hopper();
  machine.fabric.pods = 2;
  for (const CallKind kind : {CallKind::gather, CallKind::scatter, CallKind::all_to_all}) {
    const PhaseTemplate two = make(kind, 16 * 3700, first(16), machine, 16).phases.at(0);
    EXPECT_EQ(two.bytes * two.fabric_sends, 3700);
    EXPECT_EQ(two.bytes * two.in_pod_sends, 4500);
    const PhaseTemplate one = make(kind, 8 * 3700, first(8), machine, 16).phases.at(0);
    EXPECT_EQ(std::tuple(one.bytes, one.in_pod_sends, one.fabric_sends), std::tuple(4500, 1, 1));
  }
  machine.chip.collectives.link_efficiency = Rational::parse("0.5");
  const PhaseTemplate half = make(CallKind::gather, 16, first(16), machine, 16).phases.at(0);
  EXPECT_EQ(std::tuple(half.bytes, half.in_pod_sends, half.fabric_sends), std::tuple(1, 2, 1));
}

TEST(Collectives, send_to_every_member_what_is_theirs) {
  const machine::Machine machine = trainium(1);
  const CallTemplate all = make(CallKind::all_to_all, 16 * 1000, first(16), machine, 16);
  ASSERT_EQ(all.phases.size(), 1u);
  EXPECT_EQ(all.phases[0].pattern, Pattern::pairwise);
  EXPECT_EQ(all.phases[0].bytes, 1000);
  const CallTemplate gather = make(CallKind::gather, 16 * 1000, first(16), machine, 16);
  EXPECT_EQ(gather.phases.at(0).pattern, Pattern::all_to_one);
  EXPECT_EQ(gather.phases[0].bytes, 1000);
  EXPECT_EQ(make(CallKind::scatter, 16 * 1000, first(16), machine, 16).phases.at(0).pattern,
            Pattern::one_to_all);
}

// What 8 H200 took in the switch (ml-engineering network/README.md); a ring is as fast up to there.
TEST(Collectives, large_all_reduces_of_gpus_happen_in_a_switch_that_multicasts) {
  machine::Machine machine = hopper();
  machine.switch_multicasts = true;
  const auto call = [&](int64_t mebibytes) {
    return make(CallKind::all_reduce, mebibytes << 20, first(8), machine, 8);
  };
  for (const auto& [mebibytes, measured_us] :
       {std::pair<int64_t, double>{64, 338}, {256, 1077}, {1024, 4050}}) {
    EXPECT_EQ(call(mebibytes).algorithm, "nvls");
    EXPECT_NEAR(double(alone_ps(call(mebibytes), machine)) / 1e6 / measured_us, 1, 0.04);
  }
  EXPECT_EQ(call(1).algorithm, "ring");
  EXPECT_NEAR(double(alone_ps(call(1), machine)) / 1e6 / 46, 1, 0.04);
  EXPECT_EQ(make(CallKind::all_gather, 1 << 30, first(8), machine, 8).algorithm, "ring");
  EXPECT_THROW(make(CallKind::all_reduce, 64, first(8), hopper(), 8, 1, "nvls"), Error);
}

TEST(Collectives, exchange_axis_by_axis_when_asked_to) {
  const machine::Machine machine = trainium(4);
  const auto call =
      make(CallKind::all_to_all, 64 * 100, first(64), machine, 64, 1, "dimension_ordered");
  ASSERT_EQ(call.phases.size(), 3u);
  for (int8_t axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(call.phases[size_t(axis)].pattern, Pattern::axis_all);
    EXPECT_EQ(call.phases[size_t(axis)].axis, axis);
    EXPECT_EQ(call.phases[size_t(axis)].bytes, 16 * 100);
  }
  EXPECT_THROW(make(CallKind::all_to_all, 64, {0, 1, 6}, machine, 64, 1, "dimension_ordered"),
               Error);
}

TEST(Collectives, send_uneven_parts_as_recorded) {
  workload::Call call;
  call.kind = CallKind::all_to_all;
  call.bytes = 600;
  call.splits = {100, 200, 0, 300};
  const CallTemplate made =
      make_call(call, 0, shapes_of(workload::RankPattern::of(first(4)), trainium(1), placed(16, 1)),
                trainium(1), "");
  ASSERT_EQ(made.phases.size(), 1u);
  EXPECT_EQ(made.phases[0].pattern, Pattern::uneven);
  EXPECT_EQ(made.phases[0].parts, call.splits);
  call.received = {100, 100, 100, 100};  // as all that send alike give the first
  const GroupShapes shapes =
      shapes_of(workload::RankPattern::of(first(4)), trainium(1), placed(16, 1));
  EXPECT_EQ(make_call(call, 0, shapes, trainium(1), "").phases, made.phases);
}

// What goes there in uneven parts comes back in them, and costs all members the same phases.
TEST(Collectives, send_back_uneven_parts_as_received) {
  const std::vector<int64_t> parts{100, 200, 0, 300};
  const GroupShapes shapes =
      shapes_of(workload::RankPattern::of(first(4)), trainium(1), placed(16, 1));
  for (int64_t own = 0; own < 4; ++own) {
    workload::Call call;
    call.kind = CallKind::all_to_all;
    call.bytes = 4 * parts[size_t(own)];
    call.received = parts;
    const CallTemplate made = make_call(call, own, shapes, trainium(1), "");
    ASSERT_EQ(made.phases.size(), 1u);
    EXPECT_EQ(made.algorithm, "direct");
    EXPECT_EQ(made.phases[0].pattern, Pattern::uneven_back);
    EXPECT_EQ(made.phases[0].parts, parts);
  }
}

// Inside a chip both ways copy what one member gets of the call away.
TEST(Collectives, copy_uneven_parts_inside_a_chip_both_ways_alike) {
  const GroupShapes shapes =
      shapes_of(workload::RankPattern::of(first(4)), trainium(1), placed(16, 4));
  workload::Call there, back;
  there.kind = back.kind = CallKind::all_to_all;
  there.splits = back.received = {100'000, 200'000, 0, 300'000};
  there.bytes = 600'000;
  back.bytes = 4 * 100'000;
  const CallTemplate away = make_call(there, 0, shapes, trainium(1), "");
  EXPECT_GT(away.phases[0].fixed_ps, 0);
  EXPECT_EQ(make_call(back, 0, shapes, trainium(1), "").phases, away.phases);
}

TEST(Collectives, shift_what_goes_to_one_member) {
  const auto shift_of = [](std::vector<int64_t> splits, int64_t own,
                           std::vector<int64_t> received = {}) {
    workload::Call asked;
    asked.splits = std::move(splits);
    asked.received = std::move(received);
    return workload::shift_of(asked, own);
  };
  EXPECT_EQ(shift_of({0, 0, 9, 0}, 1), 1);
  EXPECT_EQ(shift_of({9, 0, 0, 0}, 3), 1);
  EXPECT_EQ(shift_of({0, 9, 0, 0}, 1), 0);
  EXPECT_EQ(shift_of({0, 9, 0, 1}, 1), -1);
  EXPECT_EQ(shift_of({0, 0}, 1), -1);
  EXPECT_EQ(shift_of({0, 0, 9, 0}, 1, {9, 0, 0, 0}), 1);
  EXPECT_EQ(shift_of({0, 0, 9, 0}, 1, {0, 0, 0, 9}), -1);
  EXPECT_EQ(shift_of({0, 0, 9, 0}, 2, {9, 9, 9, 9}), -1);  // all of them send to it
  EXPECT_EQ(shift_of({0, 0, 9, 0}, 1, {0, 0, 0, 0}), -1);
  workload::Call call;
  call.kind = CallKind::all_to_all;
  call.bytes = 600;
  call.splits = {600, 0, 0, 0};
  const GroupShapes shapes =
      shapes_of(workload::RankPattern::of(first(4)), trainium(1), placed(16, 1));
  const CallTemplate made = make_call(call, 2, shapes, trainium(1), "");
  ASSERT_EQ(made.phases.size(), 1u);
  EXPECT_EQ(made.phases[0].pattern, Pattern::shift);
  EXPECT_EQ(made.phases[0].distance, 2);
  // As much as a message of all bytes puts on its links.
  EXPECT_EQ(made.phases[0].bytes,
            make_call({CallKind::send, 0, 600}, 2, shapes, trainium(1), "").phases[0].bytes);
  EXPECT_EQ(make_call(call, 0, shapes, trainium(1), "").phases[0].pattern, Pattern::none);
}

// Every axis carries the whole buffer, half of it each way.
TEST(Collectives, broadcast_along_each_axis) {
  const machine::Machine machine = trainium(4);
  const CallTemplate call = make(CallKind::broadcast, 8000, first(64), machine, 64);
  ASSERT_EQ(call.phases.size(), 3u);
  for (int8_t axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(call.phases[size_t(axis)].axis, axis);
    EXPECT_EQ(call.phases[size_t(axis)].bytes, 4000);
    EXPECT_EQ(call.phases[size_t(axis)].steps, 3);
  }
}

// alpha-beta: (n - 1) steps, and the buffer over all links of the root at once. On a switch the
// root has one link, and the ring of nccl sends the buffer over it once.
TEST(Collectives, broadcast_large_buffers_at_the_rate_of_the_root) {
  const int64_t bytes = int64_t{768} << 20;
  for (const CallKind kind : {CallKind::broadcast, CallKind::reduce}) {
    const machine::Machine server = trainium(1), pod = trainium(4), eight = hopper();
    const CallTemplate plane = make(kind, bytes, first(16), server, 16);
    EXPECT_EQ(plane.algorithm, "cycles");
    EXPECT_EQ(alone_ps(plane, server), 15 * 1'500'000 + bytes / 4 * 1000 / 128);
    const CallTemplate cube = make(kind, bytes, first(64), pod, 64);
    EXPECT_EQ(cube.algorithm, "cycles");
    EXPECT_EQ(alone_ps(cube, pod), 63 * 1'500'000 + bytes / 6 * 1000 / 64);  // Z is the slowest
    const CallTemplate ring = make(kind, bytes, first(8), eight, 8);
    EXPECT_EQ(ring.algorithm, "ring");
    const machine::Collectives& nccl = eight.chip.collectives;
    const int128 slowed = int128(bytes) * nccl.link_efficiency.denominator;
    const int64_t sent = int64_t(ceil_div<int128>(slowed, nccl.link_efficiency.numerator));
    EXPECT_EQ(alone_ps(ring, eight), nccl.base_ps + 7 * nccl.ring_step_ps + eight.hop_ps +
                                         duration_ps(sent, eight.switch_port_Bps));
  }
}

// NCCL's protocol for small messages: half of the rate and shorter steps, until the other is
// faster. With the constants of NCCL and 370 of 450 GB/s that is at 6.7 MB for 8 members.
TEST(Collectives, take_the_protocol_for_small_messages_while_it_is_faster) {
  machine::Machine machine = hopper();
  machine.switch_multicasts = false;
  const auto alone = [&](int64_t bytes) {
    return alone_ps(make(CallKind::all_reduce, bytes, first(8), machine, 8), machine);
  };
  const machine::Collectives without = machine.chip.collectives;
  const int64_t small = alone(1 << 10), large = alone(int64_t{1} << 30);
  machine::Collectives& nccl = machine.chip.collectives;
  nccl.ll_base_ps = 6'600'000;
  nccl.ll_ring_step_ps = 600'000;
  nccl.ll_efficiency = Rational::of(1, 2);
  EXPECT_EQ(alone(int64_t{1} << 30), large);
  EXPECT_LT(alone(1 << 10), small);
  const auto by_hand = [&](int64_t bytes, int64_t base_ps, int64_t step_ps, int64_t divided) {
    const Rational rate = machine.switch_port_Bps * without.link_efficiency;
    return base_ps + 14 * step_ps + 2 * duration_ps(int128(bytes) * 7 * divided / 8, rate);
  };
  for (const int64_t bytes : {1 << 10, 1 << 20, 1 << 22, 1 << 23, 1 << 26}) {
    const int64_t best = std::min(by_hand(bytes, 6'600'000, 600'000, 2),
                                  by_hand(bytes, without.base_ps, without.ring_step_ps, 1));
    EXPECT_NEAR(double(alone(bytes)), double(best), 4) << bytes;
  }
}

// Scatter and all-gather, which cost as much as reduce-scatter and all-gather, and a ring in pieces
// are what any group can do.
TEST(Collectives, broadcast_no_slower_than_scatter_and_all_gather_or_a_ring) {
  const machine::Machine machine = trainium(4);
  for (const int64_t chips : {2, 3, 4, 16, 32, 48, 64}) {
    for (int64_t bytes = 8; bytes < int64_t{1} << 31; bytes *= 4) {
      const auto alone = [&](CallKind kind, const std::string& forced) {
        return alone_ps(make(kind, bytes, first(chips), machine, chips, 1, forced), machine);
      };
      const int64_t chosen = alone(CallKind::broadcast, "");
      EXPECT_LE(chosen, alone(CallKind::all_reduce, "")) << chips << " " << bytes;
      EXPECT_LE(chosen, alone(CallKind::all_reduce, "axis_rings")) << chips << " " << bytes;
      EXPECT_EQ(chosen, alone(CallKind::reduce, ""));
    }
  }
  EXPECT_THROW(make(CallKind::broadcast, 8, first(48), machine, 48, 1, "cycles"), Error);
  EXPECT_THROW(make(CallKind::all_reduce, 8, first(64), machine, 64, 1, "cycles"), Error);
}

TEST(Collectives, meet_at_a_barrier_without_a_byte) {
  const machine::Machine machine = trainium(1);
  const CallTemplate call = make(CallKind::barrier, 0, first(16), machine, 16);
  for (const PhaseTemplate& phase : call.phases) EXPECT_EQ(phase.bytes, 0);
  EXPECT_GT(alone_ps(call, machine), 0);
}

// Ranks of one index on every chip: rings along the two cycles of the plane, all four links.
TEST(Collectives, of_one_logical_core_a_chip_take_rings_of_the_plane) {
  const machine::Machine machine = trainium(1);
  std::vector<int64_t> ranks;
  for (int64_t chip = 0; chip < 16; ++chip) ranks.push_back(4 * chip + 1);
  const int64_t bytes = 16 << 20;
  const CallTemplate call = make(CallKind::all_gather, bytes, ranks, machine, 16, 4);
  EXPECT_EQ(call.algorithm, "plane_ring");
  // (n - 1) x (1.5 us + B / n / 512 GB/s)
  EXPECT_EQ(alone_ps(call, machine), 15 * 1'500'000 + 15 * (bytes / 16) * 1000 / 512);
}

TEST(Collectives, on_one_chip_use_no_link) {
  const machine::Machine machine = trainium(1);
  const CallTemplate call = make(CallKind::all_reduce, 1 << 20, {0, 1, 2, 3}, machine, 1, 4);
  EXPECT_EQ(call.algorithm, "direct");
  for (const PhaseTemplate& phase : call.phases) EXPECT_EQ(phase.pattern, Pattern::none);
}

TEST(Collectives, never_take_less_time_for_more_bytes) {
  for (const int64_t planes : {1, 4}) {
    const machine::Machine machine = trainium(planes);
    int64_t before = 0;
    for (int64_t bytes = 4; bytes < int64_t(1) << 32; bytes *= 2) {
      const int64_t now = alone_ps(
          make(CallKind::all_reduce, bytes, first(16 * planes), machine, 16 * planes), machine);
      EXPECT_GE(now, before) << bytes;
      before = now;
    }
  }
}

}  // namespace
}  // namespace trnsim::lower::testing
