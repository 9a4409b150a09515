// SIGINT and SIGTERM as a request to stop after the current step.
#pragma once

namespace skytape::train {

/// From now on the first SIGINT or SIGTERM is remembered; a second one ends the program at once.
void watch_signals();

/// The signal that came, or 0.
[[nodiscard]] int signal_received();

/// SIGXFSZ is turned into an error of the write itself, which names the file.
void ignore_file_size_signal();

}  // namespace skytape::train
