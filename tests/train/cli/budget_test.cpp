// Trainings that are given a time in the place of a number of steps.
#include <sstream>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "train/process/progress.hpp"
#include "train/run/budget.hpp"
#include "train/run/time_left.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

using Words = std::vector<std::string>;

/// A small training on own texts.
struct Shop {
  Folder folder;
  std::string run = (folder.path() / "run").string();
  Shop() {
    std::string rows;
    for (int i = 0; i < 60; ++i) {
      rows += i % 2 ? "ham\tgreen green green\n" : "spam\tnasty nasty\n";
    }
    const std::string file = folder.write("own.tsv", rows).string();
    REQUIRE(run_program(folder.path(), {"data", "--task", "tsv", "--from", file, "--data", data()})
                .code == 0);
  }
  [[nodiscard]] std::string data() const { return (folder.path() / "data").string(); }
  [[nodiscard]] Finished train(const Words& more) const {
    Words words = {"train",      "--task",   "tsv",       "--data",  data(),
                   "--out",      run,        "--threads", "1",       "--device",
                   "cpu",        "--batch",  "8",         "--set",   "width=8",
                   "--set",      "layers=1", "--set",     "heads=1", "--set",
                   "ff_width=8", "--set",    "ngrams=0",  "--set",   "eval_every=1000000"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(folder.path(), words);
  }
};

}  // namespace

TEST_CASE("a time is a number with a unit") {
  CHECK(train::parse_duration("90s") == 90);
  CHECK(train::parse_duration("20m") == 1200);
  CHECK(train::parse_duration("1.5h") == 5400);
  for (const char* wrong :
       {"", "20", "m", "20 m", "20min", "-3s", "0s", "nans", "1e9h", "1e400h"}) {
    CAPTURE(wrong);
    const std::string said = error_of<UsageError>([&] { (void)train::parse_duration(wrong); });
    CHECK(contains(said,
                   "--budget: expected a number above 0 and below 1e9 with its unit right behind "
                   "it, such as 90s, 20m or 1.5h, got '"));
  }
}

TEST_CASE("a run takes so long for each step and so long for each token") {
  train::Choices choices;
  choices.settings = {{"steps", "40", "--steps"}, {"batch", "4", "--batch"}};
  const train::RunConfig config = train::resolve(choices);
  const Folder folder;
  const data::Dataset split =
      data::synthetic::split_of(folder, data::synthetic::sequences_of({200, 400, 600, 800}));
  const double tokens = train::TimeLeft(split, config.batches, 40).tokens();
  CHECK(train::training_seconds(config, split, {0.5, 0}) == doctest::Approx(20));
  CHECK(train::training_seconds(config, split, {0, 1e-3}) == doctest::Approx(4e-3 * tokens));
  CHECK(train::training_seconds(config, split, {0.5, 1e-3}) == doctest::Approx(20 + 4e-3 * tokens));
}

TEST_CASE(
    "computed tokens are those before the padding of a trimmed batch, else every position of both "
    "texts") {
  data::Batch batch;
  batch.size = 3;
  batch.width = 10;
  batch.sequences = 2;
  batch.lengths = {{{5, 6, 7}, {4, 7, 8}}};
  batch.real_tokens = 12;  // the others are computed, too: attention does not read them
  CHECK(train::computed_tokens(batch) == 60);
  batch.round_to = 5;
  CHECK(train::computed_tokens(batch) == 37);
}

TEST_CASE("--budget trains as many steps as it said, and resumes with them") {
  if (!program_or_skip()) return;
  const Shop shop;
  const Finished stopped = shop.train({"--budget", "1s", "--stop-after", "3"});
  CAPTURE(stopped.err);
  REQUIRE(stopped.code == 0);
  CHECK(contains(stopped.err, "--budget 1s: "));
  CHECK(contains(stopped.err, ", dev at the end; "));
  const data::Json config =
      data::parse_json(read_file(std::filesystem::path(shop.run) / "config.json"));
  const data::Json steps = config.at("settings").at("steps");
  CHECK(steps.at("origin") == "--budget");
  const std::int64_t count = std::stoll(steps.at("value").get<std::string>());
  CHECK(count > 3);

  // The steps are the run's: they are not measured again.
  const Finished rest = shop.train({"--budget", "1s", "--resume"});
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK_FALSE(contains(rest.err, "--budget 1s: "));
  CHECK(contains(rest.err, "--budget 1s is left out: the run that --resume continues keeps its " +
                               std::to_string(count) + " steps\n"));
  const data::Json result =
      data::parse_json(read_file(std::filesystem::path(shop.run) / "result.json"));
  CHECK(result.at("steps") == count);

  const Finished again = shop.train({"--budget", "1s"});  // refused before anything is measured
  CHECK(again.code == 2);
  CHECK(contains(again.err, "holds a run already"));
  CHECK_FALSE(contains(again.err, "--budget 1s: "));
  CHECK(shop.train({"--budget", "1s", "--print-config"}).code == 0);
}

TEST_CASE("--budget of several seeds is measured once, also where --resume continues them") {
  if (!program_or_skip()) return;
  const Shop shop;
  const Finished stopped = shop.train({"--budget", "1s", "--seeds", "2", "--stop-after", "3"});
  CAPTURE(stopped.err);
  REQUIRE(stopped.code == 0);
  const auto steps_of = [&](const char* seed) {
    const auto run =
        std::filesystem::path(shop.run) / ("tsv-skyformer-skytape-s" + std::string(seed));
    return data::parse_json(read_file(run / "config.json"))["settings"]["steps"]["value"];
  };
  const std::string steps = steps_of("42").get<std::string>();

  // Two seconds leave time for other steps than one did; the runs keep those that were measured.
  const Finished rest = shop.train({"--budget", "2s", "--seeds", "2", "--resume"});
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(contains(rest.err, "--budget 2s is left out: the run that --resume continues keeps its " +
                               steps + " steps\n"));
  CHECK(steps_of("43") == steps);
}

TEST_CASE("a budget with flags that contradict it, or too short for a step, exits with 2") {
  if (!program_or_skip()) return;
  const Shop shop;
  const struct {
    Words flags;
    const char* said;
  } cases[] = {
      {{"--budget", "soon"}, "--budget: expected a number above 0"},
      {{"--budget", "20s", "--steps", "9"}, "--budget chooses the steps; expected no --steps"},
      {{"--budget", "20s", "--set", "pretrain_steps=9"}, "--budget is for one phase"},
      {{"--budget", "0.000001s"}, "--budget: 3 steps of tsv alone take"},
      {{"--budget", "99999999h"}, "is time for more than 1,000,000,000 steps here, the most"},
  };
  for (const auto& c : cases) {
    const Finished f = shop.train(c.flags);
    CAPTURE(f.err);
    CHECK(f.code == 2);
    CHECK(contains(f.err, c.said));
    CHECK_FALSE(std::filesystem::exists(shop.run));
  }
}
