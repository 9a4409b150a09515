#include "train/run/announcement.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <thread>

#include "attention/registry.hpp"
#include "train/process/progress.hpp"
#include "train/process/threads.hpp"
#include "train/run/objective.hpp"
#include "train/run/open_run.hpp"

namespace skytape::train {
namespace {

std::string who(const OpenRun& run) {
  const RunConfig& config = run.config;
  return fmt::format(
      "{} with {}, recipe {}, seed {}, on {}{}: {} parameters", run.splits.train.name(),
      config.method->name, config.recipe, config.seed, name(config.device),
      config.device == Device::cpu ? fmt::format(" ({})", counted(thread_count(), "thread")) : "",
      grouped(run.model->parameters().parameter_count()));
}

std::string how_computed(const OpenRun& run) {
  const MicrobatchLimits& limits = run.limits;
  if (limits.positions > 0) {
    return fmt::format("computed {} positions at a time", grouped(limits.positions));
  }
  return limits.accumulate == 1 ? "computed as a whole"
                                : fmt::format("computed in {} microbatches", limits.accumulate);
}

std::string how_long(const OpenRun& run) {
  const RunConfig& config = run.config;
  const std::int64_t most = config.batches.batch * config.batches.nominal_length *
                            static_cast<std::int64_t>(config.model.sequences);
  return fmt::format("{} steps of {} examples (at most {} tokens), {}, warm-up {}, dev {}; {}",
                     grouped(config.steps()), config.batches.batch, grouped(most),
                     how_computed(run), config.schedule.warmup,
                     config.eval_every < config.steps()
                         ? fmt::format("every {} steps", config.eval_every)
                         : "at the end",
                     run.options.out.string());
}

/// Returns a text on the tokens that max_length leaves out; empty if there are none.
std::string what_is_cut(const OpenRun& run) {
  const RunConfig& config = run.config;
  const data::Dataset& train = run.splits.train;
  // If tokens are left out on reading, a stored length says nothing.
  if (config.batches.drop_token >= 0) return {};
  const std::int64_t read = config.batches.most_tokens(), cut = train.longer_than(read);
  if (cut == 0) return {};
  return fmt::format(
      "{} of {} training {} are longer than {} tokens: their ends are not read (max_length = {})",
      grouped(cut), grouped(train.size() * config.model.sequences),
      config.model.sequences == 1 ? "examples" : "texts", read, config.batches.max_length);
}

std::string how_lengths_grow(const data::BatchOptions& batches) {
  if (batches.grow_steps == 0) return {};
  return fmt::format(
      "training sequences are cut to a length that grows from {} to {} in steps {} to {}{}; dev is "
      "never cut",
      batches.grow_start, grouped(batches.nominal_length), grouped(batches.grow_hold),
      grouped(batches.grow_steps),
      batches.grow_whole > 0
          ? fmt::format("; every {}th step uses whole sequences", batches.grow_whole)
          : "");
}

/// The warm-up, where it is another than the recipe's because the steps are.
std::string scaled_warmup(const RunConfig& config) {
  const char* const key = predicts_masked(config) ? "pretrain_warmup" : "warmup";
  for (const Setting& s : config.settings) {
    if (s.key == key && s.origin.find("scaled") != s.origin.npos) {
      return fmt::format("warm-up {} steps ({})", s.value, s.origin);
    }
  }
  return {};
}

/// Returns other_load_text() of this machine now, for a run on the CPU.
std::string what_else_runs(const RunConfig& config) {
  double load = 0;  // mean of the last minute
  if (config.device != Device::cpu || ::getloadavg(&load, 1) != 1) return {};
  return other_load_text(thread_count(), static_cast<int>(std::thread::hardware_concurrency()),
                         load);
}

}  // namespace

std::string other_load_text(int threads, int cores, double load) {
  const bool chosen =
      std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
  if (chosen || threads == 1 || threads + load < cores + 1) return {};
  return fmt::format(
      "other programs run here (load {:.1f}, {}): threads that wait for one another keep their "
      "core busy; OMP_WAIT_POLICY=passive lets others have it, --threads takes fewer",
      load, counted(cores, "core"));
}

std::vector<std::string> announcement(const OpenRun& run) {
  const RunConfig& config = run.config;
  std::vector<std::string> lines = {who(run),
                                    objective_text(config),
                                    how_long(run),
                                    run.who_trains,
                                    what_is_cut(run),
                                    how_lengths_grow(config.batches),
                                    scaled_warmup(config),
                                    what_else_runs(config)};
  std::erase(lines, "");
  return lines;
}

}  // namespace skytape::train
