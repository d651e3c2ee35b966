// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "machine/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "figures.h"
#include "machine/quantity.h"

namespace trnsim::machine {
namespace {

template <typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::machine);
    return error.what();
  }
  return "nothing thrown";
}

std::string message_with(const std::string& key, const std::string& value,
                         const std::string& unit) {
  std::vector<Figure> figures = gpu_figures();
  set(figures, key, value, unit);
  return message_of([&] { make_machine("toy", "", figures); });
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST(Machine, reads_figures_exactly) {
  const Machine machine = switch_machine();
  EXPECT_EQ(machine.chip.hbm.bandwidth_Bps, (Rational{2'500'000'000'000, 1}));
  EXPECT_EQ(machine.chip.hbm.efficiency, (Rational{9, 10}));
  EXPECT_EQ(machine.chip.gpu.kernel_ps, 1'500'000);
  EXPECT_EQ(machine.chip.collectives.link_efficiency, (Rational{37, 45}));
  EXPECT_EQ(machine.chip.peaks.physical_flops, machine.chip.peaks.published_flops);
  EXPECT_EQ(machine.chip.gpu.attention.used, "quick");
  const auto& rates = machine.chip.gpu.attention.rates.at("quick");
  ASSERT_EQ(rates.size(), 1u);
  EXPECT_EQ(rates[0].head_size, 128);
  EXPECT_TRUE(rates[0].causal);
  EXPECT_FALSE(rates[0].backward);
  EXPECT_TRUE(machine.price_per_chip_hour_usd.is_zero());
}

TEST(Machine, converts_units_to_the_same_number) {
  std::vector<Figure> figures = gpu_figures();
  set(figures, "scale_up.port_bandwidth", "3200", "Gbps");
  set(figures, "chip.hbm.total", "80000000000", "bytes");
  const Machine machine = make_machine("toy", "", figures);
  EXPECT_EQ(machine.switch_port_Bps, switch_machine().switch_port_Bps);
  EXPECT_EQ(machine.chip.hbm.total_bytes, switch_machine().chip.hbm.total_bytes);
}

TEST(Machine, rounds_times_up_to_whole_picoseconds) {
  std::vector<Figure> figures = gpu_figures();
  set(figures, "chip.gpu.kernel_latency", "1/3", "ns");
  EXPECT_EQ(make_machine("toy", "", figures).chip.gpu.kernel_ps, 334);
}

TEST(Machine, names_the_nearest_key_for_an_unknown_one) {
  EXPECT_TRUE(contains(message_with("chip.hbm.bandwith", "3", "TB/s"),
                       "toy: chip.hbm.bandwith = 3 TB/s is not a figure of such a machine: did you "
                       "mean chip.hbm.bandwidth?"));
  EXPECT_TRUE(contains(message_with("chip.peak.published.bfloat61", "3", "TFLOP/s"), "bfloat16?"));
  EXPECT_TRUE(contains(message_with("chip.zzzzzzzzzzzzz", "3", "1"), "remove it"));
}

TEST(Machine, prefers_the_missing_key_when_one_is_misspelt) {
  std::vector<Figure> figures = gpu_figures();
  for (Figure& figure : figures) {
    if (figure.key == "chip.gpu.tile_rows") figure.key = "chip.gpu.tile_row";
  }
  EXPECT_TRUE(contains(message_of([&] { make_machine("toy", "", figures); }),
                       "did you mean chip.gpu.tile_rows?"));
}

TEST(Machine, refuses_every_key_that_is_missing) {
  for (const Figure& dropped : gpu_figures()) {
    if (dropped.key.find("attention") != std::string::npos) continue;
    std::vector<Figure> figures = gpu_figures();
    std::erase_if(figures, [&](const Figure& figure) { return figure.key == dropped.key; });
    const std::string message = message_of([&] { make_machine("toy", "", figures); });
    EXPECT_TRUE(contains(message, dropped.key + " is missing")) << message;
  }
}

TEST(Machine, refuses_a_unit_of_another_dimension) {
  EXPECT_TRUE(contains(message_with("chip.hbm.bandwidth", "3", "GiB"), "GB/s"));
  EXPECT_TRUE(contains(message_with("chip.hbm.total", "80", "GB/s"), "GiB"));
  EXPECT_TRUE(contains(message_with("chip.gpu.kernel_latency", "1", "1"), "us"));
  EXPECT_TRUE(contains(message_with("chip.name", "7", "1"), "word"));
  EXPECT_TRUE(contains(message_with("chip.gpu.tile_rows", "128", "furlong"), "'furlong'"));
}

TEST(Machine, refuses_values_out_of_range) {
  EXPECT_TRUE(contains(message_with("chip.hbm.bandwidth", "-3", "TB/s"), "negative"));
  EXPECT_TRUE(contains(message_with("chip.hbm.bandwidth", "0", "TB/s"), "zero"));
  EXPECT_TRUE(contains(message_with("chip.hbm.bandwidth", "fast", "TB/s"), "not a number"));
  EXPECT_TRUE(contains(message_with("chip.hbm.bandwidth", "1/0", "TB/s"), "not a number"));
  EXPECT_TRUE(contains(message_with("chip.hbm.bandwidth", "1e40", "TB/s"), "not a number"));
  EXPECT_TRUE(contains(message_with("chip.hbm.efficiency", "1.01", "1"), "whole"));
  EXPECT_TRUE(contains(message_with("chip.hbm.total", "80.3", "bytes"), "not whole"));
  EXPECT_TRUE(contains(message_with("chip.hbm.reserved", "80", "GB"), "no memory"));
  EXPECT_TRUE(contains(message_with("chip.gpu.tile_rows", "1.5", "1"), "not whole"));
  EXPECT_TRUE(contains(message_with("chip.ranks_per_chip", "2", "list"), "divide"));
  EXPECT_TRUE(contains(message_with("chip.ranks_per_chip", "4, 1", "list"), "ascending"));
  EXPECT_TRUE(contains(message_with("scale_up.kind", "tours", "word"), "torus or switch"));
  EXPECT_TRUE(contains(message_with("chip.gpu.attention.quick.d128.sideways.rate", "1", "TFLOP/s"),
                       "forward_causal"));
  EXPECT_TRUE(contains(message_with("chip.gpu.attention.d128.forward.rate", "1", "TFLOP/s"),
                       "chip.gpu.attention.<kernel>.d128"));
  EXPECT_TRUE(contains(message_with("chip.gpu.attention_kernel", "slow", "word"), "write quick"));
}

TEST(Machine, refuses_a_figure_without_source_or_twice) {
  std::vector<Figure> figures = gpu_figures();
  figures.push_back(figures.front());
  EXPECT_TRUE(contains(message_of([&] { make_machine("toy", "", figures); }), "stands twice"));
  figures.pop_back();
  figures.front().source.clear();
  EXPECT_TRUE(contains(message_of([&] { make_machine("toy", "", figures); }), "no source"));
}

TEST(Machine, hash_follows_values_and_not_order_or_source) {
  std::vector<Figure> figures = gpu_figures();
  const uint64_t hash = make_machine("toy", "", figures).hash;
  std::reverse(figures.begin(), figures.end());
  figures.front().source = "elsewhere";
  EXPECT_EQ(make_machine("toy", "", figures).hash, hash);
  set(figures, "chip.hbm.bandwidth", "2.6", "TB/s");
  EXPECT_NE(make_machine("toy", "", figures).hash, hash);
}

TEST(Override, takes_a_value_with_its_unit_as_given_by_hand) {
  const Machine machine = switch_machine();
  const Machine faster = with_override(machine, "chip.hbm.bandwidth=3.2TB/s");
  EXPECT_EQ(faster.chip.hbm.bandwidth_Bps, Rational::parse("3.2e12"));
  EXPECT_EQ(faster.figure("chip.hbm.bandwidth")->source, kSetByHand);
  EXPECT_EQ(faster.figure("chip.hbm.bandwidth")->confidence, Confidence::given);
  EXPECT_NE(faster.hash, machine.hash);
  EXPECT_EQ(with_override(machine, " chip.hbm.bandwidth = 3200 GB/s ").chip.hbm.bandwidth_Bps,
            faster.chip.hbm.bandwidth_Bps);
  const Machine unsure = with_override(machine, "chip.hbm.bandwidth=3.2 TB/s, guessed");
  EXPECT_EQ(unsure.chip.hbm.bandwidth_Bps, faster.chip.hbm.bandwidth_Bps);
  EXPECT_EQ(unsure.figure("chip.hbm.bandwidth")->confidence, Confidence::guessed);
  EXPECT_EQ(
      with_override(machine, "collectives.link_efficiency=1/3").chip.collectives.link_efficiency,
      (Rational{1, 3}));
  EXPECT_EQ(with_override(machine, "chip.gpu.kernel_latency=2e-1us").chip.gpu.kernel_ps, 200'000);
}

TEST(Override, can_be_read_back_from_the_machine) {
  Machine machine = switch_machine();
  EXPECT_TRUE(overrides_of(machine).empty());
  for (const char* assignment :
       {"chip.hbm.bandwidth=3.2TB/s,guessed", "chip.hbm.efficiency=1/2", "server.chips=4"}) {
    machine = with_override(machine, assignment);
    Machine again = switch_machine();
    for (const std::string& text : overrides_of(machine)) again = with_override(again, text);
    EXPECT_EQ(again, machine) << assignment;
  }
  EXPECT_EQ(overrides_of(machine).size(), 3u);
}

TEST(Engines, are_called_what_the_file_calls_them) {
  std::vector<Figure> figures = gpu_figures();
  figures.push_back({"chip.engine.tensor", "tensor cores", "word", "s", Confidence::published});
  const Machine machine = make_machine("toy", "", figures);
  EXPECT_EQ(machine.engine_name("tensor"), "tensor cores");
  EXPECT_EQ(machine.engine_name("vector"), "vector engine");
  figures.back().key = "chip.engine.tensr";
  const std::string message = message_of([&] { make_machine("toy", "", figures); });
  EXPECT_TRUE(contains(message, "chip.engine.tensr"));
}

TEST(Interference, is_off_unless_the_file_says_so) {
  EXPECT_EQ(switch_machine().chip.interference, kFullSpeeds);
  std::vector<Figure> figures = gpu_figures();
  set(figures, "chip.interference.dma", "0.8", "1");
  set(figures, "chip.interference.tensor", "1/3", "1");
  set(figures, "chip.interference.scalar", "1", "1");
  set(figures, "chip.interference.vector", "1e-9", "1");
  // 0.8 * 65536 = 52428.8, 65536 / 3 = 21845.33; the least is 1.
  const EngineSpeeds expected = {21845, 1, 65536, 65536, 52429};
  EXPECT_EQ(make_machine("toy", "", figures).chip.interference, expected);
  EXPECT_TRUE(contains(message_with("chip.interference.dma", "1.1", "1"), "more than the whole"));
  EXPECT_TRUE(contains(message_with("chip.interference.dma", "0", "1"), "is zero"));
  EXPECT_TRUE(contains(message_with("chip.interference.dma", "-1", "1"), "is negative"));
  EXPECT_TRUE(contains(message_with("chip.interference.dma", "1", "GB/s"), "has the unit"));
  EXPECT_TRUE(contains(message_with("chip.interference.gpsmid", "1", "1"), "did you mean gpsimd?"));
  EXPECT_TRUE(contains(message_with("chip.interference.disk", "1", "1"), "write tensor, vector"));
}

TEST(Interference, can_be_set_where_the_file_leaves_it_out) {
  const Machine machine = with_override(switch_machine(), "chip.interference.dma=0.8");
  EXPECT_EQ(machine.chip.interference[4], 52429);
  EXPECT_EQ(machine.figure("chip.interference.dma")->confidence, Confidence::given);
  EXPECT_EQ(overrides_of(machine), std::vector<std::string>{"chip.interference.dma=0.8"});
  EXPECT_EQ(with_override(machine, "chip.interference.dma=1/2").chip.interference[4], 1 << 15);
  ASSERT_EQ(override_neighbours(machine).size(), 1u);
  EXPECT_EQ(override_neighbours(machine)[0].size(), 1u);  // twice 0.8 is more than the whole
  const auto message = [](const std::string& assignment) {
    return message_of([&] { with_override(switch_machine(), assignment); });
  };
  EXPECT_TRUE(contains(message("chip.interference.dam=0.8"), "did you mean chip.interference.dma"));
  EXPECT_TRUE(contains(message("chip.interference.dma=2"), "more than the whole"));
  EXPECT_TRUE(contains(message("chip.interference.dma=fast"), "not a number"));
}

TEST(Override, refuses_what_is_no_legal_figure) {
  const auto message = [](const std::string& assignment) {
    return message_of([&] { with_override(switch_machine(), assignment); });
  };
  EXPECT_TRUE(contains(message("chip.hbm.bandwidth"), "no '='"));
  EXPECT_TRUE(contains(message("chip.hbm.bandwidth="), "no value"));
  EXPECT_TRUE(contains(message("chip.hbm.bandwidth=fast"), "not a number"));
  EXPECT_TRUE(contains(message("chip.hbm.bandwidth=-1TB/s"), "negative"));
  EXPECT_TRUE(contains(message("chip.hbm.bandwidth=3"),
                       "has no unit: write chip.hbm.bandwidth=3TB/s if TB/s is meant"));
  EXPECT_TRUE(contains(message("chip.hbm.bandwidth=3TB/s,sure"), "'sure' is not a confidence"));
  EXPECT_TRUE(contains(message("chip.hbm.bandwidth=3GiB"), "GB/s"));
  EXPECT_TRUE(contains(message("hbm.bandwidth=3"), "did you mean chip.hbm.bandwidth?"));
  EXPECT_TRUE(contains(message("chip.hbm.bandwithd=3"), "did you mean chip.hbm.bandwidth?"));
}

TEST(Scaled, changes_one_kind_and_nothing_else) {
  const Machine machine = torus_machine(4, 4, 1, 16);
  const Machine twice = scaled(machine, "link.x", {2, 1});
  EXPECT_EQ(twice.torus_axis_Bps[0], (Rational{200'000'000'000, 1}));
  EXPECT_EQ(twice.torus_axis_Bps[1], machine.torus_axis_Bps[1]);
  EXPECT_NE(twice.hash, machine.hash);
  const Machine half = scaled(machine, "launch", {2, 1});
  EXPECT_EQ(half.chip.gpu.host_launch_ps, machine.chip.gpu.host_launch_ps / 2);
  const Machine quick = scaled(machine, "latency", {2, 1});
  EXPECT_EQ(quick.chip.collectives.ring_step_ps, 1'000'000);
  EXPECT_EQ(quick.chip.collectives.base_ps, 5'000'000);
  EXPECT_EQ(quick.chip.gpu.kernel_ps, machine.chip.gpu.kernel_ps);
}

TEST(Scaled, tensor_keeps_the_peaks_that_mfu_divides_by) {
  const Machine machine = switch_machine();
  const Machine twice = scaled(machine, "tensor", {2, 1});
  EXPECT_EQ(twice.chip.peaks.published_flops, machine.chip.peaks.published_flops);
  EXPECT_EQ(twice.chip.peaks.physical_flops.at("bfloat16"), Rational::parse("200e12"));
  const AttentionRate& rate = twice.chip.gpu.attention.rates.at("quick")[0];
  EXPECT_EQ(rate.flops_inf, Rational::parse("120e12"));
  EXPECT_EQ(rate.half_length, 100);
}

TEST(Scaled, works_for_every_word_that_scalable_lists_and_no_other) {
  const Machine machine = torus_machine(4, 4, 1, 16);
  const std::vector<std::string> expected = {"hbm",    "link.x",    "link.y", "tensor",
                                             "vector", "host_link", "launch", "latency"};
  EXPECT_EQ(scalable(machine), expected);
  for (const std::string& what : expected)
    EXPECT_NE(scaled(machine, what, {3, 2}).hash, machine.hash);
  EXPECT_THROW(scaled(machine, "link.z", {2, 1}), Error);
  EXPECT_THROW(scaled(machine, "luck", {2, 1}), Error);
  EXPECT_THROW(scaled(machine, "hbm", {0, 1}), Error);
}

TEST(Nearest, counts_swapped_neighbours_as_one_edit) {
  EXPECT_EQ(edit_distance("bandwidth", "bandwidht"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(nearest("abc", std::vector<std::string>{"xyz"}), "");
}

}  // namespace trnsim::machine
