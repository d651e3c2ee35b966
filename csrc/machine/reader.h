// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Reader: takes figures by key, checks unit and range, and converts exactly. A missing key reads as
// zero and is remembered; `finish` throws for the first key that nobody asked for (a misspelt one
// is told the missing key it resembles) or else for the first missing one. So the code that reads a
// machine is at the same time the list of keys that its file has.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "machine/machine.h"
#include "machine/quantity.h"

namespace trnsim::machine {

enum class Range { positive, not_negative, share };  // > 0; >= 0; in (0, 1]

class Reader {
 public:
  Reader(std::string machine_name, const std::vector<Figure>& figures);

  Rational rational(const std::string& key, Dimension dimension, Range range = Range::positive);
  int64_t whole(const std::string& key, Dimension dimension, Range range = Range::positive);
  int64_t time_ps(const std::string& key, Range range = Range::not_negative);  // rounded up
  std::string word(const std::string& key, const std::vector<std::string>& allowed = {});
  // A word that decides which other keys there are: its absence is an error at once.
  std::string deciding_word(const std::string& key, const std::vector<std::string>& allowed);
  std::vector<int64_t> list(const std::string& key);  // positive, ascending, not empty
  bool has(const std::string& key) const { return figures_.count(key) != 0; }
  // Last parts of the keys "prefix.<one part>", in the file's order.
  std::vector<std::string> children(const std::string& prefix) const;
  // The figures "prefix.<dtype>", of which bfloat16 and float32 have to be there.
  std::map<std::string, Rational> by_dtype(const std::string& prefix, Dimension dimension,
                                           Range range);
  // "<machine>: <key> = <value> <unit> <problem>" with the hint.
  [[noreturn]] void fail(const std::string& key, const std::string& problem,
                         const std::string& hint) const;
  void finish() const;
  const std::string& machine_name() const { return machine_name_; }

 private:
  const Figure* take(const std::string& key, Dimension dimension);

  std::string machine_name_;
  const std::vector<Figure>& in_order_;
  std::map<std::string, const Figure*> figures_;
  std::set<std::string> asked_;
  std::vector<std::string> missing_;
};

// What the chip's architecture has, and its collective library.
void read_compute(Reader& reader, Chip& chip);
void read_collectives(Reader& reader, Chip& chip);
// What NCCL takes in a switch that multicasts; after the network.
void read_multicast(Reader& reader, Machine& machine);
// Server, scale-up and fabric of the machine.
void read_network(Reader& reader, Machine& machine);

}  // namespace trnsim::machine
