// A run that stands at chance says so while there is time; one that learns does not.
#include "train/run/chance.hpp"

#include <algorithm>
#include <cmath>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "train/run/run_folder.hpp"

using namespace skytape;
using namespace skytape::train;
using namespace skytape::test;
using data::synthetic::Folder;

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

/// The first step at which a watch says that a run with these losses, one each ten steps, stands at
/// chance; 0: at none.
std::int64_t said_at(const std::vector<double>& losses, std::int64_t warmup, std::int64_t steps) {
  ChanceWatch watch(0.6, warmup, steps);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto step = static_cast<std::int64_t>(10 * (i + 1));
    if (watch.stands_at_chance(step, losses[i])) return step;
  }
  return 0;
}

/// Custom data whose texts say the label, or are all the same, and runs on them.
struct Rows {
  Folder folder;
  std::string run = (folder.path() / "run").string();
  std::string data = (folder.path() / "data").string();

  explicit Rows(bool telling) {
    std::string rows;
    for (int i = 0; i < 200; ++i) {
      const bool ham = i % 4 != 0;
      rows += ham ? "ham\t" : "spam\t";
      rows += !telling ? "grey grey grey\n" : ham ? "green green green\n" : "nasty nasty nasty\n";
    }
    REQUIRE(finish({"data", "--task", "tsv", "--from", folder.write("own.tsv", rows).string(),
                    "--stratify", "--data", data})
                .code == 0);
  }
  [[nodiscard]] Finished finish(const Lines& arguments) const {
    return run_program(folder.path(), arguments);
  }
  [[nodiscard]] Finished train(const Lines& more = {}) const {
    Lines arguments = {"train",   "--task",   "tsv",           "--data",    data,
                       "--out",   run,        "--steps",       "120",       "--batch",
                       "16",      "--device", "cpu",           "--threads", "1",
                       "--seed",  "5",        "--attention",   "softmax",   "--log-every",
                       "20",      "--set",    "max_length=32", "width=8",   "ff_width=8",
                       "heads=2", "lr=0.02",  "warmup=6",      "dropout=0", "eval_every=60",
                       "ngrams=0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return finish(arguments);
  }
  /// The metrics that say that the run stood at chance.
  [[nodiscard]] std::vector<data::Json> said() const {
    std::vector<data::Json> metrics = read_metrics(fs::path(run) / "metrics.jsonl");
    std::erase_if(metrics, [](const data::Json& m) { return m.value("kind", "") != "chance"; });
    return metrics;
  }
  [[nodiscard]] data::Json result() const { return read_json(fs::path(run) / "result.json"); }
};

constexpr const char* kSaid = "the run stands at chance";

}  // namespace

TEST_CASE("a run stands at chance by its mean loss and its last one, behind warm-up and a tenth") {
  const std::vector<double> flat(40, 0.6), low(40, 0.59);
  CHECK(said_at(flat, 0, 400) == 40);
  CHECK(said_at(flat, 30, 400) == 70);   // three log points behind the warm-up
  CHECK(said_at(flat, 65, 400) == 110);  // the one that the warm-up ends in does not count
  CHECK(said_at(low, 30, 400) == 0);
  CHECK(said_at(std::vector<double>(40, 0.598), 30, 400) == 70);
  CHECK(said_at(std::vector<double>(40, 2.0), 30, 400) == 70);  // it does worse than that
  CHECK(said_at(flat, 0, 30) == 0);                             // there is no time left
  std::vector<double> leaves = flat, noisy = low, returns = low;
  std::fill(leaves.begin() + 6, leaves.end(), 0.5);  // where it would be said
  CHECK(said_at(leaves, 30, 400) == 0);
  for (std::size_t i = 0; i < noisy.size(); i += 2) noisy[i] = 0.601;
  CHECK(said_at(noisy, 30, 400) == 0);  // the mean is lower
  std::fill(returns.begin() + 20, returns.end(), 0.61);
  CHECK(said_at(returns, 30, 400) == 220);
}

TEST_CASE("a run whose examples say nothing says so once, and its result and metrics do") {
  if (!program_or_skip()) return;
  const Rows rows(false);
  const Finished done = rows.train();
  CAPTURE(done.err);
  REQUIRE(done.code == 0);
  const std::size_t at = done.err.find(kSaid);
  REQUIRE(at != std::string::npos);
  CHECK(done.err.find(kSaid, at + 1) == std::string::npos);
  CHECK(contains(done.err,
                 "warning: after step 60 the run stands at chance: the loss of its last 40 "
                 "training steps, 0.5"));
  CHECK(contains(done.err, "is no lower than 0.5623, that of who knows only how often each label"));
  CHECK(contains(done.err, "another --seed"));
  const std::vector<data::Json> said = rows.said();
  REQUIRE(said.size() == 1);
  CHECK(said[0]["step"] == data::Json(60));
  // Three rows in four have the label ham.
  const double entropy = -0.75 * std::log(0.75) - 0.25 * std::log(0.25);
  CHECK(said[0]["label_entropy"].get<double>() == doctest::Approx(entropy));
  CHECK(said[0]["loss"].get<double>() > 0.995 * entropy);
  CHECK(rows.result()["stood_at_chance"]["step"] == data::Json(60));
  CHECK(rows.result()["stood_at_chance"]["loss"] == said[0]["loss"]);
}

TEST_CASE("a run that stood at chance says it once, wherever it was stopped") {
  if (!program_or_skip()) return;
  const Rows rows(false);
  REQUIRE(rows.train().code == 0);
  const std::vector<data::Json> whole = rows.said();
  REQUIRE(whole.size() == 1);
  for (const char* stop : {"50", "70"}) {
    CAPTURE(stop);
    fs::remove_all(rows.run);
    const Finished first = rows.train({"--stop-after", stop});
    REQUIRE(first.code == 0);
    const Finished second = rows.train({"--resume"});
    CAPTURE(second.err);
    REQUIRE(second.code == 0);
    CHECK(contains(first.err, kSaid) == (std::string(stop) == "70"));
    CHECK(contains(second.err, kSaid) == (std::string(stop) == "50"));
    const std::vector<data::Json> said = rows.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0]["step"] == whole[0]["step"]);
    CHECK(said[0]["loss"] == whole[0]["loss"]);
    CHECK(rows.result()["stood_at_chance"]["loss"] == whole[0]["loss"]);
  }
}

TEST_CASE("weights of classes and smoothed labels move chance with them") {
  if (!program_or_skip()) return;
  const Rows rows(false);
  const Finished balanced = rows.train({"--set", "class_weights=balanced"});
  CAPTURE(balanced.err);
  REQUIRE(balanced.code == 0);
  REQUIRE(rows.said().size() == 1);
  CHECK(rows.said()[0]["label_entropy"].get<double>() == doctest::Approx(std::log(2)));
  REQUIRE(rows.train({"--force", "--set", "label_smoothing=0.2"}).code == 0);
  REQUIRE(rows.said().size() == 1);
  CHECK(rows.said()[0]["label_entropy"].get<double>() ==
        doctest::Approx(-0.7 * std::log(0.7) - 0.3 * std::log(0.3)));
}

TEST_CASE("neither a run that learns nor pre-training says that it stands at chance") {
  if (!program_or_skip()) return;
  const Rows rows(true);
  const Finished learns = rows.train();
  CAPTURE(learns.err);
  REQUIRE(learns.code == 0);
  CHECK_FALSE(contains(learns.err, kSaid));
  CHECK(rows.said().empty());
  CHECK_FALSE(rows.result().contains("stood_at_chance"));
  const Finished hidden = rows.train({"--force", "--set", "pretrain_steps=120", "pretrain_lr=0"});
  CAPTURE(hidden.err);
  CHECK(hidden.code == 0);
  CHECK_FALSE(contains(hidden.err, kSaid));
}
