#include "train/process/signals.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <ctime>

#include "train/process/failure.hpp"

namespace skytape::train {
namespace {

// Global state, since a handler has no other way to say what happened: the first signal, and when
// it came, in milliseconds of a clock that only goes forward.
volatile std::sig_atomic_t g_signal = 0;
volatile std::int64_t g_signalled_at = 0;

// `timeout` and some batch systems signal a process and then its group, hence the process twice.
constexpr std::int64_t kSameSignal = 500;  // milliseconds

constexpr int kSignalled = 128;  // exit codes of stopped programs are that much above the signal's
constexpr char kStopped[] = "skytape: stopped by a signal\n";

std::int64_t milliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1000} + now.tv_nsec / 1'000'000;
}

/// Remembers the first signal and lets the same one end the process when it comes again later.
extern "C" void remember_signal(int signal) {
  const std::int64_t now = milliseconds();
  if (g_signal == 0) {
    g_signalled_at = now;  // first: another thread may get the second signal
    g_signal = signal;
  } else if (signal == g_signal && now - g_signalled_at > kSameSignal) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

extern "C" void leave(int signal) {
  [[maybe_unused]] const auto said = ::write(STDERR_FILENO, kStopped, sizeof kStopped - 1);
  ::_exit(kSignalled + signal);
}

/// A stack for handlers: a library's kernel may use the stack pointer for itself (oneDNN's products
/// do), and what a handler would write there lies in the midst of its numbers.
void provide_stack() {
  alignas(16) static char room[1 << 16];
  stack_t present = {};
  sigaltstack(nullptr, &present);
  if ((present.ss_flags & SS_DISABLE) == 0) return;
  stack_t own = {};
  own.ss_sp = room;
  own.ss_size = sizeof room;
  sigaltstack(&own, nullptr);
}

void handle(void (*handler)(int)) {
  provide_stack();
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction present = {};
  sigaction(SIGHUP, nullptr, &present);
  if (present.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup ignores it
}

}  // namespace

void leave_on_signals() { handle(leave); }

void watch_signals() { handle(remember_signal); }

void stop_if_signalled() {
  if (g_signal != 0) throw CodedError("stopped by a signal", kSignalled + g_signal);
}

int signal_received() { return g_signal; }

void ignore_pipe_signal() { std::signal(SIGPIPE, SIG_IGN); }

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace skytape::train
