// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// ProtoMessage: one protobuf message in wire format, appended field by field. Enough for a writer:
// varints, doubles, fixed64, strings and nested messages. The tests parse what it wrote with the
// schema's own library.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace trnsim::report {

class ProtoMessage {
 public:
  void add_uint(uint32_t field, uint64_t value) {
    add_tag(field, 0);
    add_varint(value);
  }
  void add_int(uint32_t field, int64_t value) { add_uint(field, uint64_t(value)); }
  void add_double(uint32_t field, double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    add_fixed64(field, bits);
  }
  void add_fixed64(uint32_t field, uint64_t bits) {
    add_tag(field, 1);
    for (int i = 0; i < 8; ++i, bits >>= 8) bytes_.push_back(char(bits & 0xff));  // little endian
  }
  void add_bytes(uint32_t field, std::string_view bytes) {
    add_tag(field, 2);
    add_varint(bytes.size());
    bytes_.append(bytes);
  }
  void add_message(uint32_t field, const ProtoMessage& message) {
    add_bytes(field, message.bytes_);
  }
  const std::string& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  void add_tag(uint32_t field, uint32_t wire_type) { add_varint(field << 3 | wire_type); }
  void add_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(char(value | 0x80));
    bytes_.push_back(char(value));
  }

  std::string bytes_;
};

}  // namespace trnsim::report
