#include "train/run/earlier.hpp"

#include <fmt/format.h>

#include "tensor/core/error.hpp"
#include "train/config/run_config.hpp"
#include "train/run/run_folder.hpp"

namespace skytape::train {

namespace fs = std::filesystem;
using data::Json;

void refuse_other_run(const fs::path& folder, const Json& config) {
  const fs::path path = config_file(folder);
  if (!fs::exists(path)) return;
  const std::string difference = first_difference(read_json(path), config);
  if (difference.empty()) return;
  throw UsageError(
      fmt::format("{}: --resume refuses another configuration: {}", folder.string(), difference));
}

void refuse_lost_run(const fs::path& folder, const Json& config, bool init) {
  const std::vector<Json> metrics = read_metrics(folder / "metrics.jsonl");
  if (!metrics.empty()) {
    throw DataError(
        fmt::format("{}: metrics up to step {}, but last.safetensors is missing: nothing to go on "
                    "from; --force starts anew",
                    folder.string(), metrics.back().value("step", std::int64_t{0})));
  }
  if (config.contains("init") && !init) {
    throw UsageError(
        fmt::format("{}: it starts from weights that --init must name again", folder.string()));
  }
}

CheckpointFacts facts_of_this_run(const SafetensorsFile& file, const fs::path& path,
                                  const Json& config) {
  CheckpointFacts saved = read_facts(file, path);
  const std::string difference = first_difference(saved.config, config);
  if (difference.empty()) return saved;
  throw DataError(fmt::format("{}: a checkpoint of another run: {}", path.string(), difference));
}

void load_best(const fs::path& path, const Json& config, const RunState& state, nn::Model& model) {
  if (!fs::exists(path)) {
    throw DataError(fmt::format(
        "{}: missing, but step {} was the best so far and would be tested; --force starts anew",
        path.string(), state.best_step));
  }
  const SafetensorsFile best = read_safetensors(path);
  const CheckpointFacts facts = read_facts(best, path);
  std::string problem = first_difference(facts.config, config);
  // A kill between the two checkpoints of an evaluation leaves a best one of later steps.
  if (problem.empty() && facts.state.step < state.best_step) {
    problem = fmt::format("of step {}, expected {}", facts.state.step, state.best_step);
  }
  if (!problem.empty()) {
    throw DataError(fmt::format("{}: not the best of this run: {}", path.string(), problem));
  }
  load_weights(best, path, model);
}

std::vector<std::string> reproducibility_warnings(const Json& saved, const Json& now) {
  std::vector<std::string> warnings;
  const auto compare = [&](const char* what, const Json& there, const Json& here) {
    if (there == here) return;
    warnings.push_back(fmt::format("warning: {} was {}, is {}: the last bits may differ", what,
                                   data::json_text(there), data::json_text(here)));
  };
  compare("device", data::member(saved, "device"), data::member(now, "device"));
  compare("number of threads", data::member(saved, "machine", "threads"),
          data::member(now, "machine", "threads"));
  compare("revision", data::member(saved, "revision"), data::member(now, "revision"));
  return warnings;
}

}  // namespace skytape::train
