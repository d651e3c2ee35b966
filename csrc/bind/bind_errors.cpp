// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Error of csrc/base becomes the exception class of its kind, defined in trnsim/errors.py.
#include "base/error.h"
#include "bind/bind.h"

namespace trnsim::bind {
namespace {

const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::machine:
      return "MachineError";
    case ErrorKind::workload:
      return "WorkloadError";
    case ErrorKind::capture:
      return "CaptureError";
    case ErrorKind::lower:
      return "LowerError";
    case ErrorKind::simulate:
      return "SimulateError";
    case ErrorKind::project:
      return "ProjectError";
    case ErrorKind::report:
      return "ReportError";
  }
  return "TrnSimError";
}

}  // namespace

void bind_errors(pybind11::module_& module) {
  pybind11::register_local_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const Error& error) {
      const auto errors = pybind11::module_::import("trnsim.errors");
      PyErr_SetString(errors.attr(class_name(error.kind())).ptr(), error.what());
    }
  });
}

}  // namespace trnsim::bind
