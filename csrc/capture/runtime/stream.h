// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// Streams of the simulated device: names for orders of work, with no queue behind them.
//
// In compute mode the CPU has done an op when its call returns, in phantom mode there is nothing to
// do, so a stream is only a number that every record carries; the engine gives it its meaning. A
// stream id is unique in the process: 0 is the default stream of every device (a script uses one
// device per rank), and new streams count from 1. The current stream is kept per thread and device,
// as in CUDA; autograd sets it for backward. Waiting is recorded, never waited: a synchronize is a
// host_read record of the stream. O(1), except synchronize_device: O(streams of the device).
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

namespace trnsim::capture::runtime {

c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device);
// Makes `stream` the thread's current one on its device, and returns the one before.
c10::Stream exchange_stream(c10::Stream stream);

// A stream of its own. Priority: lower is more urgent, as in CUDA; clamped to the range below.
c10::Stream new_stream(c10::DeviceIndex device, int priority);
// One of 32 shared streams per device and urgency, handed out in turn.
c10::Stream pool_stream(c10::DeviceIndex device, bool is_high_priority);
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -1;
int stream_priority(c10::Stream stream);

// Host waits: a host_read record on the stream.
void synchronize_stream(c10::Stream stream);
void synchronize_device(c10::DeviceIndex device);

// Where waits of the host for single events stand, so that they hold up no stream of the script.
c10::Stream host_wait_stream(c10::DeviceIndex device);

}  // namespace trnsim::capture::runtime
