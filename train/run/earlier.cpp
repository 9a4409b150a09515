#include "train/run/earlier.hpp"

#include <fmt/format.h>

#include "data/cache/meanings.hpp"
#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "nn/model.hpp"
#include "tensor/core/error.hpp"
#include "train/config/identity.hpp"
#include "train/config/run_config.hpp"
#include "train/formats/safetensors.hpp"
#include "train/run/checkpoint.hpp"
#include "train/run/run_folder.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

std::string shown(const Json& value) {
  return value.is_null() ? "absent" : data::printable(data::json_text(value), 200);
}

/// "labels: ["neg","pos"] in a, ["pos","neg"] in b"; of long lists the first entry that differs.
std::string contradiction(const std::string& what, const Json& one, const std::string& of_one,
                          const Json& other, const std::string& of_other) {
  constexpr std::size_t kShort = 20;  // entries that are shown whole
  const auto say = [&](const std::string& which, const Json& a, const Json& b) {
    return fmt::format("{}: {} in {}, {} in {}", which, shown(a), of_one, shown(b), of_other);
  };
  if (!one.is_array() || !other.is_array() || one.size() <= kShort) return say(what, one, other);
  for (std::size_t i = 0; i < one.size() && i < other.size(); ++i) {
    if (one[i] == other[i]) continue;
    return say(fmt::format("{}, entry {}", what, i + 1), one[i], other[i]);
  }
  return say(what + ", how many", one.size(), other.size());
}

/// Returns the columns of the first file of a set; null: they are not known.
Json columns_of(const Json& provenance) {
  const Json& sources = data::member(provenance, "sources");
  if (!sources.is_array() || sources.empty()) return {};
  Json columns;
  for (const char* key : {"format", "delimiter", "columns"}) {
    columns[key] = data::member(sources[0], key);
  }
  return columns;
}

}  // namespace

void refuse_other_run(const fs::path& folder, const Json& config) {
  const fs::path path = config_file(folder);
  if (!fs::exists(path)) return;
  const Json saved = read_config(folder);
  const std::string found = differences(saved, config);
  if (found.empty()) return;
  const bool other_data = data::member(saved, "data") != data::member(config, "data");
  throw UsageError(fmt::format("{}: --resume refuses another configuration: {}{}", folder.string(),
                               found,
                               other_data ? "; --data FOLDER says where the run's data are" : ""));
}

void refuse_other_meaning(const Json& one, const std::string& of_one, const Json& other,
                          const std::string& of_other, bool columns) {
  if (!one.is_object() || !other.is_object()) return;
  const auto compare = [&](const std::string& what, const Json& a, const Json& b) {
    if (a == b) return;
    throw DataError(contradiction(what, a, of_one, b, of_other) +
                    ": expected the same in both, as the weights were trained");
  };
  for (const char* key : data::kMeanings)
    compare(key, data::member(one, key), data::member(other, key));
  if (columns) compare("sources", columns_of(one), columns_of(other));
}

void refuse_lost_run(const fs::path& folder, const Json& config, bool init) {
  const std::vector<Json> metrics = read_metrics(folder / "metrics.jsonl");
  if (!metrics.empty()) {
    throw DataError(
        fmt::format("{}: metrics up to step {}, but last.safetensors is missing: no state to "
                    "continue from; --force starts anew",
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
  const std::string found = differences(saved.config, config);
  if (!found.empty()) {
    throw DataError(fmt::format("{}: a checkpoint of another run: {}", path.string(), found));
  }
  const Json& own = data::member(config, "data_provenance");  // may be gone, by hand
  refuse_other_meaning(own.is_object() ? own : Json::object(),
                       config_file(path.parent_path()).string(),
                       data::member(saved.config, "data_provenance"), path.string(), true);
  return saved;
}

void load_best(const fs::path& path, const Json& config, const RunState& state, nn::Model& model) {
  if (!fs::exists(path)) {
    throw DataError(fmt::format(
        "{}: missing, but step {} was the best so far and would be tested; --force starts anew",
        path.string(), state.best_step));
  }
  const SafetensorsFile best = read_weights(path);
  const CheckpointFacts facts = read_facts(best, path);
  std::string problem = differences(facts.config, config);
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
