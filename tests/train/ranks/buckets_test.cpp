// The exchange in buckets between the ranks of a job: a job of this test program, whose ranks train
// with buckets, with one exchange and alone, and compare the bits.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/support/doctest.hpp"
#include "tests/train/ranks/job.hpp"
#include "tests/train/step/small_step.hpp"
#include "train/ranks/gradient_sum.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;
using namespace skytape::test;

namespace {

struct Case {
  std::string name, attention;
  nn::Norm norm = nn::Norm::pre;
  int sequences = 1;
  attention::OptionValues options = {};
  int microbatches = 7;
};

const std::vector<Case> kCases = {
    {.name = "several microbatches a rank", .attention = "softmax"},
    {.name = "a rank without a microbatch",
     .attention = "softmax",
     .norm = nn::Norm::post,
     .microbatches = 1},
    {.name = "averages", .attention = "routing"},
    {.name = "parameters that nothing reaches", .attention = "reformer", .microbatches = 2},
    {.name = "parameters that two sequences share", .attention = "skyformer", .sequences = 2},
    {.name = "a parameter that all layers share",
     .attention = "linformer",
     .options = {{"sharing", "layerwise"}}}};

nn::ModelConfig model_of(const Case& c) {
  nn::ModelConfig config = small_model(c.attention);
  config.attention_options.insert(c.options.begin(), c.options.end());
  config.sequences = c.sequences;
  config.norm = c.norm;
  return config;
}

/// All values and the loss after three steps of these ranks.
std::vector<double> trained(const Case& c, const Ranks& ranks, std::int64_t bucket_size) {
  nn::Model model(model_of(c), DType::f32, Device::cpu, 3);
  GradientSum sum(ranks, model.parameters(), bucket_size);
  Trainer trainer(model, {}, {1e-2, 10, 2}, 3, {c.microbatches}, true, sum.share());
  for (int step = 0; step < 3; ++step) trainer.step(seven_examples(c.sequences));
  std::vector<double> all = model.parameters().values().to_vector();
  const TrainMetrics metrics = trainer.take_metrics();
  all.push_back(metrics.loss);
  all.push_back(metrics.accuracy);
  return all;
}

/// Runs on each rank of a job.
void compare_buckets(Reduce reduce) {
  RanksOptions options;
  options.reduce = reduce;
  const Ranks ranks = Ranks::join(options);
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const std::vector<double> alone = trained(c, kAlone, 0);
    const std::vector<double> one = trained(c, ranks, 0);
    for (const std::int64_t size : {16, 100, 700}) {
      CAPTURE(size);
      const std::vector<double> buckets = trained(c, ranks, size);
      if (reduce == Reduce::ordered) CHECK(buckets == alone);
      // Three numbers may be added up in another order in a shorter exchange.
      if (ranks.size() <= 2) CHECK(buckets == one);
      double largest = 0;
      for (std::size_t i = 0; i < alone.size(); ++i) {
        largest = std::max(largest, std::abs(buckets[i] - alone[i]));
      }
      CHECK(largest < 1e-4);
    }
  }
}

}  // namespace

TEST_CASE("rank of a job: ordered" * doctest::skip()) { compare_buckets(Reduce::ordered); }

TEST_CASE("rank of a job: fast" * doctest::skip()) { compare_buckets(Reduce::fast); }

TEST_CASE("an exchange in buckets has the bits of one exchange, and in order of one process") {
  if (!mpirun_or_skip()) return;
  const data::synthetic::Folder folder;
  for (const int count : {2, 3}) {
    for (const std::string reduce : {"ordered", "fast"}) {
      CAPTURE(count);
      CAPTURE(reduce);
      Place place = ranks(count);
      place.launcher.insert(place.launcher.begin() + 1, "OMP_NUM_THREADS=1");
      place.program = std::filesystem::read_symlink("/proc/self/exe").string();
      const Finished job =
          run_program(folder.path(), {"--no-skip", "--test-case=rank of a job: " + reduce}, place);
      CAPTURE(job.out);
      CAPTURE(job.err);
      CHECK(job.code == 0);
      CHECK(count_of(job.out, "1 passed, 0 failed") == count);
    }
  }
}
