// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// trnsim._torch: capture's door to Python. Each part of the room binds itself in a function of its
// own, named here.
#include <torch/csrc/utils/pybind.h>

#include "capture/aten/register.h"
#include "capture/bind.h"
#include "capture/distributed/bind_distributed.h"
#include "capture/profiler/stubs.h"
#include "capture/runtime/bind_runtime.h"

PYBIND11_MODULE(_torch, module) {
  module.doc() = "The trn device: what PyTorch runs on it, and the record of it.";
  trnsim::capture::register_kernels();
  trnsim::capture::register_device_time();
  trnsim::capture::bind_capture(module);
  trnsim::capture::bind_ops(module);
  trnsim::capture::distributed::bind_distributed(module);
  trnsim::capture::runtime::bind_runtime(module);
}
