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
};
constexpr std::array<DTypeFacts, 19> kDTypes{{
    {"bool", 1},        {"uint8", 1},         {"int8", 1},        {"int16", 2},
    {"int32", 4},       {"int64", 8},         {"float16", 2},     {"bfloat16", 2},
    {"float32", 4},     {"float64", 8},       {"complex32", 4},   {"complex64", 8},
    {"complex128", 16}, {"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"uint16", 2},
    {"uint32", 4},      {"uint64", 8},        {"other", 1},
}};
static_assert(size_t(DType::other) + 1 == kDTypes.size());

const DTypeFacts& facts(DType dtype) { return kDTypes.at(size_t(dtype)); }

}  // namespace

int64_t dtype_bytes(DType dtype) { return facts(dtype).bytes; }
const char* dtype_name(DType dtype) { return facts(dtype).name; }

DType dtype_from_name(const std::string& name) {
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (name == kDTypes[i].name) return DType(i);
  throw Error(ErrorKind::workload, "no dtype is called '" + name + "'",
              "use one of PyTorch's names, such as float32 or bfloat16");
}

const char* marker_kind_name(MarkerKind kind) {
  switch (kind) {
    case MarkerKind::optimizer_begin:
      return "optimizer_begin";
    case MarkerKind::optimizer_end:
      return "optimizer_end";
    case MarkerKind::forward_begin:
      return "forward_begin";
    case MarkerKind::step:
      return "step";
    case MarkerKind::optimizer_skipped:
      return "optimizer_skipped";
    case MarkerKind::setup:
      return "setup";
  }
  return "?";
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
