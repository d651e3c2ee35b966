// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Signatures as canonical text. Writing appends to one string; reading is a cursor over it. Strides
// are left out only when they are exactly the ones that parse() would put back, so that the text
// decides equality: a view of size 1 with an odd stride is another signature.
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "workload/workload.h"

namespace trnsim::workload {
namespace {

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  return strides;
}

void append(std::string& text, int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  text.append(digits, end.ptr);
}
void append(std::string& text, double value) {  // the shortest digits that read back the same
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  text.append(digits, end.ptr);
  text += 'f';
}
void append(std::string& text, bool value) { text += value ? "true" : "false"; }
void append(std::string& text, const std::string& value) {
  static constexpr char kHex[] = "0123456789abcdef";
  text += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (uint8_t(c) < 0x20) {  // one line, whatever the string holds
      text += "\\x";
      text += kHex[uint8_t(c) >> 4];
      text += kHex[uint8_t(c) & 15];
    } else {
      text += c;
    }
  }
  text += '"';
}
template <typename T>
void append_list(std::string& text, const std::vector<T>& values, char open, char close) {
  text += open;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) text += ',';
    append(text, values[i]);
  }
  text += close;
}
void append(std::string& text, const std::vector<int64_t>& values) {
  append_list(text, values, '[', ']');
}
void append(std::string& text, const std::vector<double>& values) {
  if (values.empty())
    text += "[f]";  // [] is the empty list of ints
  else
    append_list(text, values, '[', ']');
}

void append(std::string& text, const TensorSlot& slot) {
  text += slot.argument;
  if (slot.index >= 0) {
    text += '#';
    append(text, int64_t(slot.index));
  }
  if (slot.mutated) text += '!';
  text += ": ";
  text += dtype_name(slot.meta.dtype);
  append_list(text, slot.meta.sizes, '[', ']');
  if (slot.meta.strides != contiguous_strides(slot.meta.sizes))
    append_list(text, slot.meta.strides, '{', '}');
  if (slot.meta.offset != 0) {
    text += '+';
    append(text, slot.meta.offset);
  }
}

// A cursor over the text of a signature.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  Signature signature() {
    Signature signature;
    signature.op = until("(");
    expect("(");
    while (!take(")")) {
      if (!signature.inputs.empty() || !signature.scalars.empty()) expect(", ");
      const std::string name = until(":=#!");
      if (take("="))
        signature.scalars.push_back({name, value()});
      else
        signature.inputs.push_back(slot(name));
    }
    expect(" -> (");
    while (!take(")")) {
      if (!signature.outputs.empty()) expect(", ");
      signature.outputs.push_back(slot(until(":#!")));
    }
    if (at_ != text_.size()) fail("the end");
    return signature;
  }

 private:
  TensorSlot slot(const std::string& name) {
    TensorSlot slot;
    slot.argument = name;
    if (take("#")) slot.index = int32_t(integer());
    slot.mutated = take("!");
    expect(": ");
    slot.meta.dtype = dtype_from_name(until("["));
    slot.meta.sizes = integers("[", "]");
    if (peek() == '{')
      slot.meta.strides = integers("{", "}");
    else
      slot.meta.strides = contiguous_strides(slot.meta.sizes);
    if (slot.meta.strides.size() != slot.meta.sizes.size()) fail("as many strides as sizes");
    if (take("+")) slot.meta.offset = integer();
    return slot;
  }

  ScalarValue value() {
    if (take("true")) return true;
    if (take("false")) return false;
    if (peek() == '"') return quoted();
    if (peek() != '[') return number();
    expect("[");
    if (take("f]")) return std::vector<double>{};
    std::vector<int64_t> ints;
    std::vector<double> doubles;
    while (!take("]")) {
      if (!ints.empty() || !doubles.empty()) expect(",");
      const ScalarValue item = number();
      if (const auto* whole = std::get_if<int64_t>(&item))
        ints.push_back(*whole);
      else
        doubles.push_back(std::get<double>(item));
    }
    if (!ints.empty() && !doubles.empty()) fail("a list of one type");
    if (!doubles.empty()) return doubles;
    return ints;
  }

  ScalarValue number() {
    const size_t end = text_.find_first_of(",)]", at_);
    if (end == std::string::npos || end == at_) fail("a number");
    const char *first = text_.data() + at_, *last = text_.data() + end;
    at_ = end;
    if (last[-1] != 'f') {
      int64_t whole = 0;
      const auto read = std::from_chars(first, last, whole);
      if (read.ec != std::errc{} || read.ptr != last) fail("a whole number");
      return whole;
    }
    double real = 0;
    const auto read = std::from_chars(first, last - 1, real);
    if (read.ec != std::errc{} || read.ptr != last - 1) fail("a number");
    return real;
  }

  std::string quoted() {
    expect("\"");
    std::string out;
    while (!take("\"")) {
      if (take("\\x")) {
        int code = 0;
        const char* first = text_.data() + at_;
        if (at_ + 2 > text_.size() || std::from_chars(first, first + 2, code, 16).ptr != first + 2)
          fail("two hexadecimal digits");
        at_ += 2;
        out += char(code);
        continue;
      }
      take("\\");
      if (at_ >= text_.size()) fail("a closing quote");
      out += text_[at_++];
    }
    return out;
  }

  int64_t integer() {
    int64_t whole = 0;
    const char* first = text_.data() + at_;
    const auto read = std::from_chars(first, text_.data() + text_.size(), whole);
    if (read.ec != std::errc{}) fail("a whole number");
    at_ += size_t(read.ptr - first);
    return whole;
  }
  std::vector<int64_t> integers(const char* open, const char* close) {
    std::vector<int64_t> out;
    expect(open);
    while (!take(close)) {
      if (!out.empty()) expect(",");
      out.push_back(integer());
    }
    return out;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(const char* word) {
    const size_t length = std::char_traits<char>::length(word);
    if (text_.compare(at_, length, word) != 0) return false;
    at_ += length;
    return true;
  }
  void expect(const char* word) {
    if (!take(word)) fail("'" + std::string(word) + "'");
  }
  std::string until(const char* stops) {
    const size_t end = text_.find_first_of(stops, at_);
    if (end == std::string::npos) fail("one of '" + std::string(stops) + "'");
    const std::string out = text_.substr(at_, end - at_);
    at_ = end;
    return out;
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    throw Error(ErrorKind::workload, "not a signature: wanted " + wanted + " at character " +
                                         std::to_string(at_) + " of '" + text_ + "'");
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

int64_t TensorMeta::element_count() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}
int64_t TensorMeta::byte_count() const { return element_count() * dtype_bytes(dtype); }

bool TensorMeta::is_contiguous() const {
  if (element_count() == 0) return true;
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;  // a dimension of one element has no stride that matters
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

const TensorSlot* Signature::input(const std::string& argument) const {
  for (const TensorSlot& slot : inputs)
    if (slot.argument == argument) return &slot;
  return nullptr;
}
const Scalar* Signature::scalar(const std::string& name) const {
  for (const Scalar& scalar : scalars)
    if (scalar.name == name) return &scalar;
  return nullptr;
}
int64_t Signature::int_or(const std::string& name, int64_t fallback) const {
  const Scalar* found = scalar(name);
  if (!found) return fallback;
  if (const auto* whole = std::get_if<int64_t>(&found->value)) return *whole;
  if (const auto* flag = std::get_if<bool>(&found->value)) return *flag;
  return fallback;
}

std::string Signature::text() const {
  std::string text = op + "(";
  bool first = true;
  for (const TensorSlot& slot : inputs) {
    if (!first) text += ", ";
    first = false;
    append(text, slot);
  }
  for (const Scalar& scalar : scalars) {
    if (!first) text += ", ";
    first = false;
    text += scalar.name;
    text += '=';
    std::visit([&](const auto& value) { append(text, value); }, scalar.value);
  }
  text += ") -> (";
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (i) text += ", ";
    append(text, outputs[i]);
  }
  text += ')';
  return text;
}

Signature Signature::parse(const std::string& text) { return Reader(text).signature(); }

int32_t intern_signature(Workload& workload, const Signature& signature,
                         std::unordered_map<std::string, int32_t>& index) {
  const auto [entry, added] = index.try_emplace(signature.text(), 0);
  if (added) {
    entry->second = int32_t(workload.signatures.size());
    workload.signatures.push_back(signature);
  }
  return entry->second;
}

}  // namespace trnsim::workload
