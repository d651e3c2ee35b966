// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Errors that a user can act on, and checks of our own invariants.
//
// Error carries what happened, which value, and what to change (the hint). In _core its kind
// becomes the Python exception class: machine -> MachineError, workload -> WorkloadError, ..., all
// under TrnSimError; in _torch every kind becomes CaptureError. TRN_CHECK guards doors (user
// input); TRN_ASSERT states an invariant of ours and stays on in release builds.
#pragma once

#include <stdexcept>
#include <string>

namespace trnsim {

enum class ErrorKind { machine, workload, capture, lower, simulate, project, report };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, const std::string& hint = {})
      : std::runtime_error(hint.empty() ? message : message + ": " + hint), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

[[noreturn]] void fail_assertion(const char* condition, const char* file, int line,
                                 const std::string& message);

}  // namespace trnsim

#define TRN_CHECK(condition, kind, ...)                                              \
  do {                                                                               \
    if (!(condition)) throw ::trnsim::Error(::trnsim::ErrorKind::kind, __VA_ARGS__); \
  } while (false)

#define TRN_ASSERT(condition, message)                                                   \
  do {                                                                                   \
    if (!(condition)) ::trnsim::fail_assertion(#condition, __FILE__, __LINE__, message); \
  } while (false)
