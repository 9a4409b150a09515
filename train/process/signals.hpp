// SIGINT and SIGTERM: exit codes 130 and 143, at once or after the current step.
#pragma once

namespace skytape::train {

/// From now on SIGINT or SIGTERM ends the program at once with its exit code and a line on stderr:
/// for all that has nothing to save.
void leave_on_signals();

/// From now on the first SIGINT or SIGTERM is remembered; a second one ends the program at once.
void watch_signals();

/// The signal that came, or 0.
[[nodiscard]] int signal_received();

/// Error with exit code 130 or 143 if a signal came: unwinding removes what is unfinished.
void stop_if_signalled();

/// SIGXFSZ is turned into an error of the write itself, which names the file.
void ignore_file_size_signal();

}  // namespace skytape::train
