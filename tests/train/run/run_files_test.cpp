// A run's statements about itself, in its folder and on its output, computed again by other code:
// scores from its weights, one text at a time; rates, tokens and stops from its own lines. The
// splits differ, the classes are unequal, and no setting is a default.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <sstream>

#include "autograd/tape.hpp"
#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "train/formats/safetensors.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/saved_model.hpp"

using namespace skytape;
using namespace skytape::test;
using data::Json;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using Matrix = std::vector<std::vector<double>>;

constexpr std::size_t kClasses = 3;
constexpr std::size_t kLongest = 40;  // bytes of a text
constexpr std::uint64_t kSeed = 7;
const std::array<std::string, kClasses> kLabels = {"ant", "bee", "cow"};

struct Example {
  std::size_t label;
  std::string text;
};

/// Texts whose words hint at their class; of each class so many in ten. `moved`: of three labels
/// two are those of another class, so that a model that learns from train gets worse on them.
std::vector<Example> examples(int count, const std::array<int, kClasses>& of_ten, bool moved) {
  std::minstd_rand numbers(static_cast<unsigned>(count));
  const std::array<std::string, kClasses> hints = {"red", "grey", "black"};
  std::vector<Example> all;
  for (int i = 0; i < count; ++i) {
    const int at = i * 7 % 10;  // 7 and 10 have no common factor: every share comes up
    const std::size_t label = at < of_ten[0] ? 0 : at < of_ten[0] + of_ten[1] ? 1 : 2;
    std::string text;
    const std::size_t words = 2 + numbers() % 5;
    for (std::size_t w = 0; w < words; ++w) {
      text += (w > 0 ? " " : "") + hints[numbers() % 3 == 0 ? numbers() % kClasses : label];
    }
    all.push_back({moved && i % 3 > 0 ? (label + 1) % kClasses : label, text.substr(0, kLongest)});
  }
  return all;
}

std::string rows_of(const std::vector<Example>& examples) {
  std::string rows;
  for (const Example& e : examples) rows += kLabels[e.label] + "\t" + e.text + "\n";
  return rows;
}

double tokens_in(const std::vector<Example>& examples) {
  double tokens = 0;
  for (const Example& e : examples) tokens += static_cast<double>(e.text.size());
  return tokens;
}

std::string formatted(const char* format, auto... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// The lines of a text that hold a part.
Words lines_with(const std::string& text, const std::string& part) {
  Words lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (contains(line, part)) lines.push_back(line);
  }
  return lines;
}

Words words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

/// Examples in three splits, and runs on them.
struct CustomFolder {
  Folder folder;
  std::vector<Example> train = examples(40, {5, 3, 2}, false);  // five batches of 8: an epoch
  std::vector<Example> dev = examples(97, {3, 2, 5}, true);
  std::vector<Example> test = examples(151, {2, 5, 3}, false);
  std::string data = (folder.path() / "data").string();

  CustomFolder() {
    folder.write("own/train.tsv", rows_of(train));
    folder.write("own/dev.tsv", rows_of(dev));
    folder.write("own/test.tsv", rows_of(test));
    const Finished prepared = finish(
        {"data", "--task", "tsv", "--from", (folder.path() / "own").string(), "--data", data});
    REQUIRE_MESSAGE(prepared.code == 0, prepared.err);
  }
  [[nodiscard]] Finished finish(const Words& arguments) const {
    return run_program(folder.path(), arguments);
  }
  [[nodiscard]] fs::path run(const std::string& name) const { return folder.path() / name; }
  [[nodiscard]] std::string file(const std::string& split) const {
    return (folder.path() / "own" / (split + ".tsv")).string();
  }
  /// `train` with a model of 8 channels on texts of at most 40 bytes.
  [[nodiscard]] Words training(const std::string& name, int steps, const Words& sets,
                               const Words& more) const {
    Words arguments = {"train",
                       "--task",
                       "tsv",
                       "--data",
                       data,
                       "--out",
                       run(name).string(),
                       "--steps",
                       std::to_string(steps),
                       "--batch",
                       "8",
                       "--seed",
                       std::to_string(kSeed),
                       "--device",
                       "cpu"};
    for (const char* set : {"max_length=40", "width=8", "ff_width=12", "heads=2", "ngrams=0",
                            "warmup=8", "clip_value=0.5"}) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  [[nodiscard]] Finished trained(const std::string& name, int steps, const Words& sets,
                                 const Words& more) const {
    Finished done = finish(training(name, steps, sets, more));
    REQUIRE_MESSAGE(done.code == 0, done.err);
    return done;
  }
  [[nodiscard]] Json json(const std::string& name, const char* file) const {
    return data::parse_json(read_file(run(name) / file));
  }
  /// The lines of metrics.jsonl of a kind.
  [[nodiscard]] std::vector<Json> metrics(const std::string& name, const char* kind) const {
    std::vector<Json> lines = train::read_metrics(run(name) / "metrics.jsonl");
    std::erase_if(lines, [&](const Json& line) { return line.at("kind") != kind; });
    return lines;
  }
};

double number(const Json& json, const char* key) { return json.at(key).get<double>(); }

// ---- scores ------------------------------------------------------------------------------------

/// Returns the answer of a draw of the model's method to each text, read alone: the probabilities
/// of the classes.
Matrix probabilities(const train::SavedModel& saved, const std::vector<Example>& examples,
                     std::int64_t draw) {
  constexpr std::size_t kPlaces = 64;
  Matrix all;
  for (const Example& e : examples) {
    std::vector<double> ids(kPlaces), mask(kPlaces);
    for (std::size_t i = 0; i < e.text.size(); ++i) {
      ids[i] = static_cast<unsigned char>(e.text[i]) + saved.config.task->token_offset;
      mask[i] = 1;
    }
    nn::ModelInput input;
    input.ids[0] = Tensor::from(ids, {1, kPlaces}, DType::i32, Device::cpu);
    input.mask[0] = Tensor::from(mask, {1, kPlaces}, DType::f32, Device::cpu);
    Tape tape(Tape::Mode::eval);
    std::vector<double> p =
        saved.model->logits(tape, input, nn::answer_context(kSeed, draw)).value().to_vector();
    double sum = 0;
    for (double& x : p) sum += x = std::exp(x);
    for (double& x : p) x /= sum;
    all.push_back(p);
  }
  return all;
}

std::size_t largest(const std::vector<double>& p) {
  return static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
}

/// The answers of several draws together.
struct Said {
  Matrix mean;                                  // [examples][C]
  std::vector<std::size_t> answers;             // [examples]
  std::vector<std::vector<std::size_t>> alone;  // [draws][examples]

  Said(const train::SavedModel& saved, const std::vector<Example>& examples, int draws)
      : mean(examples.size(), std::vector<double>(kClasses)) {
    for (int draw = 0; draw < draws; ++draw) {
      const Matrix own = probabilities(saved, examples, draw);
      alone.emplace_back();
      for (std::size_t i = 0; i < own.size(); ++i) {
        for (std::size_t c = 0; c < kClasses; ++c) mean[i][c] += own[i][c] / draws;
        alone.back().push_back(largest(own[i]));
      }
    }
    for (const std::vector<double>& p : mean) answers.push_back(largest(p));
  }
  [[nodiscard]] int unanimous() const {
    int count = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      count += std::all_of(alone.begin(), alone.end(),
                           [&](const auto& draw) { return draw[i] == alone[0][i]; });
    }
    return count;
  }
  /// Returns, for each draw, how often it gives `of`'s answers.
  [[nodiscard]] std::vector<int> agreeing(const std::vector<std::size_t>& of) const {
    std::vector<int> counts;
    for (const auto& draw : alone) {
      counts.push_back(std::inner_product(draw.begin(), draw.end(), of.begin(), 0, std::plus<>(),
                                          std::equal_to<>()));
    }
    return counts;
  }
};

/// Answers against labels.
struct Scores {
  double accuracy = 0, loss = 0;
  std::array<std::array<int, kClasses>, kClasses> confusion = {};  // label, answer

  Scores(const std::vector<Example>& examples, const Said& said) {
    const auto count = static_cast<double>(examples.size());
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const std::size_t label = examples[i].label;
      accuracy += (said.answers[i] == label) / count;
      loss -= std::log(said.mean[i][label]) / count;
      ++confusion[label][said.answers[i]];
    }
  }
  [[nodiscard]] int labelled(std::size_t c) const {
    return std::accumulate(confusion[c].begin(), confusion[c].end(), 0);
  }
  [[nodiscard]] int answered(std::size_t c) const {
    return confusion[0][c] + confusion[1][c] + confusion[2][c];
  }
  [[nodiscard]] double recall(std::size_t c) const {
    return static_cast<double>(confusion[c][c]) / labelled(c);
  }
  [[nodiscard]] double precision(std::size_t c) const {
    return answered(c) == 0 ? 0 : static_cast<double>(confusion[c][c]) / answered(c);
  }
  [[nodiscard]] double majority() const {
    const int most = std::max({labelled(0), labelled(1), labelled(2)});
    return most / static_cast<double>(labelled(0) + labelled(1) + labelled(2));
  }
};

std::vector<std::size_t> labels_of(const std::vector<Example>& examples) {
  std::vector<std::size_t> labels;
  for (const Example& e : examples) labels.push_back(e.label);
  return labels;
}

train::SavedModel model_of(const CustomFolder& custom, const std::string& name,
                           const std::string& checkpoint) {
  return train::load_run(custom.run(name), checkpoint, Device::cpu);
}

// ---- the runs ----------------------------------------------------------------------------------

constexpr int kSteps = 30, kLogEvery = 5;
constexpr double kRate = 0.1;

/// A run whose method draws hashes of two tokens each, so that its seed and its draws show.
struct TrainedRun : CustomFolder {
  Finished done = trained("run", kSteps,
                          {"lr=0.1", "dropout=0.1", "eval_every=10", "checkpoint_every=7",
                           "layers=1", "pooling=first", "reformer.chunk=2", "reformer.hashes=1"},
                          {"--attention", "reformer", "--threads", "2", "--log-every", "5"});
};
const TrainedRun& trained_run() {
  static const TrainedRun run;
  return run;
}

/// The two-phase schedule: from a twenty-fifth of the highest rate up to it at step 8, then down to
/// a ten-thousandth of where it began.
double rate_of(int step) {
  const double start = kRate / 25, end = start / 1e4;
  if (step <= 8) return start + (kRate - start) * (step - 1) / 7;
  return kRate + (end - kRate) * (step - 8) / (kSteps - 8);
}

}  // namespace

TEST_CASE("the scores of a run are those that its weights give, split by split") {
  if (!program_or_skip()) return;
  const TrainedRun& custom = trained_run();
  const train::SavedModel saved = model_of(custom, "run", "best");
  const Scores dev(custom.dev, Said(saved, custom.dev, 1)),
      test(custom.test, Said(saved, custom.test, 1));
  // A mix-up shows: the two splits differ, and so do rows and columns.
  REQUIRE(std::abs(dev.loss - test.loss) > 0.02);
  REQUIRE(dev.accuracy != test.accuracy);
  REQUIRE(test.confusion[0][1] != test.confusion[1][0]);

  const Json result = custom.json("run", "result.json");
  const Json finals = Json(custom.metrics("run", "final"));
  REQUIRE(finals.size() == 2);
  const auto check = [&](const char* split, const Scores& scores, const Json& last) {
    CAPTURE(split);
    const auto figure = [&](const char* what) {
      return number(result, (std::string(split) + "_" + what).c_str());
    };
    CHECK(figure("accuracy") == doctest::Approx(scores.accuracy));
    CHECK(figure("loss") == doctest::Approx(scores.loss).epsilon(1e-4));
    CHECK(last.at("split") == split);
    CHECK(number(last, "final_accuracy") == figure("accuracy"));
    CHECK(number(last, "final_loss") == figure("loss"));
    const Json& table = result.at((std::string(split) + "_scores").c_str());
    CHECK(number(table, "majority_share") == doctest::Approx(scores.majority()));
    for (std::size_t c = 0; c < kClasses; ++c) {
      CAPTURE(c);
      const Json& one = table.at("classes")[c];
      CHECK(one.at("name") == kLabels[c]);
      CHECK(one.at("examples") == scores.labelled(c));
      CHECK(number(one, "recall") == doctest::Approx(scores.recall(c)));
      CHECK(number(one, "precision") == doctest::Approx(scores.precision(c)));
      for (std::size_t answer = 0; answer < kClasses; ++answer) {
        CHECK(table.at("confusion")[c][answer] == scores.confusion[c][answer]);
      }
    }
  };
  check("dev", dev, finals[0]);
  check("test", test, finals[1]);
  CHECK(result.at("test_examples") == custom.test.size());
  CHECK(result.at("dev_examples") == custom.dev.size());
  CHECK(number(result, "trivial_floor") == doctest::Approx(test.majority()));
  CHECK(result.at("selected_step") == saved.step);
  CAPTURE(custom.done.out);
  CHECK(contains(custom.done.out,
                 formatted("dev accuracy %.2f %% (the largest class alone %.2f %%), test accuracy "
                           "%.2f %% (the largest class alone %.2f %%) (weights of step %d of %d)",
                           100 * dev.accuracy, 100 * dev.majority(), 100 * test.accuracy,
                           100 * test.majority(), static_cast<int>(saved.step), kSteps)));

  // The weights that are tested are those of the first best evaluation.
  const std::vector<Json> evaluations = custom.metrics("run", "eval");
  REQUIRE(evaluations.size() == 3);
  const auto best = std::max_element(
      evaluations.begin(), evaluations.end(),
      [](const Json& a, const Json& b) { return number(a, "accuracy") < number(b, "accuracy"); });
  CHECK(best->at("step") == saved.step);
  CHECK(number(*best, "accuracy") == doctest::Approx(dev.accuracy));
  CHECK(number(*best, "loss") == doctest::Approx(dev.loss).epsilon(1e-4));
}

TEST_CASE("eval says of a split and its classes what the weights say, by one draw and by three") {
  if (!program_or_skip()) return;
  const TrainedRun& custom = trained_run();
  const train::SavedModel saved = model_of(custom, "run", "last");
  REQUIRE(saved.step == kSteps);
  for (const int draws : {1, 3}) {
    for (const bool of_dev : {true, false}) {
      const std::vector<Example>& examples = of_dev ? custom.dev : custom.test;
      const std::string split = of_dev ? "dev" : "test";
      CAPTURE(draws);
      CAPTURE(split);
      const Said said(saved, examples, draws);
      const Scores scores(examples, said);
      const Finished eval = custom.finish({"eval", "--run", custom.run("run").string(),
                                           "--checkpoint", "last", "--split", split, "--confusion",
                                           "--draws", std::to_string(draws), "--device", "cpu"});
      CAPTURE(eval.out);
      REQUIRE(eval.code == 0);
      CHECK(contains(
          eval.out, formatted("%s accuracy %.2f %%, loss ", split.c_str(), 100 * scores.accuracy)));
      const double loss = std::stod(eval.out.substr(eval.out.find("loss ") + 5));
      CHECK(std::abs(loss - scores.loss) < 5e-5);
      CHECK(contains(
          eval.out, formatted(" over %zu examples (weights of step %d)", examples.size(), kSteps)));
      CHECK(contains(eval.out,
                     formatted("the largest class alone: %.2f %%", 100 * scores.majority())));
      for (std::size_t c = 0; c < kClasses; ++c) {
        Words rows;  // of the table, then of the matrix
        for (const std::string& line : lines_with(eval.out, kLabels[c])) {
          if (line.starts_with(kLabels[c])) rows.push_back(line);
        }
        REQUIRE(rows.size() == 2);
        CHECK(words_of(rows[0]) ==
              words_of(formatted("%s %d %.4f %.4f", kLabels[c].c_str(), scores.labelled(c),
                                 scores.precision(c), scores.recall(c)) +
                       " " + words_of(rows[0]).back()));
        CHECK(words_of(rows[1]) ==
              words_of(formatted("%s %d %d %d", kLabels[c].c_str(), scores.confusion[c][0],
                                 scores.confusion[c][1], scores.confusion[c][2])));
      }
      if (draws == 1) continue;
      std::vector<int> right = said.agreeing(labels_of(examples));
      std::sort(right.begin(), right.end());
      REQUIRE(right.front() < right.back());
      const auto percent = [&](int count) {
        return 100.0 * count / static_cast<double>(examples.size());
      };
      CHECK(contains(
          eval.out,
          formatted("mean of 3 draws; each alone: accuracy %.2f to %.2f %%; all "
                    "of them agree on %.2f %% of the examples",
                    percent(right.front()), percent(right.back()), percent(said.unanimous()))));
    }
  }
  // A part of a split is called so, and scored alone.
  const std::vector<Example> first(custom.test.begin(), custom.test.begin() + 11);
  const Finished part = custom.finish({"eval", "--run", custom.run("run").string(), "--checkpoint",
                                       "last", "--examples", "11", "--device", "cpu"});
  CAPTURE(part.out);
  CHECK(contains(part.out, formatted("accuracy %.2f %%",
                                     100 * Scores(first, Said(saved, first, 1)).accuracy)));
  CHECK(contains(part.out, "over the first 11 examples"));
}

TEST_CASE("predict's draws are counted against what their mean says") {
  if (!program_or_skip()) return;
  const TrainedRun& custom = trained_run();
  const Said said(model_of(custom, "run", "last"), custom.test, 3);
  const Scores scores(custom.test, said);
  const Finished f =
      custom.finish({"predict", "--run", custom.run("run").string(), "--from", custom.file("test"),
                     "--checkpoint", "last", "--scores", "--draws", "3", "--batch", "9",
                     "--threads", "2", "--device", "cpu"});
  CAPTURE(f.err);
  REQUIRE(f.code == 0);
  std::istringstream in(f.out);
  std::string line;
  REQUIRE(static_cast<bool>(std::getline(in, line)));
  CHECK(words_of(line) == Words{"label", "ant", "bee", "cow", "draws"});
  const auto alike = [&](std::size_t i, std::size_t draw) {
    return said.alone[draw][i] == said.answers[i];
  };
  for (std::size_t i = 0; i < custom.test.size(); ++i) {
    CAPTURE(i);
    REQUIRE(static_cast<bool>(std::getline(in, line)));
    const Words row = words_of(line);
    REQUIRE(row.size() == kClasses + 2);
    CHECK(row[0] == kLabels[said.answers[i]]);
    for (std::size_t c = 0; c < kClasses; ++c) {
      CHECK(std::abs(std::stod(row[1 + c]) - said.mean[i][c]) < 1e-5);
    }
    CHECK(row.back() == formatted("%.2f", (alike(i, 0) + alike(i, 1) + alike(i, 2)) / 3.0));
  }
  std::vector<int> same = said.agreeing(said.answers);
  // The first draw is one of them: it alone would always agree with itself.
  REQUIRE(same[0] < std::ssize(custom.test));
  std::sort(same.begin(), same.end());
  CHECK(
      contains(f.err, formatted("accuracy %.2f %%: %.0f of 151 examples have the label in the file",
                                100 * scores.accuracy, 151 * scores.accuracy)));
  CHECK(contains(f.err, formatted("mean of 3 draws: all of them agree on %d of 151 examples; each "
                                  "alone agrees with the mean on %d to %d",
                                  said.unanimous(), same.front(), same.back())));
}

TEST_CASE("learning rates, rates and tokens of the log are those of its own steps") {
  if (!program_or_skip()) return;
  const TrainedRun& custom = trained_run();
  const Json result = custom.json("run", "result.json");
  const std::vector<Json> log = custom.metrics("run", "train");
  REQUIRE(log.size() == kSteps / kLogEvery);
  const Words lines = lines_with(custom.done.err, " left");
  REQUIRE(lines.size() == log.size());
  const double epoch = tokens_in(custom.train);
  double seconds = 0;
  std::vector<double> until;  // each log point
  for (std::size_t i = 0; i < log.size(); ++i) {
    const Json& point = log[i];
    const int step = kLogEvery * (static_cast<int>(i) + 1);
    CAPTURE(step);
    CHECK(point.at("step") == step);
    CHECK(number(point, "lr") == doctest::Approx(rate_of(step)).epsilon(1e-9));
    const double own_seconds = kLogEvery / number(point, "steps_per_second");
    seconds += own_seconds;
    until.push_back(seconds);
    // Five batches are an epoch.
    CHECK(number(point, "tokens_per_second") * own_seconds == doctest::Approx(epoch).epsilon(1e-9));
    CAPTURE(lines[i]);
    CHECK(lines[i].starts_with(
        formatted("step %d/%d  loss %.4f  accuracy %.2f %%  lr %.2e  %.2f steps/s  ", step, kSteps,
                  number(point, "loss"), 100 * number(point, "accuracy"), number(point, "lr"),
                  number(point, "steps_per_second"))));
    std::string count = words_of(lines[i])[11];
    std::erase(count, ',');
    CHECK(count == formatted("%.0f", std::floor(number(point, "tokens_per_second"))));
  }
  CHECK(number(result, "train_seconds") == doctest::Approx(seconds).epsilon(1e-9));
  CHECK(number(result, "steps_per_second") == doctest::Approx(kSteps / seconds).epsilon(1e-9));
  CHECK(number(result, "tokens") == doctest::Approx(epoch * kSteps / kLogEvery));
  CHECK(number(result, "tokens_per_second") ==
        doctest::Approx(epoch * kSteps / kLogEvery / seconds).epsilon(1e-9));
  for (const Json& dev : custom.metrics("run", "eval")) {
    const auto point = static_cast<std::size_t>(dev.at("step").get<int>() / kLogEvery);
    CAPTURE(point);
    CHECK(number(dev, "train_seconds") == doctest::Approx(until[point - 1]).epsilon(1e-9));
    CHECK(number(dev, "tokens") == doctest::Approx(epoch * static_cast<double>(point)));
    CHECK(dev.at("examples") == custom.dev.size());
    CHECK(dev.at("partial") == false);
    CHECK(contains(
        custom.done.err,
        formatted("step %d  dev loss %.4f  accuracy %.2f %% (the largest class alone "
                  "%.2f %%)  (97 examples, ",
                  dev.at("step").get<int>(), number(dev, "loss"), 100 * number(dev, "accuracy"),
                  100 * number(result.at("dev_scores"), "majority_share"))));
  }
  CHECK(contains(custom.done.err, "seed 7, on cpu (2 threads)"));
  CHECK(result.at("seed") == kSeed);
  CHECK(result.at("machine").at("threads") == 2);
}

TEST_CASE("a run that stands still logs the loss of train, and dev's, by its weights") {
  if (!program_or_skip()) return;
  const CustomFolder custom;
  (void)custom.trained(
      "still", 10,
      {"lr=0", "dropout=0", "attention_dropout=0", "eval_every=5", "select=last", "accumulate=3"},
      {"--attention", "softmax", "--threads", "1", "--log-every", "5"});
  CHECK_FALSE(fs::exists(custom.run("still") / "best.safetensors"));
  const train::SavedModel saved = model_of(custom, "still", "last");
  const Scores train_scores(custom.train, Said(saved, custom.train, 1));
  const Scores dev(custom.dev, Said(saved, custom.dev, 1));
  REQUIRE(std::abs(train_scores.loss - dev.loss) > 1e-4);
  const auto check = [&](const char* kind, const Scores& scores) {
    const std::vector<Json> lines = custom.metrics("still", kind);
    CHECK(lines.size() == 2);
    for (const Json& line : lines) {
      CHECK(number(line, "loss") == doctest::Approx(scores.loss).epsilon(1e-5));
      CHECK(number(line, "accuracy") == doctest::Approx(scores.accuracy));
    }
  };
  check("train", train_scores);
  check("eval", dev);
}

TEST_CASE("what a run says is left of it follows from its rate") {
  if (!program_or_skip()) return;
  const CustomFolder custom;
  const Finished f = custom.trained(
      "long", 2'000'000, {"eval_every=1000", "lr=1e-3"},
      {"--attention", "vmean", "--threads", "1", "--log-every", "4", "--stop-after", "8"});
  CAPTURE(f.err);
  /// Seconds behind a word, as "1.3 h" or "20 min", and half of the last digit.
  const auto left_in = [](const std::string& text) {
    std::istringstream in(text);
    double value = 0;
    std::string unit;
    in >> value >> unit;
    return unit.starts_with("h")   ? std::pair(3600 * value, 180.0)
           : unit.starts_with("m") ? std::pair(60 * value, 30.0)
                                   : std::pair(value, 0.5);
  };
  const auto check = [&](double rate, double steps_left, const std::string& said) {
    CAPTURE(said);
    const auto [seconds, rounding] = left_in(said);
    CHECK(seconds > 100);
    CHECK(std::abs(seconds - steps_left / rate) <= rounding + 0.005 / rate * seconds);
  };
  const std::vector<Json> log = custom.metrics("long", "train");
  const Words lines = lines_with(f.err, " left");
  REQUIRE(log.size() == 2);
  REQUIRE(lines.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t at = lines[i].find("tokens/s") + 8;
    check(number(log[i], "steps_per_second"), 2e6 - number(log[i], "step"), lines[i].substr(at));
  }
  const Words measured = lines_with(f.err, "measured ");
  REQUIRE(measured.size() == 1);
  const double rate = std::stod(measured[0].substr(9));
  check(rate, 2e6 - 5, measured[0].substr(measured[0].find(": ") + 2));
  // Steps 2 to 5, of which 2 to 4 stand in the first window and the fifth in the second.
  CHECK(4 / rate < 4 / number(log[0], "steps_per_second") + 4 / number(log[1], "steps_per_second"));
}

TEST_CASE("a run stops after so many evaluations without progress, in one go or resumed") {
  if (!program_or_skip()) return;
  const CustomFolder custom;
  constexpr int kEvery = 2, kPatience = 3, kPlanned = 60, kSeen = 11, kLast = 17;
  const Words sets = {
      "lr=0.05",          "dropout=0",         "eval_every=2",     "patience=3",
      "eval_examples=11", "final_examples=17", "select=best_loss", "checkpoint_every=1000"};
  const Words flags = {"--attention", "linformer", "--features",  "6",
                       "--threads",   "1",         "--log-every", "3"};
  const Finished whole = custom.trained("whole", kPlanned, sets, flags);
  const Json result = custom.json("whole", "result.json");
  const std::vector<Json> evaluations = custom.metrics("whole", "eval");
  REQUIRE(evaluations.size() > kPatience);
  std::size_t best = 0;
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    CHECK(evaluations[i].at("step") == kEvery * (i + 1));
    CHECK(evaluations[i].at("examples") == kSeen);
    CHECK(evaluations[i].at("partial") == true);
    if (number(evaluations[i], "loss") < number(evaluations[best], "loss")) best = i;
    CHECK((i - best == kPatience) == (i + 1 == evaluations.size()));
  }
  const int stopped = kEvery * static_cast<int>(best + 1 + kPatience);
  REQUIRE(stopped < kPlanned);
  CHECK(result.at("steps") == stopped);
  CHECK(result.at("planned_steps") == kPlanned);
  CHECK(result.at("selected_step") == kEvery * (best + 1));
  CHECK(lines_with(whole.err, "(the first 11 examples, ").size() == evaluations.size());
  const std::vector<Example> seen(custom.dev.begin(), custom.dev.begin() + kSeen);
  const Scores selected(seen, Said(model_of(custom, "whole", "best"), seen, 1));
  CHECK(number(evaluations[best], "loss") == doctest::Approx(selected.loss).epsilon(1e-4));
  for (const auto& [split, examples] :
       {std::pair("dev", custom.dev), std::pair("test", custom.test)}) {
    CAPTURE(split);
    const std::vector<Example> tested(examples.begin(), examples.begin() + kLast);
    const Scores last(tested, Said(model_of(custom, "whole", "best"), tested, 1));
    CHECK(number(result, formatted("%s_examples", split).c_str()) == kLast);
    CHECK(number(result, formatted("%s_loss", split).c_str()) ==
          doctest::Approx(last.loss).epsilon(1e-4));
  }

  // Between the last two evaluations, and between two log points. Seconds of the first process are
  // moved far off those of any other.
  Words part = flags;
  part.insert(part.end(), {"--stop-after", std::to_string(stopped - 1)});
  (void)custom.trained("part", kPlanned, sets, part);
  const fs::path last = custom.run("part") / "last.safetensors";
  train::SafetensorsFile file = train::read_safetensors(last);
  Json state = data::parse_json(file.metadata.at("skytape.state"));
  CHECK(state.at("stale") == kPatience - 1);
  CHECK(number(state, "waited_seconds") > 0);
  state["waited_seconds"] = 1000.0;
  state["train_seconds"] = 5000.0;
  CHECK(number(state, "peak_bytes") > 0);
  state["peak_bytes"] = 1 << 30;
  file.metadata["skytape.state"] = data::json_text(state);
  train::write_safetensors(last, {file.tensors.begin(), file.tensors.end()}, file.metadata);
  const Finished rest = custom.finish(
      {"train", "--resume", "--out", custom.run("part").string(), "--log-every", "3"});
  CAPTURE(rest.err);
  REQUIRE(rest.code == 0);
  const Json resumed = custom.json("part", "result.json");
  CHECK(resumed.at("steps") == stopped);
  CHECK(resumed.at("selected_step") == result.at("selected_step"));
  CHECK(resumed.at("tokens") == result.at("tokens"));
  CHECK(resumed.at("test_loss") == result.at("test_loss"));
  CHECK(number(resumed, "loader_wait_seconds") > 1000);
  CHECK(number(resumed, "loader_wait_seconds") < 1500);
  CHECK(number(resumed, "train_seconds") > 5000);
  CHECK(number(resumed, "train_seconds") < 5500);
  CHECK(resumed.at("peak_bytes") == 1 << 30);
}

TEST_CASE("a resumed run takes the threads that it had, or those of --threads") {
  if (!program_or_skip()) return;
  const CustomFolder custom;
  const auto go_on = [&](Words more) {
    more.insert(more.begin(), {"train", "--resume", "--out", custom.run("run").string()});
    const Finished f = custom.finish(more);
    REQUIRE_MESSAGE(f.code == 0, f.err);
    return f.err;
  };
  (void)custom.trained("run", 9, {"eval_every=100"},
                       {"--attention", "vmean", "--threads", "1", "--stop-after", "2"});
  CHECK(contains(go_on({"--stop-after", "4"}), "on cpu (1 thread)"));
  CHECK(contains(go_on({"--threads", "3"}), "on cpu (3 threads)"));
}

TEST_CASE("the first rates behind a resume are of the new process's steps, the loss is of all") {
  if (!program_or_skip()) return;
  const CustomFolder custom;
  const Words sets = {"lr=0.05", "dropout=0", "eval_every=100"};
  const Words flags = {"--attention", "vmean", "--threads", "1", "--log-every", "5"};
  (void)custom.trained("whole", 12, sets, flags);
  const auto tokens_after = [&](int steps) {
    Words more = flags;
    more.insert(more.end(), {"--stop-after", std::to_string(steps)});
    if (fs::exists(custom.run("part"))) more.emplace_back("--resume");
    (void)custom.trained("part", 12, sets, more);
    const auto file = train::read_safetensors(custom.run("part") / "last.safetensors");
    return number(data::parse_json(file.metadata.at("skytape.state")), "tokens");
  };
  // Steps 6 and 7 are the first process's, 8 to 10 the second one's.
  const double before = tokens_after(7), after = tokens_after(10);
  const std::vector<Json> log = custom.metrics("part", "train"),
                          whole = custom.metrics("whole", "train");
  REQUIRE(log.size() == 2);
  REQUIRE(whole.size() == 3);
  CHECK(log[1].at("step") == 10);
  CHECK(log[1].at("loss") == whole[1].at("loss"));
  CHECK(log[1].at("accuracy") == whole[1].at("accuracy"));
  CHECK(number(log[1], "tokens_per_second") / number(log[1], "steps_per_second") ==
        doctest::Approx((after - before) / 3).epsilon(1e-9));
}
