#include "train/loop/phases.hpp"

#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using Existing = RunFolder::Existing;

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
  const Ranks& ranks = *options.ranks;
  const auto is_there = [&](const char* file) {  // in the folder, which need be rank 0's alone
    return ranks.largest(ranks.first() && fs::exists(options.out / file)) == 1;
  };
  const bool begun = options.existing == Existing::resume && is_there("last.safetensors");
  if (!begun) {
    if (const int code = first_phase(config, options, stop < before ? stop : 0)) return code;
    second.init = options.out / kPretrainingFolder / "last.safetensors";
    // A second phase that has not begun has nothing to resume, and that needs no saying.
    if (!is_there("config.json")) second.existing = Existing::refuse;
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
