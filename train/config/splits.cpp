#include "train/config/splits.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/files/json.hpp"

namespace skytape::train {

void ensure_prepared(const data::TaskInfo& task, const std::filesystem::path& root,
                     Progress& progress) {
  if (data::is_prepared(task, root)) return;
  if (!task.generator.empty()) {
    progress.line(fmt::format("{} is not in {}: generating it, once", task.name, root.string()));
  }
  data::PrepareOptions options;
  options.progress = [&](std::string_view what, std::int64_t done, std::int64_t total) {
    progress.at(what, done, total);
  };
  options.warn = [&](std::string_view text) { progress.line(fmt::format("warning: {}", text)); };
  data::prepare(task, root, options);
}

Splits open_splits(const RunConfig& config, Progress& progress) {
  ensure_prepared(*config.task, config.data_root, progress);
  const auto open = [&](std::string_view split) {
    return data::open(*config.task, config.data_root, split, config.dev_rule);
  };
  return {open("train"), open("dev"), open("test")};
}

RunConfig fitted(const RunConfig& config, const data::Dataset& train) {
  return with_vocabulary(config, data::try_parse_json(train.provenance()));
}

nlohmann::json facts(const Splits& splits) {
  const auto of = [](const data::Dataset& split) -> nlohmann::json {
    return {{"examples", split.size()}, {"fingerprint", split.fingerprint()}};
  };
  return {{"name", splits.train.name()},
          {"train", of(splits.train)},
          {"dev", of(splits.dev)},
          {"test", of(splits.test)}};
}

}  // namespace skytape::train
