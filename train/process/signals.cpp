#include "train/process/signals.hpp"

#include <csignal>

namespace skytape::train {
namespace {

// The one piece of global state: a handler has no other way to say what happened.
volatile std::sig_atomic_t g_signal = 0;

extern "C" void remember_signal(int signal) { g_signal = signal; }

}  // namespace

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESETHAND | SA_RESTART;  // the second signal has its usual effect
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int signal_received() { return g_signal; }

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace skytape::train
