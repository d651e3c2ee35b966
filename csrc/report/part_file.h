// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// PartFile: a file that appears under its name only when finish() returns. Until then it is
// NAME.part, which the destructor removes.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace trnsim::report {

class PartFile {
 public:
  explicit PartFile(const std::string& path);  // throws ReportError when it cannot be opened
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  void write(std::string_view bytes) {
    file_.write(bytes.data(), std::streamsize(bytes.size()));
    bytes_written_ += int64_t(bytes.size());
  }
  int64_t bytes_written() const { return bytes_written_; }
  void finish();  // throws ReportError when the disk is full; then nothing is left behind

 private:
  std::string path_, part_path_;
  std::ofstream file_;
  int64_t bytes_written_ = 0;
  bool is_finished_ = false;
};

}  // namespace trnsim::report
