// Linformer's Figure 3 on a tiny corpus: which cells there are, what is drawn of them, and that no
// training is done twice.
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "train/lab/curves/mlm_curves.hpp"
#include "train/run/run_folder.hpp"

using namespace skytape;
using namespace skytape::train;
using namespace skytape::test;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

CurvesOptions tiny_options() {
  CurvesOptions options;
  options.lengths = {16, 32};
  options.shares = {4, 8};
  options.batch = 4;
  options.base.settings = {{"steps", "40", "--steps"}};
  options.out = "nowhere";
  return options;
}

/// A curve that ends at this perplexity.
Curve curve_of(const CurveCell& cell, double perplexity) {
  Curve curve;
  curve.cell = cell;
  curve.points = {{10, 1.5, 2 * perplexity}, {20, 3, perplexity}};
  curve.finished = true;
  return curve;
}

/// The program on a corpus of forty lines.
struct Workshop {
  Folder folder;
  fs::path out = folder.path() / "curves";
  std::string corpus;

  Workshop() {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "the mill by the river " + std::to_string(i % 7) + "\n";
    corpus = folder.write("corpus.txt", text).string();
  }
  [[nodiscard]] Words command(int steps, const Words& more = {}) const {
    Words words = {"mlm-curves",
                   "--lengths",
                   "16,32",
                   "--shares",
                   "4",
                   "--layers",
                   "1",
                   "--width",
                   "8",
                   "--batch",
                   "4",
                   "--steps",
                   std::to_string(steps),
                   "--device",
                   "cpu",
                   "--threads",
                   "1",
                   "--out",
                   out.string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  [[nodiscard]] Finished run(const Words& words) const { return run_program(folder.path(), words); }
  [[nodiscard]] std::size_t finished_cells() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(out)) {
      count += fs::exists(entry.path() / "result.json");
    }
    return count;
  }
};

}  // namespace

TEST_CASE("the cells of the figure: every share at every n, four sharings, one k at all n") {
  const std::vector<CurveCell> cells = curve_cells(tiny_options());
  Words folders;
  for (const CurveCell& cell : cells) {
    folders.push_back(cell.run.folder);
    const nn::ModelConfig& model = cell.run.config.model;
    CHECK(model.objective == nn::Objective::predict_masked);
    CHECK(model.nominal_length == cell.n);
    CHECK(cell.run.config.batches.batch * cell.n == 64);  // tokens of a step
    CHECK(cell.run.config.steps() == 40);
    CHECK(cell.run.config.eval_every == 2);
    CHECK(model.attention == (cell.k == 0 ? "softmax" : "linformer"));
    if (cell.k > 0) {
      CHECK(model.attention_options.at("features") == std::to_string(cell.k));
    } else {
      CHECK(model.attention_options.at("attention_dropout") == "0");  // as Linformer has none
    }
  }
  CHECK(folders == Words{"n16-softmax", "n16-linformer-k4-keyvalue", "n16-linformer-k2-keyvalue",
                         "n32-softmax", "n32-linformer-k8-keyvalue", "n32-linformer-k4-keyvalue",
                         "n16-linformer-k4-none", "n16-linformer-k4-headwise",
                         "n16-linformer-k4-layerwise"});
  CHECK(cells.back().run.config.model.attention_options.at("sharing") == "layerwise");
}

TEST_CASE("a dropout of attention weights that the user sets is that of the exact cells") {
  for (const char* key : {"attention_dropout", "softmax.attention_dropout"}) {
    CAPTURE(key);
    CurvesOptions options = tiny_options();
    options.base.settings.push_back({key, "0.2", "--set"});
    for (const CurveCell& cell : curve_cells(options)) {
      const attention::OptionValues& attention = cell.run.config.model.attention_options;
      CHECK(attention.contains("attention_dropout") == (cell.k == 0));
      if (cell.k == 0) CHECK(attention.at("attention_dropout") == "0.2");
    }
    options.base.settings.back().value = "2";
    CHECK(
        contains(error_of<UsageError>([&] { (void)curve_cells(options); }), "attention_dropout: "));
  }
}

TEST_CASE("sizes that make no grid are refused") {
  const auto error_with = [](const auto& change) {
    CurvesOptions options = tiny_options();
    change(options);
    return error_of<UsageError>([&] { (void)curve_cells(options); });
  };
  CHECK(contains(error_with([](CurvesOptions& o) { o.lengths = {32, 16}; }), "got 16 behind 32"));
  CHECK(
      contains(error_with([](CurvesOptions& o) { o.shares = {3}; }), "n = 16 is no multiple of 3"));
  CHECK(contains(error_with([](CurvesOptions& o) { o.batch = 3; }),
                 "no whole number of those of 32"));
  CHECK(contains(error_with([](CurvesOptions& o) {
                   o.base.settings.push_back({"widht", "8", "--set"});
                 }),
                 "did you mean 'width'"));
}

TEST_CASE("a row says by how much its perplexity is above that of exact attention at its length") {
  const std::vector<CurveCell> cells = curve_cells(tiny_options());
  std::vector<Curve> curves;
  for (const CurveCell& cell : cells) {
    curves.push_back(curve_of(
        cell, cell.k == 0 ? 10 * static_cast<double>(cell.n) : 11 * static_cast<double>(cell.n)));
  }
  curves[2].finished = false;
  const Table table = curve_table(curves);
  REQUIRE(table.rows.size() == cells.size());
  CHECK(table.rows[0][4].number == 160);
  CHECK(table.rows[0][5].kind == Cell::Kind::missing);
  CHECK(table.rows[1][5].number == doctest::Approx(10));
  CHECK(table.rows[4][5].number == doctest::Approx(10));
  CHECK(table.rows[2][4].kind == Cell::Kind::missing);
  CHECK(table.notes.size() == 1);

  std::vector<Curve> lost = curves;
  lost[0].points.clear();  // of exact attention: its metrics.jsonl is gone
  CHECK(curve_table(lost).rows[0][4].kind == Cell::Kind::missing);
  CHECK(curve_table(lost).rows[1][5].kind == Cell::Kind::missing);

  CHECK(contains(curve_csv(curves), "16,exact,,20,3,160\n"));
  CHECK(contains(curve_csv(curves), "32,8,keyvalue,10,1.5,704\n"));
}

TEST_CASE("mlm-curves trains every cell once, and shows them") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished none = w.run(w.command(6));
  CHECK(none.code == 3);
  CHECK(contains(none.err, "no corpus there; --from names the texts to pack"));
  const Finished first = w.run(w.command(6, {"--from", w.corpus}));
  CAPTURE(first.err);
  CAPTURE(first.out);
  REQUIRE(first.code == 0);
  CHECK(contains(first.err, "8 cells: 0 finished before, 0 without data, 8 to run"));
  CHECK(contains(first.err, "n16-softmax: masked loss "));
  CHECK(w.finished_cells() == 8);
  const data::Json shown = data::parse_json(read_file(w.out / "mlm-curves.json"));
  CHECK(shown["tables"]["mlm-curves"]["rows"].size() == 8);
  CHECK(shown["facts"]["tokens per step"] == 64);
  const std::string csv = read_file(w.out / "mlm-curves.csv");
  CHECK(contains(csv, "n,k,sharing,step,seconds,perplexity\n16,exact,,1,"));
  CHECK(contains(csv, "32,8,keyvalue,6,"));
  // Its seconds are those of the training until then, not of the evaluation.
  std::istringstream lines(csv);
  std::vector<double> seconds;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("16,exact,"))
      seconds.push_back(std::stod(line.substr(line.find(',', line.find(",,") + 2) + 1)));
  }
  for (const data::Json& line : read_metrics(w.out / "n16-softmax/metrics.jsonl")) {
    if (line.value("kind", "") != "eval") continue;
    REQUIRE_FALSE(seconds.empty());
    CHECK(line.at("train_seconds").get<double>() == doctest::Approx(seconds.front()).epsilon(1e-9));
    seconds.erase(seconds.begin());
  }
  CHECK(seconds.empty());

  const auto written = fs::last_write_time(w.out / "n16-softmax/result.json");
  const Finished again = w.run(w.command(6));
  CAPTURE(again.err);
  CHECK(again.code == 0);
  CHECK(contains(again.err, "8 cells: 8 finished before, 0 without data, 0 to run"));
  CHECK(contains(again.err, "packed already: --from, --tokens and --learn-tokens are not read"));
  CHECK(again.out == first.out);
  CHECK((fs::last_write_time(w.out / "n16-softmax/result.json") - written).count() == 0);
  CHECK(read_file(w.out / "mlm-curves.csv") == csv);
  CHECK(w.run(w.command(6, {"--table-only"})).out == first.out);

  // Another length of training is another grid, whose cells are not these.
  const Finished other = w.run(w.command(7, {"--table-only"}));
  CHECK(other.code == 0);
  CHECK(contains(other.out, "Rows without figures are not finished."));
  const Finished anew = w.run(w.command(7));
  CHECK(anew.code == 0);
  CHECK(contains(anew.err, "holds another run"));
  CHECK((fs::last_write_time(w.out / "n16-softmax/result.json") - written).count() == 0);
  CHECK(fs::exists(w.out / "n16-softmax-2/result.json"));
}

TEST_CASE("SIGTERM stops mlm-curves with 143, and the same command continues it") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Words command = w.command(300, {"--from", w.corpus, "--set", "eval_every=100"});
  Program program(w.folder.path(), command);
  while (program.running() && !fs::exists(w.out / "n16-softmax/metrics.jsonl")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  program.kill(SIGTERM);
  const Finished stopped = program.wait();
  CAPTURE(stopped.err);
  CHECK(stopped.code == 143);
  CHECK(contains(stopped.err, "n16-softmax: stopped, its state is kept"));
  CHECK(contains(stopped.err, "the same command continues it"));
  CHECK(contains(stopped.out, "Rows without figures are not finished."));
  const Finished rest = w.run(command);
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(contains(read_file(w.out / "n16-softmax/log.txt"), "resuming"));
  CHECK(w.finished_cells() == 8);
}
