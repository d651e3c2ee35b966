// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#include "capture/runtime/fault.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "capture/aten/kernel.h"
#include "capture/runtime/allocator.h"

namespace trnsim::capture {
namespace {

struct sigaction previous;

// Only async-signal-safe calls: the process is about to end.
void say(const char* text) {
  const ssize_t ignored = write(STDERR_FILENO, text, std::strlen(text));
  (void)ignored;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  const Reservation& space = reservation();
  if (address >= space.base && address < space.base + space.bytes) {
    say("trnsim: a native read of phantom memory in ");
    say(running_op()[0] ? running_op() : "code outside of any op");
    say(": this code reads device memory directly, which a simulated device does not have\n");
    _exit(139);
  }
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(signal, info, context);
    return;
  }
  sigaction(signal, &previous, nullptr);  // the fault happens again and is handled as before
}

}  // namespace

void install_fault_handler() {
  reservation();  // made here, never inside the handler
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = &on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGSEGV, &action, &previous) == 0;
  }();
  (void)installed;
}

}  // namespace trnsim::capture
