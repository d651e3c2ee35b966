// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// How far the step moves when the machine's figures move to their bounds.
#include <algorithm>
#include <cmath>

#include "project/variants.h"

namespace trnsim::project {
namespace {

struct Input {
  const char* key;  // a trailing '*' stands for any ending
  const char* group;
  bool is_time;  // slower when larger
};

// Everything that decides a duration. Sizes, counts, prices and published peaks (MFU's divisor) are
// not here: they are exact, or move no time.
constexpr Input kInputs[] = {
    {"chip.peak.physical.*", "tensor", false},
    {"chip.neuroncore.tensor_clock", "tensor", false},
    {"chip.neuroncore.tensor_efficiency", "tensor", false},
    {"chip.neuroncore.tensor_small_tile_efficiency", "tensor", false},
    {"chip.gpu.gemm_efficiency.*", "tensor", false},
    {"chip.gpu.attention.*", "attention", false},
    {"chip.tpu.gemm_efficiency.*", "tensor", false},
    {"chip.tpu.attention.*", "attention", false},
    {"chip.tpu.vmem_resident_fraction", "on-chip memory", false},
    {"chip.neuroncore.vector_*", "vector", false},
    {"chip.gpu.vector_rate", "vector", false},
    {"chip.neuroncore.scalar_clock", "scalar", false},
    {"chip.neuroncore.gpsimd_clock", "gpsimd", false},
    {"chip.hbm.bandwidth", "hbm", false},
    {"chip.hbm.efficiency", "hbm", false},
    {"chip.neuroncore.dma_engine_bandwidth", "dma", false},
    {"chip.neuroncore.dma_engine_peak", "dma", false},
    {"chip.neuroncore.dma_sbuf_to_sbuf_bandwidth", "dma", false},
    {"chip.neuroncore.dma_descriptor_latency", "dma", true},
    {"chip.neuroncore.dge_latency", "dma", true},
    {"chip.neuroncore.sbuf_resident_fraction", "on-chip memory", false},
    {"chip.interference.*", "interference", false},
    {"scale_up.bandwidth_*", "links", false},
    {"scale_up.port_bandwidth", "links", false},
    {"scale_up.bandwidth", "links", false},
    {"fabric.nic.bandwidth", "links", false},
    {"fabric.port_bandwidth", "links", false},
    {"fabric.transport.header", "transport", true},
    {"fabric.transport.loss", "transport", true},
    {"fabric.transport.round_trip", "transport", true},
    {"fabric.transport.congestion_efficiency", "transport", false},
    {"fabric.step_latency", "collective latency", true},
    {"collectives.*_efficiency", "collective efficiency", false},
    {"collectives.*_bandwidth", "collective efficiency", false},
    {"collectives.*_latency", "collective latency", true},
    {"scale_up.hop_latency", "collective latency", true},
    {"server.host_link_bandwidth", "host link", false},
    {"chip.neuroncore.launch_latency", "launch", true},
    {"chip.gpu.host_launch_latency", "launch", true},
    {"chip.gpu.kernel_latency", "launch", true},
    {"chip.tpu.launch_latency", "launch", true},
    {"chip.tpu.fusion_latency", "launch", true},
    {"chip.neuroncore.fill_latency", "fill and drain", true},
    {"chip.neuroncore.drain_latency", "fill and drain", true},
};

bool matches(const std::string& key, const std::string& pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return key == pattern;
  const std::string before = pattern.substr(0, star), after = pattern.substr(star + 1);
  return key.size() > before.size() + after.size() && key.starts_with(before) &&
         key.ends_with(after);
}

const Input* input_of(const std::string& key) {
  if (key.ends_with(".half_length")) return nullptr;  // shape of a curve, moved with its rate
  for (const Input& input : kInputs) {
    if (matches(key, input.key)) return &input;
  }
  return nullptr;
}

// Percent that a figure may be off, by what it rests on.
int64_t bound_percent(machine::Confidence confidence) {
  switch (confidence) {
    case machine::Confidence::measured:
      return 5;
    case machine::Confidence::published:
      return 10;
    case machine::Confidence::inferred:
      return 25;
    case machine::Confidence::guessed:
      return 50;
    case machine::Confidence::given:
      return 0;
  }
  return 50;
}

std::string moved(const machine::Figure& figure, bool is_time, bool faster) {
  const int64_t bound = bound_percent(figure.confidence);
  const int64_t percent = faster != is_time ? 100 + bound : 100 - bound;
  const Rational value = Rational::parse(figure.value);
  Rational result = value * Rational::of(percent, 100);
  const bool is_share = figure.unit == "1" && !(Rational{1, 1} < value);
  if (is_share && Rational{1, 1} < result) result = Rational{1, 1};
  return std::to_string(result.numerator) + "/" + std::to_string(result.denominator);
}

}  // namespace

std::string input_group_of(const std::string& key) {
  const Input* input = input_of(key);
  return input ? input->group : "";
}

std::vector<InputGroup> input_groups(const machine::Machine& machine) {
  std::vector<std::string> names;
  for (const machine::Figure& figure : machine.figures) {
    const std::string name = input_group_of(figure.key);
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) continue;
    names.push_back(name);
  }
  const std::vector<InputFigure> figures = input_figures(machine);
  std::vector<InputGroup> groups;
  for (const std::string& name : names) {
    std::vector<const InputFigure*> own;
    for (const InputFigure& figure : figures) {
      if (figure.input == name) own.push_back(&figure);
    }
    groups.push_back(
        {name, with_figures_moved(machine, own, true), with_figures_moved(machine, own, false)});
  }
  return groups;
}

std::vector<InputFigure> input_figures(const machine::Machine& machine) {
  std::vector<InputFigure> result;
  for (const machine::Figure& figure : machine.figures) {
    const Input* input = input_of(figure.key);
    const int64_t percent = bound_percent(figure.confidence);
    if (!input || percent == 0) continue;
    result.push_back({figure.key, input->group, percent, moved(figure, input->is_time, true),
                      moved(figure, input->is_time, false)});
  }
  return result;
}

machine::Machine with_figures_moved(const machine::Machine& machine,
                                    const std::vector<const InputFigure*>& moves, bool faster) {
  std::vector<machine::Figure> figures = machine.figures;
  for (machine::Figure& figure : figures) {
    for (const InputFigure* move : moves) {
      if (move->key == figure.key) figure.value = faster ? move->faster_value : move->slower_value;
    }
  }
  return machine::make_machine(machine.name, machine.description, figures);
}

void combine_interval(int64_t step_ps, const std::vector<int64_t>& faster_ps,
                      const std::vector<int64_t>& slower_ps, double own_error, int64_t& low_ps,
                      int64_t& high_ps) {
  double below = std::pow(double(step_ps) * -std::expm1(-own_error), 2);
  double above = std::pow(double(step_ps) * std::expm1(own_error), 2);
  for (size_t i = 0; i < faster_ps.size(); ++i) {
    const double low = double(step_ps - std::min({step_ps, faster_ps[i], slower_ps[i]}));
    const double high = double(std::max({step_ps, faster_ps[i], slower_ps[i]}) - step_ps);
    below += low * low;
    above += high * high;
  }
  low_ps = std::max<int64_t>(0, step_ps - int64_t(std::ceil(std::sqrt(below))));
  high_ps = step_ps + int64_t(std::ceil(std::sqrt(above)));
}

}  // namespace trnsim::project
