// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "workload/workload.h"

namespace trnsim::workload {
namespace {

TensorSlot slot(std::string name, DType dtype, std::vector<int64_t> sizes,
                std::vector<int64_t> strides, int64_t offset = 0) {
  TensorSlot out;
  out.argument = std::move(name);
  out.meta = {dtype, offset, std::move(sizes), std::move(strides)};
  return out;
}

TEST(Signature, TextIsTheOneOfTheHeader) {
  Signature mm;
  mm.op = "aten::mm";
  mm.inputs = {slot("self", DType::bfloat16, {4, 8}, {8, 1}),
               slot("mat2", DType::bfloat16, {8, 2}, {1, 8}, 16)};
  mm.outputs = {slot("out0", DType::bfloat16, {4, 2}, {2, 1})};
  EXPECT_EQ(mm.text(),
            "aten::mm(self: bfloat16[4,8], mat2: bfloat16[8,2]{1,8}+16) -> (out0: bfloat16[4,2])");
  EXPECT_EQ(Signature::parse(mm.text()), mm);
}

TEST(Signature, EveryKindOfScalarReadsBack) {
  Signature all;
  all.op = "trnsim::all";
  all.scalars = {{"whole", int64_t(-3)},
                 {"real", 0.1},
                 {"huge", std::numeric_limits<double>::infinity()},
                 {"two", 2.0},
                 {"yes", true},
                 {"no", false},
                 {"text", std::string("a \"b\" \\ , )\n]")},
                 {"empty", std::string()},
                 {"ints", std::vector<int64_t>{1, -2}},
                 {"no_ints", std::vector<int64_t>{}},
                 {"reals", std::vector<double>{1.0, 0.5}},
                 {"no_reals", std::vector<double>{}}};
  const std::string text = all.text();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(Signature::parse(text), all) << text;
  EXPECT_EQ(Signature::parse(text).text(), text);
}

TEST(Signature, ListsMutationScalarsAndOddStridesReadBack) {
  Signature cat;
  cat.op = "aten::cat.out";
  TensorSlot first = slot("tensors", DType::float32, {1, 5}, {7, 1}, 2);
  first.index = 0;
  TensorSlot second = slot("tensors", DType::float32, {0, 5}, {5, 1});
  second.index = 1;
  TensorSlot out = slot("out", DType::other, {}, {});
  out.mutated = true;
  cat.inputs = {first, second, out};
  cat.outputs = {out};
  cat.scalars = {{"dim", int64_t(0)}};
  EXPECT_EQ(Signature::parse(cat.text()), cat) << cat.text();
  EXPECT_EQ(Signature::parse("aten::rand() -> ()").op, "aten::rand");
}

TEST(Signature, BrokenTextIsAnErrorThatShowsThePlace) {
  for (const char* text :
       {"", "aten::mm", "aten::mm(", "aten::mm(self: float33[2]) -> ()",
        "aten::mm(self: float32[2]{1,1}) -> ()", "aten::mm() -> () x", "aten::mm(a=\"x) -> ()",
        "aten::mm(a=[1,2f]) -> ()", "aten::mm(a=1.5) -> ()"})
    EXPECT_THROW(Signature::parse(text), Error) << text;
}

TEST(Signature, InterningGivesEqualSignaturesOneIndex) {
  Workload workload;
  std::unordered_map<std::string, int32_t> index;
  const Signature a = Signature::parse("aten::relu(self: float32[2]) -> (out0: float32[2])");
  const Signature b = Signature::parse("aten::relu(self: float32[3]) -> (out0: float32[3])");
  EXPECT_EQ(intern_signature(workload, a, index), 0);
  EXPECT_EQ(intern_signature(workload, b, index), 1);
  EXPECT_EQ(intern_signature(workload, a, index), 0);
  EXPECT_EQ(workload.signatures.size(), 2u);
}

TEST(Signature, ScalarsAreFoundByNameAndBoolsCountAsInts) {
  const Signature s = Signature::parse("aten::x(dim=2, keepdim=true, p=0.5f) -> ()");
  EXPECT_EQ(s.int_or("dim", -1), 2);
  EXPECT_EQ(s.int_or("keepdim", -1), 1);
  EXPECT_EQ(s.int_or("p", -1), -1);
  EXPECT_EQ(s.int_or("absent", 7), 7);
  EXPECT_EQ(s.input("self"), nullptr);
}

TEST(DType, NamesReadBackAndUnknownOnesAreErrors) {
  for (int i = 0; i <= int(DType::other); ++i)
    EXPECT_EQ(dtype_from_name(dtype_name(DType(i))), DType(i));
  EXPECT_THROW(dtype_from_name("float7"), Error);
  EXPECT_EQ(dtype_bytes(DType::bfloat16), 2);
  EXPECT_EQ(dtype_bytes(DType::complex128), 16);
}

TEST(TensorMeta, ContiguityIgnoresStridesOfSingleElements) {
  EXPECT_TRUE((TensorMeta{DType::float32, 0, {1, 5}, {99, 1}}).is_contiguous());
  EXPECT_FALSE((TensorMeta{DType::float32, 0, {5, 2}, {1, 5}}).is_contiguous());
  EXPECT_TRUE((TensorMeta{DType::float32, 0, {0, 2}, {1, 5}}).is_contiguous());
  EXPECT_EQ((TensorMeta{DType::float64, 0, {3, 4}, {4, 1}}).byte_count(), 96);
}

}  // namespace
}  // namespace trnsim::workload
