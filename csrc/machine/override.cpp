// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A machine with some figures changed: by the user (--set) or by advice. Both rebuild it from its
// figures, so that nothing can disagree.
#include <algorithm>
#include <array>
#include <utility>

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
       {"chip.peak.physical.*", "chip.neuroncore.tensor_clock", "chip.gpu.attention.*.rate",
        "chip.tpu.attention.*.rate"}},
      {"vector", false, {"chip.neuroncore.vector_clock", "chip.gpu.vector_rate"}},
      {"vector", true, {"chip.gpu.kernel_latency", "chip.tpu.fusion_latency"}},
      {"scalar", false, {"chip.neuroncore.scalar_clock"}},
      {"gpsimd", false, {"chip.neuroncore.gpsimd_clock"}},
      {"dma", false, {"chip.neuroncore.dma_*bandwidth", "chip.neuroncore.dma_engine_peak"}},
      {"dma", true, {"chip.neuroncore.dma_descriptor_latency"}},
      {"host_link", false, {"server.host_link_bandwidth"}},
      {"launch",
       true,
       {"chip.neuroncore.launch_latency", "chip.gpu.host_launch_latency",
        "chip.tpu.launch_latency"}},
      {"latency", true, {"scale_up.hop_latency", "fabric.step_latency", "collectives.*_latency"}},
      {"fill",
       true,
       {"chip.neuroncore.fill_latency", "chip.neuroncore.drain_latency",
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

const std::string kInterference = "chip.interference.";

// Figures that any machine may have and few files do: what is set becomes one, in this unit.
constexpr std::array<std::pair<const char*, const char*>, 5> kOfAnyMachine = {
    {{"site.pue", "1"},
     {"site.grid_intensity", "kg/kWh"},
     {"price.per_chip_hour", "USD/h"},
     {"power.per_chip", "W"},
     {"power.package", "W"}}};

// A share or factor that the file leaves out is 1: what is set becomes a figure.
void add_share(std::vector<Figure>& figures, const std::string& key) {
  const bool is_factor =
      std::any_of(kStackFactors.begin(), kStackFactors.end(),
                  [&](const char* name) { return key == "stack." + std::string(name); });
  const bool is_share = std::any_of(kEngines.begin(), kEngines.end(), [&](const char* engine) {
    return is_factor || key == kInterference + engine;
  });
  const bool is_there = std::any_of(figures.begin(), figures.end(),
                                    [&](const Figure& figure) { return figure.key == key; });
  if (is_share && !is_there) figures.push_back({key, "1", "1", "", Confidence::guessed});
  for (const auto& [name, unit] : kOfAnyMachine) {
    if (key == name && !is_there) figures.push_back({key, "1", unit, "", Confidence::guessed});
  }
}

std::string text_of(Rational value) {
  const std::string numerator = std::to_string(value.numerator);
  return value.denominator == 1 ? numerator : numerator + "/" + std::to_string(value.denominator);
}

bool has_unit(const Figure& figure) {
  return figure.unit != "1" && figure.unit != "word" && figure.unit != "list";
}

// Takes ",guessed" or another confidence from the end of `right`.
Confidence take_confidence(std::string& right) {
  const size_t comma = right.rfind(',');
  if (comma == std::string::npos) return Confidence::given;
  const std::string word = trimmed(right.substr(comma + 1));
  if (word.empty() || isalpha(static_cast<unsigned char>(word[0])) == 0) return Confidence::given;
  right = trimmed(right.substr(0, comma));
  return parse_confidence(word);
}

// "3.2TB/s" or "3.2 TB/s, guessed" becomes value, unit and confidence of the figure.
void set_by_hand(Figure& figure, std::string right) {
  figure.confidence = take_confidence(right);
  TRN_CHECK(!right.empty(), machine, "it has no value", "write a value after the '='");
  const bool text = figure.unit == "word" || figure.unit == "list";
  const size_t length = text ? right.size() : number_length(right);
  TRN_CHECK(length > 0, machine, "'" + right + "' is not a number",
            "write one, such as " + figure.value + (has_unit(figure) ? figure.unit : ""));
  const std::string value = right.substr(0, length), unit = trimmed(right.substr(length));
  if (unit.empty() && has_unit(figure)) {
    throw Error(ErrorKind::machine, "it has no unit",
                "write " + figure.key + "=" + value + figure.unit + " if " + figure.unit +
                    " is meant, or one of " + units_of(find_unit(figure.unit)->dimension));
  }
  figure.value = value;
  if (!unit.empty()) figure.unit = unit;
  figure.source = kSetByHand;
}

}  // namespace

std::vector<std::string> overrides_of(const Machine& machine) {
  std::vector<std::string> assignments;
  for (const Figure& figure : machine.figures) {
    if (figure.source != kSetByHand) continue;
    const bool is_given = figure.confidence == Confidence::given;
    assignments.push_back(figure.key + "=" + figure.value + (has_unit(figure) ? figure.unit : "") +
                          (is_given ? "" : std::string(",") + confidence_name(figure.confidence)));
  }
  return assignments;
}

std::vector<std::vector<Machine>> override_neighbours(const Machine& machine) {
  std::vector<std::vector<Machine>> neighbours;
  for (size_t i = 0; i < machine.figures.size(); ++i) {
    const Figure& figure = machine.figures[i];
    if (figure.source != kSetByHand) continue;
    auto& of = neighbours.emplace_back();
    if (figure.unit == "word" || figure.unit == "list") continue;
    if (Rational::parse(figure.value).numerator == 0) continue;  // half and twice are the same
    for (const Rational factor : {Rational{1, 2}, Rational{2, 1}}) {
      std::vector<Figure> figures = machine.figures;
      try {
        figures[i].value = text_of(Rational::parse(figure.value) * factor);
        of.push_back(make_machine(machine.name, machine.description, figures));
      } catch (const Error&) {  // half a link, an efficiency above 1
      }
    }
  }
  return neighbours;
}

Machine with_override(const Machine& machine, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  TRN_CHECK(equals != std::string::npos, machine, "--set " + assignment + " has no '='",
            "write --set KEY=VALUE, such as chip.hbm.bandwidth=3.2TB/s");
  const std::string key = trimmed(assignment.substr(0, equals));
  std::vector<Figure> figures = machine.figures;
  add_share(figures, key);
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const Figure& figure) { return figure.key == key; });
  if (found == figures.end()) {
    std::vector<std::string> keys;
    for (const Figure& figure : figures) keys.push_back(figure.key);
    for (const char* engine : kEngines) keys.push_back(kInterference + engine);
    for (const auto& [name, unit] : kOfAnyMachine) keys.emplace_back(name);
    const std::string near = nearest(key, keys);
    throw Error(ErrorKind::machine,
                "--set " + assignment + ": " + machine.name + " has no figure " + key,
                near.empty() ? "see trnsim info " + machine.name : "did you mean " + near + "?");
  }
  try {
    set_by_hand(*found, trimmed(assignment.substr(equals + 1)));
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
