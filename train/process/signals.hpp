// SIGHUP, SIGINT and SIGTERM: exit codes 129, 130 and 143, immediately or after the current step.
// SIGHUP stays ignored under nohup.
#pragma once

namespace skytape::train {

/// From now on any of them ends the program immediately with its exit code and a line on stderr:
/// for all that has nothing to save.
void leave_on_signals();

/// From now on the first of them is remembered; the same once more, half a second later or after,
/// ends the program immediately.
void watch_signals();

/// The signal that came, or 0.
[[nodiscard]] int signal_received();

/// Error with exit code 129, 130 or 143 if a signal came: unwinding removes what is unfinished.
void stop_if_signalled();

/// A pipe whose reader went away is an error of the write itself: progress is lost, a run is not.
void ignore_pipe_signal();

/// SIGXFSZ is turned into an error of the write itself, which names the file.
void ignore_file_size_signal();

}  // namespace skytape::train
