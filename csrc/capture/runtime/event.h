// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Events: marks on a stream that other streams wait for, and between which time is measured.
//
// Each recording of an event is a mark of its own, with its own id in the Workload, since an event
// may be recorded again and again; a wait names the mark that is newest when the wait is issued.
// The work before a mark counts as finished as soon as the host asks (query is true): a script must
// not spin on a clock that only moves when it records. Times come from clock.h. The handle is owned
// by torch's Event and freed by destroy_event. O(1).
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>

namespace trnsim::capture::runtime {

struct Event {
  int64_t id = 0;               // of the newest mark
  int64_t host_ps = 0;          // when it was made, on the host's clock
  bool is_in_workload = false;  // something was being recorded then
  c10::DeviceIndex device = 0;
};

// Unique in the process, from 1.
int64_t next_event_id();

void record_mark(void** event, c10::Stream stream);
void wait_for_mark(void* event, c10::Stream stream);
void synchronize_event(void* event);
void destroy_event(void* event) noexcept;
// Milliseconds from the mark of `begin` to that of `end`, as torch counts them.
double elapsed_ms(void* begin, void* end);

}  // namespace trnsim::capture::runtime
