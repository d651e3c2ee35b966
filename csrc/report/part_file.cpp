// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "report/part_file.h"

#include <filesystem>

#include "base/error.h"

namespace trnsim::report {

PartFile::PartFile(const std::string& path) : path_(path), part_path_(path + ".part") {
  file_.open(part_path_, std::ios::binary | std::ios::trunc);
  TRN_CHECK(file_.is_open(), report, "cannot write " + path, "choose a folder that can be written");
}

PartFile::~PartFile() {
  if (is_finished_) return;
  file_.close();
  std::error_code ignored;  // a destructor has nobody to tell
  std::filesystem::remove(part_path_, ignored);
}

void PartFile::finish() {
  file_.close();
  TRN_CHECK(!file_.fail(), report, "cannot write " + path_, "is the disk full?");
  std::error_code error;
  std::filesystem::rename(part_path_, path_, error);
  TRN_CHECK(!error, report, "cannot write " + path_ + ": " + error.message());
  is_finished_ = true;
}

}  // namespace trnsim::report
