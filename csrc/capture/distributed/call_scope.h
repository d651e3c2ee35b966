// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Ties device events to collectives. A future of torch's knows nothing of our Work: it records an
// event when it is completed and makes the waiting stream block on it. Inside a CallScope the guard
// marks the events that are recorded as belonging to the scope's calls; blocking on such an event
// is then recorded as a wait for those calls. Per thread; outside of a scope, an event costs one
// look into a table that holds the live events of calls and is usually empty.
#pragma once

#include <cstdint>
#include <vector>

namespace trnsim::capture::distributed {

class CallScope {
 public:
  explicit CallScope(const std::vector<int32_t>& calls);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  const std::vector<int32_t>* before_;
};

// Puts this file's record, block and destroy around those of the guard's table; once.
void install_call_events();

// The calls of the innermost scope of this thread, or null outside of one.
const std::vector<int32_t>* current_calls();

}  // namespace trnsim::capture::distributed
