// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Tables of the enums of workload.h: sizes of dtypes, and the names that files and reports use.
#include <array>

#include "base/error.h"
#include "workload/workload.h"

namespace trnsim::workload {
namespace {

struct DTypeFacts {
  const char* name;
  int64_t bytes;
  bool floating;
};
constexpr std::array<DTypeFacts, 19> kDTypes{{
    {"bool", 1, false},        {"uint8", 1, false},        {"int8", 1, false},
    {"int16", 2, false},       {"int32", 4, false},        {"int64", 8, false},
    {"float16", 2, true},      {"bfloat16", 2, true},      {"float32", 4, true},
    {"float64", 8, true},      {"complex32", 4, false},    {"complex64", 8, false},
    {"complex128", 16, false}, {"float8_e4m3fn", 1, true}, {"float8_e5m2", 1, true},
    {"uint16", 2, false},      {"uint32", 4, false},       {"uint64", 8, false},
    {"other", 1, false},
}};
static_assert(size_t(DType::other) + 1 == kDTypes.size());

const DTypeFacts& facts(DType dtype) { return kDTypes.at(size_t(dtype)); }

}  // namespace

int64_t dtype_bytes(DType dtype) { return facts(dtype).bytes; }
const char* dtype_name(DType dtype) { return facts(dtype).name; }
bool is_floating(DType dtype) { return facts(dtype).floating; }

DType dtype_from_name(const std::string& name) {
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (name == kDTypes[i].name) return DType(i);
  throw Error(ErrorKind::workload, "no dtype is called '" + name + "'",
              "use one of PyTorch's names, such as float32 or bfloat16");
}

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::recomputation:
      return "recomputation";
    case Phase::backward:
      return "backward";
    case Phase::optimizer:
      return "optimizer";
    case Phase::other:
      return "other";
  }
  return "?";
}

const char* storage_kind_name(StorageKind kind) {
  switch (kind) {
    case StorageKind::parameter:
      return "parameter";
    case StorageKind::gradient:
      return "gradient";
    case StorageKind::optimizer_state:
      return "optimizer_state";
    case StorageKind::activation:
      return "activation";
    case StorageKind::communication:
      return "communication";
    case StorageKind::buffer:
      return "buffer";
    case StorageKind::input:
      return "input";
    case StorageKind::temporary:
      return "temporary";
  }
  return "?";
}

const char* call_kind_name(CallKind kind) {
  switch (kind) {
    case CallKind::all_reduce:
      return "all_reduce";
    case CallKind::all_gather:
      return "all_gather";
    case CallKind::reduce_scatter:
      return "reduce_scatter";
    case CallKind::broadcast:
      return "broadcast";
    case CallKind::reduce:
      return "reduce";
    case CallKind::gather:
      return "gather";
    case CallKind::scatter:
      return "scatter";
    case CallKind::all_to_all:
      return "all_to_all";
    case CallKind::send:
      return "send";
    case CallKind::recv:
      return "recv";
    case CallKind::barrier:
      return "barrier";
  }
  return "?";
}

}  // namespace trnsim::workload
