// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Device time during a capture: what torch.Event.elapsed_time and the profiler read.
//
// Capture knows no hardware, so the time comes through a callback that trnsim installs once a
// machine is chosen. It answers when an event of the running recording completes, in picoseconds on
// this rank's uncontended timeline so far: the records up to now, lowered for the machine and laid
// on this rank's engines alone, without other ranks' traffic on shared links. It is monotone along
// a stream. Its cost is the callback's: a lowering of what was recorded, once per new event.
//
// Before a machine is chosen, or for an event recorded while nothing was being recorded, there is
// no simulated time: elapsed_time then is the host's own steady clock between the two
// event.record() calls (monotone, real, and of no meaning for the simulated machine), and Python
// warns once.
#pragma once

#include <cstdint>
#include <functional>

namespace trnsim::capture::runtime {

// Picoseconds at which the event completes; an id that the recording does not hold throws.
using EventClock = std::function<int64_t(int64_t event_id)>;

// Installs the clock; an empty function goes back to the host's clock. Thread safe.
void set_event_clock(EventClock clock);
bool has_event_clock();
int64_t event_time_ps(int64_t event_id);  // requires has_event_clock()

// The host's steady clock in picoseconds since an arbitrary start.
int64_t host_time_ps();

// Called once per process, when an elapsed time had to be read from the host's clock.
void set_host_clock_warning(std::function<void()> warn);
void warn_host_clock();

}  // namespace trnsim::capture::runtime
