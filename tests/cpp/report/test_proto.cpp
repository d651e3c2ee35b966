// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "report/trace_writer.h"

namespace trnsim::report {
namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text.push_back(char(value));
  return text;
}

TEST(ProtoMessage, FieldsAreEncodedAsTheWireFormatSays) {
  // 150 is 10010110 00000001 in groups of seven bits, least significant first (field 1, varint).
  ProtoMessage message;
  message.add_uint(1, 150);
  EXPECT_EQ(message.bytes(), bytes({0x08, 0x96, 0x01}));
  message.clear();
  message.add_bytes(2, "testing");
  EXPECT_EQ(message.bytes(), bytes({0x12, 0x07}) + "testing");
  message.clear();
  message.add_double(44, 1.0);  // tag 44 << 3 | 1 = 353
  EXPECT_EQ(message.bytes(), bytes({0xe1, 0x02, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f}));
  message.clear();
  message.add_int(1, -1);  // ten bytes: two's complement in 64 bits
  EXPECT_EQ(message.bytes(),
            bytes({0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}));
  ProtoMessage outer;
  outer.add_message(3, message);
  EXPECT_EQ(outer.bytes(), bytes({0x1a, 11}) + message.bytes());
}

struct TraceFile : testing::Test {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("trnsim_trace_" + std::to_string(testing::UnitTest::GetInstance()->random_seed()) + "_" +
       testing::UnitTest::GetInstance()->current_test_info()->name());
  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }
  size_t file_count() const {
    return size_t(std::distance(std::filesystem::directory_iterator(folder), {}));
  }
};

TEST_F(TraceFile, AppearsUnderItsNameOnlyWhenItIsFinished) {
  const auto path = folder / "a.pftrace";
  {
    TraceWriter writer(path.string());
    writer.add_process(1, "rank 0");
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.finish();
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_EQ(int64_t(std::filesystem::file_size(path)), writer.bytes_written());
  }
  EXPECT_EQ(file_count(), 1u);
}

TEST_F(TraceFile, LeavesNothingWhenItIsNotFinished) {
  {
    TraceWriter((folder / "a.pftrace").string()).add_process(1, "rank 0");
  }
  EXPECT_EQ(file_count(), 0u);
  EXPECT_THROW(TraceWriter((folder / "missing" / "a.pftrace").string()), Error);
}

TEST_F(TraceFile, NamesAreWrittenOnce) {
  const auto path = (folder / "a.pftrace").string();
  TraceWriter writer(path);
  const uint64_t track = writer.add_thread(1, 2, "tensor engine");
  for (int i = 0; i < 5; ++i) {
    writer.begin_slice(track, i * 1000, "a_long_name_of_an_op", {{"module", "a_module"}}, 0, 0);
    writer.end_slice(track, i * 1000 + 500);
  }
  writer.finish();
  std::stringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string text = content.str();
  for (const char* name : {"a_long_name_of_an_op", "a_module"}) {
    const size_t first = text.find(name);
    ASSERT_NE(first, std::string::npos);
    EXPECT_EQ(text.find(name, first + 1), std::string::npos);
  }
}

}  // namespace
}  // namespace trnsim::report
