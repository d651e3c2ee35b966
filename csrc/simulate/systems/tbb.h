// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What follows is compiled for Thrust's TBB system.
#pragma once

// Thrust's types have one name on every system: without a namespace of its own, the linker would
// take one system's for all.
#define THRUST_CUB_WRAPPED_NAMESPACE trnsim_thrust_tbb
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_TBB
#define TRNSIM_BULK_TARGET bulk_tbb
