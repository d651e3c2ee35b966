// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// What follows is compiled for Thrust's OMP system; one thread with a compiler without OpenMP.
#pragma once

// Thrust's types have one name on every system: without a namespace of its own, the linker would
// take one system's for all.
#define THRUST_CUB_WRAPPED_NAMESPACE trnsim_thrust_omp
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#if defined(_OPENMP)
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_OMP
#else
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#endif
#define TRNSIM_BULK_TARGET bulk_omp
