// The progress of a run on stderr: a bar on a terminal, plain lines in a pipe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace skytape::train {

/// A log point of the training loop.
struct LogPoint {
  std::int64_t step = 0, steps = 0;
  std::string scores;  // "loss 2.1203  accuracy 17.50 %"
  double lr = 0;
  double steps_per_second = 0, tokens_per_second = 0;
  double seconds_left = 0;
};

class Progress {
 public:
  /// Looks whether stderr is a terminal; NO_COLOR in the environment takes colours away.
  Progress();
  Progress(bool terminal, bool colour, std::chrono::milliseconds quiet = kQuiet)
      : terminal_(terminal), colour_(colour), quiet_(quiet) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Writes nothing from now on: another process of the job does.
  void silence() { silent_ = true; }

  /// A line of text of its own.
  void line(std::string_view text);
  /// The figures of a log point: a line, and on a terminal the bar below it.
  void log(const LogPoint& point);
  /// Moves the bar, at most ten times a second; in a pipe a line, when none came for a while.
  void at(std::string_view what, std::int64_t done, std::int64_t total);

 private:
  void clear_bar();

  static constexpr std::chrono::seconds kQuiet{15};  // without a line, in a pipe

  bool terminal_, colour_;
  std::chrono::milliseconds quiet_ = kQuiet;
  bool bar_shown_ = false, silent_ = false;
  // The time when the bar, or the last line in a pipe, was written.
  std::chrono::steady_clock::time_point drawn_ = std::chrono::steady_clock::now();
};

/// "step 500/50000  loss 2.1203  accuracy 17.50 %  lr 2.0e-05  3.21 steps/s  …  4.3 h left".
[[nodiscard]] std::string to_text(const LogPoint& point);

/// "35 s", "12 min", "4.3 h".
[[nodiscard]] std::string duration_text(double seconds);

/// Seconds of "90s", "20m" or "1.5h", the value of --budget. UsageError for anything else.
[[nodiscard]] double parse_duration(const std::string& text);

/// The time of day or the date now, in UTC, as strftime() writes it.
[[nodiscard]] std::string utc_now(const char* format);

/// "1,234,567".
[[nodiscard]] std::string grouped(std::int64_t count);

/// "1 thread", "1,024 threads".
[[nodiscard]] std::string counted(std::int64_t count, std::string_view thing);

}  // namespace skytape::train
