// Signals that stop a run: the first, its echo, and the same again from somebody who waits no longer.
#include "train/process/signals.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/doctest.hpp"

using namespace skytape;

TEST_CASE("a signal is remembered, twice at once it is one, and again later it ends the program") {
  constexpr int kForgotten = 3, kSurvived = 4;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    train::watch_signals();
    std::raise(SIGTERM);
    std::raise(SIGTERM);
    if (train::signal_received() != SIGTERM) ::_exit(kForgotten);
    std::raise(SIGINT);  // another one changes nothing
    if (train::signal_received() != SIGTERM) ::_exit(kForgotten);
    ::usleep(600'000);
    std::raise(SIGTERM);
    ::_exit(kSurvived);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CAPTURE(status);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}
