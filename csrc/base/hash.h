// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// 64-bit mixing and hashing of bytes. Never used to decide equality: only to name results.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trnsim {

// The finaliser of SplitMix64: a bijection in which every input bit moves every output bit.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Order matters: combine(combine(s, a), b) != combine(combine(s, b), a).
constexpr uint64_t combine(uint64_t seed, uint64_t value) { return mix64(seed ^ mix64(value)); }

constexpr uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0) {
  uint64_t hash = 0xcbf29ce484222325u ^ mix64(seed);
  for (const char c : bytes) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
  return mix64(hash);
}

// 16 hexadecimal digits, as every report prints a hash.
inline std::string hex16(uint64_t hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, hash >>= 4) text[size_t(i)] = kDigits[hash & 15];
  return text;
}

}  // namespace trnsim
