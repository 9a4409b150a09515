#include "train/run/seeds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/files/output.hpp"
#include "tensor/core/error.hpp"
#include "train/config/run_config.hpp"
#include "train/run/phases.hpp"
#include "train/run/result.hpp"
#include "train/run/run_folder.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

/// A figure of result.json, how it is scaled and printed.
struct Summarised {
  const char* key;
  double scale;
  Column column;
};
const std::vector<Summarised>& summarised() {
  static const std::vector<Summarised> figures = {
      {"dev_accuracy", 100, {"dev accuracy %", "{:.2f}"}},
      {"test_accuracy", 100, {"test accuracy %", "{:.2f}"}},
      {"train_seconds", 1, {"training seconds", "{:.1f}"}},
      {"peak_bytes", 1, {"peak bytes", "{:.0f}"}}};
  return figures;
}

}  // namespace

Table seed_table(const std::vector<SeedResult>& seeds) {
  Table table{"seeds", "Seeds, and over the finished ones:", {{"seed"}}, {}, {}};
  for (const Summarised& figure : summarised()) table.columns.push_back(figure.column);
  const std::size_t count = summarised().size();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> sum(count), least(count, kInfinity), most(count, -kInfinity);
  double finished = 0;
  const auto add = [&](const std::string& name, const std::vector<double>& figures) {
    std::vector<Cell> row = {name};
    row.insert(row.end(), figures.begin(), figures.end());
    row.resize(count + 1);
    table.add(std::move(row));
  };
  for (const SeedResult& seed : seeds) {
    std::vector<double> figures;
    for (std::size_t i = 0; seed.result && i < count; ++i) {
      const Summarised& figure = summarised()[i];
      figures.push_back(figure.scale * seed.result->at(figure.key).get<double>());
      sum[i] += figures[i];
      least[i] = std::min(least[i], figures[i]);
      most[i] = std::max(most[i], figures[i]);
    }
    if (seed.result) ++finished;
    add(std::to_string(seed.seed), figures);
  }
  for (double& s : sum) s /= finished;
  const bool none = finished == 0;
  add("mean", none ? std::vector<double>{} : sum);
  add("lowest", none ? std::vector<double>{} : least);
  add("highest", none ? std::vector<double>{} : most);
  return table;
}

void check_seeds(std::uint64_t first, std::int64_t count) {
  if (first + static_cast<std::uint64_t>(count) - 1 >= first) return;
  throw UsageError(fmt::format("--seeds: no {} seeds from {} on", count, first));
}

int train_seeds(Choices choices, std::int64_t count, TrainOptions options) {
  const std::uint64_t first = choices.seed;
  check_seeds(first, count);
  const fs::path folder = options.out;
  std::vector<RunConfig> configs;
  together(*options.ranks, [&] {
    for (choices.seed = first; configs.size() < static_cast<std::size_t>(count); ++choices.seed) {
      configs.push_back(resolve(choices));
      if (options.existing == ExistingRun::refuse && options.ranks->first()) {
        refuse_existing(folder / run_name(configs.back()));
      }
    }
  });
  std::vector<SeedResult> seeds;
  int code = 0;
  for (const RunConfig& config : configs) {
    seeds.push_back({config.seed, {}});
    if (code != 0) continue;
    options.out = folder / run_name(config);
    code = train(config, options);
    if (options.ranks->first() && fs::exists(result_file(options.out))) {
      seeds.back().result = read_result(result_file(options.out));
    }
  }
  if (!options.ranks->first()) return code;
  const std::string table = to_text(seed_table(seeds));
  fmt::print("{}", table);
  data::write_file(
      folder / fmt::format("{}-{}.txt", run_name(configs.front()), configs.back().seed), table);
  return code;
}

}  // namespace skytape::train
