#include "train/run/phases.hpp"

#include "tensor/core/error.hpp"
#include "train/config/run_config.hpp"
#include "train/run/loop.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/train_options.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

/// The first phase of a run of two, in its folder inside the run's.
int first_phase(const RunConfig& config, TrainOptions options, std::int64_t stop_after) {
  options.part_of = options.out;
  options.out = options.part_of / kPretrainingFolder;
  options.stop_after = stop_after;
  return run_phase(pretraining_of(config), options);
}

}  // namespace

int train(const RunConfig& config, const TrainOptions& options) {
  const std::int64_t before = config.pretraining.steps;
  if (before == 0) return run_phase(config, options);

  const std::int64_t stop = options.stop_after;  // counts both phases; 0: never
  TrainOptions second = options;
  second.stop_after = stop > before ? stop - before : 0;
  const auto is_there = [&](const fs::path& file) {
    return options.ranks->first([&] { return fs::exists(file); });
  };
  const bool begun = options.resumes() && is_there(last_file(options.out));
  if (!begun) {
    if (const int code = first_phase(config, options, stop < before ? stop : 0)) return code;
    second.init = last_file(options.out / kPretrainingFolder);
    // A second phase that has not begun has nothing to resume, and that needs no saying.
    if (!is_there(config_file(options.out))) second.existing = ExistingRun::after_first;
  }
  if (stop > 0 && stop <= before) return 0;
  return run_phase(config, second);
}

int pretrain(const RunConfig& config, const TrainOptions& options) {
  if (config.pretraining.steps == 0) {
    throw UsageError("pretrain: expected pretrain_steps, the number of steps, above 0 (--steps)");
  }
  return run_phase(pretraining_of(config), options);
}

}  // namespace skytape::train
