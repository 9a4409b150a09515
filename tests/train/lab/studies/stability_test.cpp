#include "train/lab/studies/stability.hpp"

#include <cmath>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "train/process/progress.hpp"
#include "train/run/splits.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;

namespace {

/// A small ListOps and choices for a small model on it.
struct Workshop {
  Folder folder;
  Choices choices;

  Workshop() {
    data::synthetic::small_listops(folder.path(), 60);
    choices.recipe = "skyformer";
    choices.data_root = folder.path();
    for (const auto& [key, value] : {std::pair("max_length", "64"), std::pair("width", "8"),
                                     std::pair("ff_width", "8"), std::pair("batch", "3")}) {
      choices.settings.push_back({key, value, "--set"});
    }
  }

  [[nodiscard]] RunConfig config(const std::string& method, const std::string& steps = "") const {
    Choices c = choices;
    c.attention = method;
    if (!steps.empty()) c.settings.push_back({"steps", steps, "--steps"});
    return resolve(c);
  }
  [[nodiscard]] data::Dataset train() const {
    Progress progress(false, false);
    return open_splits(config("softmax"), progress).train;
  }
  [[nodiscard]] StabilityOptions options(std::vector<std::string> methods,
                                         std::vector<std::string> tasks = {"listops"}) const {
    return {std::move(methods), std::move(tasks), choices, 3, 0};
  }
};

double squared(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sum;
}

}  // namespace

TEST_CASE("the instability score is the embedding's way over the weights'") {
  const Workshop w;
  const RunConfig config = w.config("softmax");
  const auto [scores, with_dropout] = instability_scores(config, w.train(), 2);
  REQUIRE(scores.size() == 2);
  REQUIRE(with_dropout.size() == 2);

  // The first step once more, by hand.
  nn::ModelConfig small = config.model;
  small.classes = w.train().classes();
  nn::Model model(small, DType::f32, Device::cpu, config.seed);
  Trainer trainer(model, config.adamw, config.schedule, config.seed, {});
  data::BatchStream stream(w.train(), config.batches);
  data::Batch batch;
  stream.next(batch);
  const auto embed_in = [&](const nn::StepContext& context) {
    Tape tape(Tape::Mode::eval);
    const DeviceBatch on_device = upload(batch, Device::cpu);
    return model.encode(tape, on_device.input, 0, context).value().to_vector();
  };
  const auto embed = [&] { return embed_in({}); };
  const auto embed_dropped = [&](double draw) {
    nn::StepContext context;
    context.training = true;
    context.random = {config.seed, Tensor::full({1}, draw, DType::i32, Device::cpu)};
    return embed_in(context);
  };
  const std::vector<double> dropped0 = embed_dropped(0);
  const std::vector<double> f0 = embed(), w0 = model.parameters().values().to_vector();
  trainer.step(batch);
  const std::vector<double> dropped1 = embed_dropped(2);
  const std::vector<double> f1 = embed(), w1 = model.parameters().values().to_vector();
  CHECK(scores[0] == doctest::Approx(squared(f1, f0) / squared(w1, w0)).epsilon(1e-5));
  CHECK(scores[0] > 0);
  CHECK(with_dropout[0] ==
        doctest::Approx(squared(dropped1, dropped0) / squared(w1, w0)).epsilon(1e-5));
  CHECK(with_dropout[0] > 10 * scores[0]);  // the masks, not the weights
}

TEST_CASE(
    "stability tables repeat bit for bit, softmax's ratio is one, and a task without data is "
    "missing") {
  const Workshop w;
  const StabilityOptions options = w.options({"softmax", "kernelized"}, {"listops", "text"});
  const StabilityStudy study = measure_stability(options);
  const Table table = stability_table(study);
  CHECK(to_json(table) == to_json(stability_table(measure_stability(options))));
  CHECK(to_json(score_table(study)) == to_json(score_table(measure_stability(options))));
  REQUIRE(table.rows.size() == 5);  // two methods twice, and one of the paper's
  for (const std::size_t softmax : {0, 1}) CHECK(table.rows[softmax][2].number == 1);
  for (const std::size_t kernelized : {2, 3}) {
    CHECK(table.rows[kernelized][2].number > 0);
    CHECK(table.rows[kernelized][2].number != 1);
    CHECK(table.rows[kernelized][3].kind == Cell::Kind::missing);
  }
  CHECK(table.rows[4][3].number == 0.83);
  REQUIRE(table.notes.size() == 1);
  CHECK(table.notes[0].find("text") != std::string::npos);
  CHECK(score_table(study).rows.size() == 4);
}

TEST_CASE("without softmax there are scores but no ratios, and without any data an error") {
  const Workshop w;
  const StabilityStudy study = measure_stability(w.options({"vmean"}));
  CHECK(stability_table(study).rows[0][2].kind == Cell::Kind::missing);
  CHECK(score_table(study).rows[0][3].number > 0);
  CHECK(error_of<DataError>([&] {
          (void)measure_stability(w.options({"vmean"}, {"text"}));
        }).find("no task has data") != std::string::npos);
}

TEST_CASE("gradients are recorded before clipping, until a number is not finite") {
  const Workshop w;
  const GradientTrace trace = trace_gradients(w.config("skyformer", "4"), w.train());
  REQUIRE(trace.norm.size() == 4);
  CHECK(trace.loss.size() == 4);
  CHECK(trace.failed_at == 0);
  for (const double norm : trace.norm) CHECK(norm > 0);

  RunConfig wild = w.config("softmax", "6");
  wild.schedule.max_lr = 1e30;
  const GradientTrace failed = trace_gradients(wild, w.train());
  CHECK(failed.failed_at > 1);
  CHECK(failed.norm.size() == static_cast<std::size_t>(failed.failed_at - 1));
  const Table table = gradient_table({trace, failed});
  CHECK(table.rows[0][7].kind == Cell::Kind::missing);
  CHECK(table.rows[1][7].number == static_cast<double>(failed.failed_at));
}

TEST_CASE("a row of gradients has the norms' median and largest, its step and both ends' losses") {
  const Table table = gradient_table(
      {{"softmax", {3, 1, 9, 4, 2}, {2.5, 2.25, 2, 1.75, 1.5}, 0}, {"vmean", {7, 5}, {4, 3}, 3}});
  const auto row = [&](std::size_t r) {
    std::vector<double> numbers;
    for (std::size_t c = 1; c < table.columns.size(); ++c) {
      const Cell& cell = table.rows[r][c];
      numbers.push_back(cell.kind == Cell::Kind::missing ? -1 : cell.number);
    }
    return numbers;
  };
  CHECK(row(0) == std::vector<double>{5, 3, 9, 3, 2.5, 1.5, -1});
  CHECK(row(1) == std::vector<double>{2, 6, 7, 1, 4, 3, 3});
}

TEST_CASE("stability from outside: tables, files, and the exit code without data") {
  if (!test::program_or_skip()) return;
  const Workshop w;
  const auto run = [&](const std::string& task) {
    const std::string out = (w.folder.path() / "out").string();
    std::vector<std::string> arguments = {"stability",
                                          "--tasks",
                                          task,
                                          "--attention",
                                          "softmax,skyformer",
                                          "--steps",
                                          "2",
                                          "--batch",
                                          "2",
                                          "--train-steps",
                                          "3",
                                          "--train-batch",
                                          "2",
                                          "--threads",
                                          "1",
                                          "--device",
                                          "cpu",
                                          "--data",
                                          w.folder.path().string(),
                                          "--out",
                                          out};
    for (const char* set : {"max_length=64", "width=8", "ff_width=8"}) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    return test::run_program(w.folder.path(), arguments);
  };
  const test::Finished good = run("listops");
  CHECK(good.code == 0);
  CHECK(good.out.find("skyformer") != std::string::npos);
  const data::Json j =
      data::parse_json(data::synthetic::read_file(w.folder.path() / "out" / "stability.json"));
  CHECK(j["tables"]["gradients"]["rows"].size() == 2);
  CHECK(j["facts"]["steps"] == 2);
  const data::Json& trained = j["details"]["gradients"];
  REQUIRE(trained.size() == 2);
  CHECK(trained[0]["failed_at"] == 0);
  CHECK(trained[1]["loss"].back() == j["tables"]["gradients"]["rows"][1][6]);
  CHECK(trained[1]["norm"].size() == j["tables"]["gradients"]["rows"][1][1]);
  CHECK(run("text").code == 3);
}
