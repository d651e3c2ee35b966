// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A machine with some figures changed: by the user (--set) or by advice. Both rebuild it from its
// figures, so that nothing can disagree.
#include <algorithm>

#include "machine/machine.h"
#include "machine/quantity.h"

namespace trnsim::machine {
namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Length of the number that `text` begins with: decimal, exponent, and a "/" with another number.
size_t number_length(const std::string& text) {
  const auto digits = [&](size_t at) {
    while (at < text.size() && (isdigit(static_cast<unsigned char>(text[at])) || text[at] == '_'))
      ++at;
    return at;
  };
  size_t at = text.starts_with("+") || text.starts_with("-") ? 1 : 0;
  at = digits(at);
  if (at < text.size() && text[at] == '.') at = digits(at + 1);
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    const size_t sign =
        at + 1 + (at + 1 < text.size() && (text[at + 1] == '-' || text[at + 1] == '+'));
    if (digits(sign) > sign) at = digits(sign);
  }
  if (at > 0 && at + 1 < text.size() && text[at] == '/' && digits(at + 1) > at + 1) {
    at = digits(at + 1);
  }
  return at;
}

bool matches(const std::string& key, const std::string& pattern) {  // one * stands for anything
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return key == pattern;
  return key.size() + 1 >= pattern.size() && key.starts_with(pattern.substr(0, star)) &&
         key.ends_with(pattern.substr(star + 1));
}

struct Lever {
  const char* what;
  bool divides;  // the figures are times
  std::vector<const char*> keys;
};

const std::vector<Lever>& levers() {
  static const std::vector<Lever> kLevers = {
      {"hbm", false, {"chip.hbm.bandwidth"}},
      {"link.x", false, {"scale_up.bandwidth_x"}},
      {"link.y", false, {"scale_up.bandwidth_y"}},
      {"link.z", false, {"scale_up.bandwidth_z"}},
      {"link.switch", false, {"scale_up.port_bandwidth"}},
      {"link.cube", false, {"scale_up.bandwidth"}},
      {"link.nic", false, {"fabric.nic.bandwidth"}},
      {"link.fabric", false, {"fabric.port_bandwidth"}},
      {"tensor",
       false,
       {"chip.peak.physical.*", "chip.neuroncore.tensor_clock", "chip.gpu.attention.*.rate"}},
      {"vector", false, {"chip.neuroncore.vector_clock", "chip.gpu.vector_rate"}},
      {"scalar", false, {"chip.neuroncore.scalar_clock"}},
      {"gpsimd", false, {"chip.neuroncore.gpsimd_clock"}},
      {"dma", false, {"chip.neuroncore.dma_*bandwidth", "chip.neuroncore.dma_engine_peak"}},
      {"dma", true, {"chip.neuroncore.dma_descriptor_latency"}},
      {"host_link", false, {"server.host_link_bandwidth"}},
      {"launch", true, {"chip.neuroncore.launch_latency", "chip.gpu.host_launch_latency"}},
      {"latency",
       true,
       {"scale_up.hop_latency", "fabric.step_latency", "collectives.*_latency",
        "chip.neuroncore.fill_latency", "chip.neuroncore.drain_latency",
        "chip.neuroncore.dge_latency"}},
  };
  return kLevers;
}

bool reaches(const Lever& lever, const std::string& key) {
  return std::any_of(lever.keys.begin(), lever.keys.end(),
                     [&](const char* pattern) { return matches(key, pattern); });
}

// A physical peak that the file leaves to the published one becomes a figure of its own.
void add_physical_peaks(std::vector<Figure>& figures) {
  const std::string published = "chip.peak.published.", physical = "chip.peak.physical.";
  for (size_t i = 0; i < figures.size(); ++i) {
    if (!figures[i].key.starts_with(published)) continue;
    Figure copy = figures[i];
    copy.key = physical + copy.key.substr(published.size());
    const bool there = std::any_of(figures.begin(), figures.end(),
                                   [&](const Figure& figure) { return figure.key == copy.key; });
    if (!there) figures.push_back(copy);
  }
}

std::string text_of(Rational value) {
  const std::string numerator = std::to_string(value.numerator);
  return value.denominator == 1 ? numerator : numerator + "/" + std::to_string(value.denominator);
}

}  // namespace

Machine with_override(const Machine& machine, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  TRN_CHECK(equals != std::string::npos, machine, "--set " + assignment + " has no '='",
            "write --set KEY=VALUE, such as chip.hbm.bandwidth=3.2TB/s");
  const std::string key = trimmed(assignment.substr(0, equals));
  const std::string right = trimmed(assignment.substr(equals + 1));
  std::vector<Figure> figures = machine.figures;
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const Figure& figure) { return figure.key == key; });
  if (found == figures.end()) {
    std::vector<std::string> keys;
    for (const Figure& figure : figures) keys.push_back(figure.key);
    const std::string near = nearest(key, keys);
    throw Error(ErrorKind::machine,
                "--set " + assignment + ": " + machine.name + " has no figure " + key,
                near.empty() ? "see trnsim info " + machine.name : "did you mean " + near + "?");
  }
  TRN_CHECK(!right.empty(), machine, "--set " + assignment + " has no value",
            "write a value after the '='");
  const bool text = found->unit == "word" || found->unit == "list";
  const size_t length = text ? right.size() : number_length(right);
  TRN_CHECK(length > 0, machine, "--set " + assignment + ": '" + right + "' is not a number",
            "write one, such as " + found->value + " " + found->unit);
  found->value = right.substr(0, length);
  const std::string unit = trimmed(right.substr(length));
  if (!unit.empty()) found->unit = unit;
  found->source = "--set";
  found->confidence = Confidence::guessed;
  try {
    return make_machine(machine.name, machine.description, figures);
  } catch (const Error& error) {
    throw Error(ErrorKind::machine, "--set " + assignment + ": " + error.what());
  }
}

Machine scaled(const Machine& machine, const std::string& what, Rational factor) {
  TRN_CHECK(!factor.is_zero(), machine, "scaling " + what + " by zero", "use a factor above 0");
  std::vector<Figure> figures = machine.figures;
  if (what == "tensor") add_physical_peaks(figures);
  bool changed = false;
  for (const Lever& lever : levers()) {
    if (lever.what != what) continue;
    for (Figure& figure : figures) {
      if (!reaches(lever, figure.key)) continue;
      const Rational value = Rational::parse(figure.value);
      figure.value = text_of(lever.divides ? value / factor : value * factor);
      figure.source += " (" + what + " scaled by " + text_of(factor) + ")";
      figure.confidence = Confidence::guessed;
      changed = true;
    }
  }
  if (!changed) {
    std::string words;
    for (const std::string& word : scalable(machine)) words += (words.empty() ? "" : ", ") + word;
    throw Error(ErrorKind::machine, machine.name + " has nothing to scale called " + what,
                "use one of " + words);
  }
  return make_machine(machine.name, machine.description, figures);
}

std::vector<std::string> scalable(const Machine& machine) {
  std::vector<std::string> words;
  for (const Lever& lever : levers()) {
    const bool there =
        lever.what == std::string("tensor") ||
        std::any_of(machine.figures.begin(), machine.figures.end(),
                    [&](const Figure& figure) { return reaches(lever, figure.key); });
    if (there && (words.empty() || words.back() != lever.what)) words.push_back(lever.what);
  }
  return words;
}

}  // namespace trnsim::machine
