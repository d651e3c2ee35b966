// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

namespace trnsim::capture {

// Gives torch's profilers the device's time. After torch's import, since torch's own library for
// CUDA registers what asks the driver.
void register_device_time();

}  // namespace trnsim::capture
