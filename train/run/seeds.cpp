#include "train/run/seeds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/files/output.hpp"
#include "tensor/core/error.hpp"
#include "train/config/run_config.hpp"
#include "train/run/phases.hpp"
#include "train/run/result.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

/// A column of the summary: a figure of result.json, how it is scaled and printed.
struct Column {
  const char* key;
  double scale;
  int digits;
};
constexpr Column kColumns[] = {{"dev_accuracy", 100, 2},
                               {"test_accuracy", 100, 2},
                               {"train_seconds", 1, 1},
                               {"peak_bytes", 1, 0}};

std::string row(const std::string& name, const std::vector<double>& figures) {
  std::string text = "| " + name + " |";
  for (std::size_t i = 0; i < std::size(kColumns); ++i) {
    text += figures.empty() ? " – |" : fmt::format(" {:.{}f} |", figures[i], kColumns[i].digits);
  }
  return text + "\n";
}

}  // namespace

std::string seed_table(const std::vector<SeedResult>& seeds) {
  std::string text =
      "| seed | dev accuracy % | test accuracy % | training seconds | peak bytes |\n"
      "|---|---|---|---|---|\n";
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> sum(std::size(kColumns)), least(sum.size(), kInfinity),
      most(sum.size(), -kInfinity);
  double finished = 0;
  for (const SeedResult& seed : seeds) {
    std::vector<double> figures;
    for (std::size_t i = 0; seed.result && i < sum.size(); ++i) {
      figures.push_back(kColumns[i].scale * seed.result->at(kColumns[i].key).get<double>());
      sum[i] += figures[i];
      least[i] = std::min(least[i], figures[i]);
      most[i] = std::max(most[i], figures[i]);
    }
    if (seed.result) ++finished;
    text += row(std::to_string(seed.seed), figures);
  }
  for (double& s : sum) s /= finished;
  const bool none = finished == 0;
  text += row("mean", none ? std::vector<double>{} : sum);
  text += row("lowest", none ? std::vector<double>{} : least);
  return text + row("highest", none ? std::vector<double>{} : most);
}

int train_seeds(Choices choices, std::int64_t count, TrainOptions options) {
  const std::uint64_t first = choices.seed, last = first + static_cast<std::uint64_t>(count) - 1;
  if (last < first) {
    throw UsageError(fmt::format("--seeds: no {} seeds from {} on", count, first));
  }
  const fs::path folder = options.out;
  std::vector<RunConfig> configs;
  options.ranks->together([&] {
    for (choices.seed = first; configs.size() < static_cast<std::size_t>(count); ++choices.seed) {
      configs.push_back(resolve(choices));
      if (options.existing == RunFolder::Existing::refuse && options.ranks->first()) {
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
    if (code == 0 && options.ranks->first() && fs::exists(result_file(options.out))) {
      seeds.back().result = read_result(result_file(options.out));
    }
  }
  if (!options.ranks->first()) return code;
  const std::string table = seed_table(seeds);
  fmt::print("{}", table);
  data::write_file(folder / fmt::format("{}-{}.md", run_name(configs.front()), last), table);
  return code;
}

}  // namespace skytape::train
