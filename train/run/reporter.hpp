// Prints a run's lines and writes its metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/files/json.hpp"
#include "train/run/chance.hpp"
#include "train/run/time_left.hpp"

namespace skytape::train {

struct Evaluation;
struct OpenRun;
class Progress;
struct TrainMetrics;

/// Writes no metrics for a run that has no folder.
class Reporter {
 public:
  /// Takes a run that is not finished.
  Reporter(const OpenRun& run, Progress& progress);

  void line(const std::string& text);
  /// Moves the bar.
  void progress(std::string_view what, std::int64_t done, std::int64_t total);

  /// Returns whether loss and accuracy are logged after the present step.
  [[nodiscard]] bool log_point() const;
  /// Returns whether steps per second are reported now; the timer must then synchronise.
  [[nodiscard]] bool needs_rate() const { return log_point() || first_rate(); }
  /// After each step, which had so many real tokens and took so long; of a log point with its
  /// means.
  void step(std::int64_t tokens, double seconds, const std::optional<TrainMetrics>& metrics);

  void evaluation(const Evaluation& dev);
  /// Writes a split's scores in result.json as a metric, too.
  void final_scores(const char* split, const Evaluation& scores);
  void stopped(int signal);
  /// The metric that says that the run stood at chance; null: it did not.
  [[nodiscard]] const data::Json& stood_at_chance() const { return stood_at_chance_; }

 private:
  [[nodiscard]] bool first_rate() const;
  void log(const TrainMetrics& metrics);
  void add_metric(data::Json metric, double loss);
  /// Takes from an earlier process's metrics what it knew of this.
  void resume_chance();
  void watch_chance(double loss);

  const OpenRun& run_;
  Progress& progress_;
  const TimeLeft time_left_;
  std::optional<ChanceWatch> chance_;  // of the task
  data::Json stood_at_chance_;
  // Since the last log point; the first step, which allocates, apart.
  double seconds_since_log_ = 0, seconds_after_first_ = 0;
  std::int64_t tokens_since_log_ = 0;
};

}  // namespace skytape::train
