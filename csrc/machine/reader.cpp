// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "machine/reader.h"

#include <algorithm>
#include <sstream>

namespace trnsim::machine {
namespace {

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

}  // namespace

Reader::Reader(std::string machine_name, const std::vector<Figure>& figures)
    : machine_name_(std::move(machine_name)), in_order_(figures) {
  for (const Figure& figure : figures) {
    if (!figures_.emplace(figure.key, &figure).second) {
      fail(figure.key, "stands twice", "keep one of the two");
    }
    if (figure.source.empty()) {
      fail(figure.key, "has no source", "say where the number comes from, be it a guess");
    }
  }
}

void Reader::fail(const std::string& key, const std::string& problem,
                  const std::string& hint) const {
  const auto found = figures_.find(key);
  std::string shown = key;
  if (found != figures_.end()) {
    const Figure& figure = *found->second;
    shown += " = " + figure.value;
    if (figure.unit != "1" && figure.unit != "word" && figure.unit != "list") {
      shown += " " + figure.unit;
    }
  }
  throw Error(ErrorKind::machine, machine_name_ + ": " + shown + " " + problem, hint);
}

const Figure* Reader::take(const std::string& key, Dimension dimension) {
  asked_.insert(key);
  const auto found = figures_.find(key);
  if (found == figures_.end()) {
    missing_.push_back(key);
    return nullptr;
  }
  const Unit* unit = find_unit(found->second->unit);
  if (unit == nullptr || unit->dimension != dimension) {
    fail(key, "has the unit '" + found->second->unit + "', but is " + dimension_name(dimension),
         "write it in " + units_of(dimension));
  }
  return found->second;
}

Rational Reader::rational(const std::string& key, Dimension dimension, Range range) {
  const Figure* figure = take(key, dimension);
  if (figure == nullptr) return {};
  if (figure->value.starts_with("-")) fail(key, "is negative", "write a number above 0");
  Rational value;
  try {
    value = Rational::parse(figure->value) * find_unit(figure->unit)->factor;
  } catch (const Error& error) {
    fail(key, "is not a number that can be held exactly",
         "write a decimal such as 2.4, 1e9 or 80/29, of at most 18 digits");
  }
  if (range != Range::not_negative && value.is_zero())
    fail(key, "is zero", "write a number above 0");
  if (range == Range::share && Rational{1, 1} < value) {
    fail(key, "is more than the whole", "write a share above 0 and up to 1");
  }
  return value;
}

int64_t Reader::whole(const std::string& key, Dimension dimension, Range range) {
  const Rational value = rational(key, dimension, range);
  if (value.denominator != 1) {
    fail(key, "is not whole",
         dimension == Dimension::bytes ? "write whole bytes" : "write a whole number");
  }
  return value.numerator;
}

int64_t Reader::time_ps(const std::string& key, Range range) {
  return scale_up(1, rational(key, Dimension::time, range));
}

std::string Reader::word(const std::string& key, const std::vector<std::string>& allowed) {
  const Figure* figure = take(key, Dimension::word);
  if (figure == nullptr) return {};
  if (!allowed.empty() &&
      std::find(allowed.begin(), allowed.end(), figure->value) == allowed.end()) {
    fail(key, "is not known", "write " + joined(allowed, " or "));
  }
  return figure->value;
}

std::string Reader::deciding_word(const std::string& key, const std::vector<std::string>& allowed) {
  if (!has(key)) {
    for (const Figure& figure : in_order_) {
      if (!nearest(figure.key, std::vector<std::string>{key}).empty()) {
        fail(figure.key, "is not a figure of a machine", "did you mean " + key + "?");
      }
    }
    throw Error(ErrorKind::machine, machine_name_ + ": " + key + " is missing",
                "add it with the value " + joined(allowed, " or ") + ", or extend a preset");
  }
  return word(key, allowed);
}

std::vector<int64_t> Reader::list(const std::string& key) {
  const Figure* figure = take(key, Dimension::list);
  if (figure == nullptr) return {};
  std::vector<int64_t> values;
  std::istringstream stream(figure->value);
  for (std::string part; std::getline(stream, part, ',');) {
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    const bool digits =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const int64_t value = digits ? std::stoll(part) : 0;
    if (value <= (values.empty() ? 0 : values.back())) {
      fail(key, "is not a list of ascending whole numbers", "write for example [1, 4, 8]");
    }
    values.push_back(value);
  }
  if (values.empty()) fail(key, "is empty", "write for example [1, 4, 8]");
  return values;
}

std::vector<std::string> Reader::children(const std::string& prefix) const {
  std::vector<std::string> parts;
  for (const Figure& figure : in_order_) {
    if (!figure.key.starts_with(prefix + ".")) continue;
    const std::string rest = figure.key.substr(prefix.size() + 1);
    const std::string part = rest.substr(0, rest.find('.'));
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return parts;
}

std::map<std::string, Rational> Reader::by_dtype(const std::string& prefix, Dimension dimension,
                                                 Range range) {
  static const std::vector<std::string> kDtypes = {
      "bfloat16",        "float16",       "tf32",        "float32",
      "float64",         "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
      "float8_e5m2fnuz", "int8",          "mxfp8",       "nvfp4"};
  std::map<std::string, Rational> values;
  for (const std::string& dtype : children(prefix)) {
    const std::string key = prefix + "." + dtype;
    if (std::find(kDtypes.begin(), kDtypes.end(), dtype) == kDtypes.end()) {
      const std::string near = nearest(dtype, kDtypes);
      fail(key, "is not of a dtype",
           near.empty() ? "write a PyTorch dtype, or tf32" : "did you mean " + near + "?");
    }
    values[dtype] = rational(key, dimension, range);
  }
  for (const char* dtype : {"bfloat16", "float32"}) {
    if (values.count(dtype) == 0) rational(prefix + "." + dtype, dimension, range);
  }
  return values;
}

void Reader::finish() const {
  for (const Figure& figure : in_order_) {
    if (asked_.count(figure.key) != 0) continue;
    std::string near = nearest(figure.key, missing_);
    if (near.empty()) near = nearest(figure.key, asked_);
    fail(figure.key, "is not a figure of such a machine",
         near.empty() ? "remove it" : "did you mean " + near + "?");
  }
  if (!missing_.empty()) {
    throw Error(ErrorKind::machine, machine_name_ + ": " + missing_.front() + " is missing",
                "add it as {value, unit, source, confidence}, or extend a preset that has it");
  }
}

}  // namespace trnsim::machine
