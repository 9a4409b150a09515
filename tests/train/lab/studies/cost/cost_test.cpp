#include "train/lab/studies/cost/cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string_view>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "train/lab/papers/paper_costs.hpp"
#include "train/process/threads.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;

namespace {

CostOptions options(std::vector<std::string> methods) {
  CostOptions o;
  o.methods = std::move(methods);
  o.tasks = {"listops"};
  o.steps = 1;
  o.batch = 1;
  return o;
}

/// The cell of the row that starts with `first`, or with `first` and `second`.
Cell at(const Table& table, const std::string& column, const std::string& first,
        const std::string& second = "") {
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].title != column) continue;
    for (const auto& row : table.rows) {
      if (row[0].words == first && (second.empty() || row[1].words == second)) return row[c];
    }
  }
  FAIL("no cell " << column << " of " << first << " " << second);
  return {};
}

/// A finished run whose dev losses at steps 10, 20, … are these, at a step a second.
void make_run(const std::filesystem::path& folder, const std::vector<double>& losses,
              const std::string& extra = "") {
  std::filesystem::create_directories(folder);
  std::ofstream metrics(folder / "metrics.jsonl");
  std::int64_t step = 0;
  for (const double loss : losses) {
    step += 10;
    metrics << data::Json{{"kind", "eval"},
                          {"step", step},
                          {"loss", loss},
                          {"train_seconds", static_cast<double>(step)},
                          {"seconds", 6.0}}
            << "\n";
  }
  metrics << extra;
  std::ofstream(folder / "result.json")
      << data::Json{{"task", "listops"}, {"attention", "skeinformer"}, {"test_accuracy", 0.375}};
}

}  // namespace

// Counted at revision 50e1b682, the last one that counted its products: of one head and example,
// with 24 features and width 16, at n = 320 and at n = 1,024.
TEST_CASE("the cost that a method states is the number of multiply-adds that were counted") {
  struct Counted {
    const char* method;
    attention::Cost at_320, at_1024;
  };
  const Counted all[] = {
      {"softmax", {3276800, 8192000}, {33554432, 83886080}},
      {"vmean", {0, 0}, {0, 0}},
      {"kernelized", {3276800, 8192000}, {33554432, 83886080}},
      {"skyformer", {841728, 1929216}, {1923072, 4632576}},
      {"linformer", {491520, 1105920}, {1572864, 3538944}},
      {"linformer_jlt", {3522560, 8437760}, {34340864, 84672512}},
      {"performer", {506880, 1013760}, {1622016, 3244032}},
      {"informer", {460800, 773120}, {1376256, 2310144}},
      {"informer_mask", {368640, 619520}, {1179648, 1982464}},
      {"skeinformer", {624640, 1254400}, {1998848, 4014080}},
      {"skein_nopilot", {501760, 640000}, {1605632, 2048000}},
      {"skein_uniform", {256000, 640000}, {819200, 2048000}},
      {"skein_simplenorm", {491520, 614400}, {1572864, 1966080}},
      {"skein_nonorm", {2129920, 5529600}, {18350080, 52297728}},
      {"nystrom", {841728, 1929216}, {1923072, 4632576}},
      {"nystrom_sm", {857664, 1961088}, {1972800, 4732032}},
      {"reformer", {2662400, 6553600}, {8912896, 20971520}},
      {"bigbird", {3276800, 8192000}, {18612224, 46530560}},
      {"linear_attention", {168960, 337920}, {540672, 1081344}},
      {"cosformer", {337920, 675840}, {1081344, 2162688}},
      {"synthesizer", {5017600, 13312000}, {51380224, 136314880}},
      {"luna", {509952, 1265664}, {1591296, 3969024}},
      {"local", {655360, 1638400}, {2097152, 5242880}},
      {"blockbert", {2239488, 5598720}, {16777216, 41943040}},
      {"sparse_transformer", {2097152, 5242880}, {13631488, 34078720}},
      {"longformer", {2108160, 5264896}, {7897856, 19727872}},
      {"sinkhorn", {1362320, 3380000}, {4722688, 11542528}},
      {"routing", {368640, 512000}, {2097152, 2621440}},
  };
  for (const Counted& counted : all) {
    CAPTURE(counted.method);
    const attention::Spec& spec = attention::find(counted.method);
    const attention::Cost small = spec.cost_at({320, 24, 16}), large = spec.cost_at({1024, 24, 16});
    CHECK(small.forward == counted.at_320.forward);
    CHECK(small.backward == counted.at_320.backward);
    CHECK(large.forward == counted.at_1024.forward);
    CHECK(large.backward == counted.at_1024.backward);
  }
}

TEST_CASE("the whole model's stated operations are those of a step that were counted") {
  struct Counted {
    const char* method;
    double step, forward;
  };
  for (const auto& [method, step, forward] :
       {Counted{"softmax", 436321280, 134255616}, Counted{"skyformer", 236305408, 77370368},
        Counted{"reformer", 412204032, 126915584}, Counted{"linformer", 175291392, 57742336},
        Counted{"vmean", 126303232, 42144768}}) {
    for (const bool forward_only : {false, true}) {
      BenchCase c;
      c.attention = method;
      c.n = 256;
      c.batch = 2;
      c.features = 16;
      c.steps = 1;
      c.forward_only = forward_only;
      c.attention_alone = false;
      const BenchResult r = run_bench(c);
      CAPTURE(method);
      CAPTURE(forward_only);
      CHECK(r.flops == (forward_only ? forward : step));
      CHECK_FALSE(r.attention_forward.has_value());
      CHECK(r.peak_bytes > r.fixed_bytes);
      CHECK(r.fixed_bytes > r.parameters * 4);
    }
  }
}

TEST_CASE("tables without a clock are the same each time, and hold every method") {
  std::vector<std::string> all;
  for (const attention::Spec& spec : attention::registry()) all.push_back(spec.name);
  CostOptions o = options(all);
  o.operations_n = 512;
  o.operations_features = 32;
  CHECK(to_json(parameter_table(o)) == to_json(parameter_table(o)));
  const Table operations = operation_table(o);
  CHECK(to_json(operations) == to_json(operation_table(o)));
  CHECK(operations.rows.size() == all.size());
  // Skeinformer, Table 3: 2 n^2 p and 4 n d p; the others are not in it.
  CHECK(at(operations, "paper", "softmax").number == doctest::Approx(2e-6 * 512 * 512 * 32));
  CHECK(at(operations, "paper", "skeinformer").number == doctest::Approx(4e-6 * 512 * 32 * 32));
  CHECK(at(operations, "paper", "skyformer").kind == Cell::Kind::missing);
  CHECK(at(operations, "sequential", "reformer").words == "O(log N)");

  o.features = 128;
  const Table crossover = crossover_table(o, {});
  CHECK(at(crossover, "by operations", "vmean").words == "at all lengths");
  CHECK(at(crossover, "by operations", "linformer_jlt").words == "not up to 65536");
  // 7 N^2 D = 13 N k D at N = 13 k / 7.
  CHECK(at(crossover, "by operations", "linformer").words == "from 238 on");
  CHECK(at(crossover, "by time", "linformer").kind == Cell::Kind::missing);
}

TEST_CASE("curves cross where the first falls below the second for good") {
  const std::vector<double> x = {100, 200, 400}, flat = {10, 10, 10};
  using Where = Crossing::Where;
  CHECK(crossing(x, {9, 9, 9}, flat).where == Where::below);
  CHECK(crossing(x, {11, 10, 10}, flat).where == Where::never);
  CHECK(crossing(x, {9, 9, 11}, flat).where == Where::never);
  const Crossing between = crossing(x, {20, 5, 5}, flat);
  CHECK(between.where == Where::at);
  CHECK(between.x == doctest::Approx(100 * std::sqrt(2)));  // half way on log axes
  CHECK(crossing(x, {9, 11, 9}, flat).x > 200);             // the second time
}

TEST_CASE(
    "time and memory of the recipe's batch follow from the measured examples, and the largest "
    "batch that fits does fit") {
  CostOptions o = options({"vmean"});
  const Table table = task_table(o);
  REQUIRE(table.rows.size() == 1);
  const double example_ms = at(table, "ms/example", "listops", "vmean").number;
  CHECK(at(table, "h/50k steps", "listops", "vmean").number ==
        doctest::Approx(example_ms * 32 * 50 / 3600));
  CHECK(at(table, "of softmax", "listops", "vmean").kind == Cell::Kind::missing);  // not measured
  CHECK(at(table, "paper", "listops", "vmean").kind == Cell::Kind::missing);

  const double example_gb = 1e-3 * at(table, "MB/example", "listops", "vmean").number;
  o.limit_gb = 3.5 * example_gb;  // the model itself is small: two or three examples
  const double fits =
      at(task_table(o), fmt::format("fit {:g} GB", *o.limit_gb), "listops", "vmean").number;
  CHECK(fits >= 2);
  CHECK(fits <= 3);
  o.limit_gb = 1e-4;
  CHECK(at(task_table(o), "fit 0.0001 GB", "listops", "vmean").number == 0);
}

TEST_CASE("memory of an example does not depend on what a recipe accumulates, nor on the caches") {
  const auto megabytes = [](const char* recipe, const char* method, std::int64_t batch,
                            int threads) {
    const int before = thread_count();
    set_threads(threads);
    CostOptions o = options({method});
    o.tasks = {"image"};
    o.recipe = recipe;
    o.batch = batch;
    const Table table = task_table(o);
    set_threads(before);
    // A recipe's batch over its accumulation, at most.
    CHECK(at(table, "at once", "image", method).number <=
          at(table, "batch", "image", method).number);
    return at(table, "MB/example", "image", method).number;
  };
  // Recipe skeinformer accumulates 2 for skein_nonorm on Image: more than one example.
  const double one = megabytes("skeinformer", "skein_nonorm", 1, 1);
  CHECK(megabytes("skeinformer", "skein_nonorm", 3, 1) == doctest::Approx(one).epsilon(0.02));
  const double softmax = megabytes("skyformer", "softmax", 1, 1);
  for (const std::int64_t batch : {2, 5}) {
    for (const int threads : {1, 2}) {
      CAPTURE(batch);
      CAPTURE(threads);
      CHECK(megabytes("skyformer", "softmax", batch, threads) ==
            doctest::Approx(softmax).epsilon(0.02));
    }
  }
}

TEST_CASE("Linformer's table leaves out what is no projection and what would not fit") {
  CostOptions o = options({});
  o.inference_lengths = {64};
  o.projected = {16, 64};
  o.tokens = 64;
  const Table table = inference_table(o);
  REQUIRE(table.rows.size() == 1);  // k = 64 is no shorter
  CHECK(table.rows[0][6].kind == Cell::Kind::number);
  o.materialised_gb = 0;
  CHECK(inference_table(o).rows[0][6].kind == Cell::Kind::missing);
}

TEST_CASE("the papers' cells are found, and only those that they have") {
  using Figure = PaperFigure;
  CHECK(paper_figure(Figure::skyformer_hours, "skyformer", "text") == 1.02);
  CHECK(paper_figure(Figure::skyformer_gigabytes, "softmax", "image") == 11.47);
  CHECK_FALSE(paper_figure(Figure::skyformer_hours, "vmean", "text").has_value());
  CHECK_FALSE(paper_figure(Figure::skyformer_hours, "softmax", "pathx").has_value());
  CHECK(paper_figure(Figure::skeinformer_minutes, "vmean", "text") == 3.62);
  CHECK(paper_figure(Figure::skeinformer_examples, "skein_nonorm", "retrieval") == 4);
  CHECK(paper_figure(Figure::convergence_kilosteps, "softmax", "text") == 10.67);
  CHECK(paper_figure(Figure::convergence_minutes, "skein_nopilot", "image") == 63.51);
  CHECK(paper_figure(Figure::skeinformer_minutes, kWithoutDropout, "retrieval") == 41.88);
  CHECK(paper_figure(Figure::skeinformer_examples, kWithoutDropout, "listops") == 32);
  CHECK(paper_figure(Figure::convergence_kilosteps, kWithoutDropout, "pathfinder") == 17.58);
  CHECK(paper_figure(Figure::convergence_minutes, kWithoutDropout, "image") == 63.01);
  CHECK_FALSE(paper_figure(Figure::skyformer_hours, kWithoutDropout, "text").has_value());
  CHECK(paper_row("softmax", 0) == kWithoutDropout);
  CHECK(paper_row("softmax", 0.1) == "softmax");
  CHECK(paper_row("kernelized", 0) == "kernelized");
  CHECK(linformer_gain(65536, 2048)->times_less_memory == 18);
  CHECK_FALSE(linformer_gain(512, 512).has_value());
  CHECK(paper_figure(Figure::instability, "kernelized", "retrieval") == 0.64);
}

TEST_CASE("Linformer's fine-tuned rows give their averages, and their page is right") {
  // Linformer, Table 2: accuracy on dev after fine-tuning, in percent, the columns in its order.
  struct FineTuned {
    int n;
    std::string_view model;
    int k;                     // 0: exact attention
    std::string_view sharing;  // as option linformer.sharing calls it; of exact attention nothing
    double sst2, imdb, qnli, qqp, average;
  };
  constexpr FineTuned rows[] = {
      // n, model, k, sharing, SST-2, IMDB, QNLI, QQP, average
      {512, "RoBERTa-base", 0, "", 93.1, 94.1, 90.9, 90.9, 92.25},
      {512, "Linformer", 128, "none", 92.4, 94.0, 90.4, 90.2, 91.75},
      {512, "Linformer", 128, "keyvalue", 93.4, 93.4, 90.3, 90.3, 91.85},
      {512, "Linformer", 128, "layerwise", 93.2, 93.8, 90.1, 90.2, 91.83},
      {512, "Linformer", 256, "none", 93.2, 94.0, 90.6, 90.5, 92.08},
      {512, "Linformer", 256, "keyvalue", 93.3, 93.6, 90.6, 90.6, 92.03},
      {512, "Linformer", 256, "layerwise", 93.1, 94.1, 91.2, 90.8, 92.30},
      {512, "BERT-base", 0, "", 92.7, 93.5, 91.8, 89.6, 91.90},
      {512, "distilled BERT", 0, "", 91.3, 92.8, 89.2, 88.5, 90.45},
      {1024, "Linformer", 256, "none", 93.0, 93.8, 90.4, 90.4, 91.90},
      {1024, "Linformer", 256, "keyvalue", 93.0, 93.6, 90.3, 90.4, 91.83},
      {1024, "Linformer", 256, "layerwise", 93.2, 94.2, 90.8, 90.5, 92.18},
  };
  double least = 100, exact = 0;
  for (const FineTuned& row : rows) {
    CAPTURE(row.model);
    CAPTURE(row.n);
    CAPTURE(row.sharing);
    CHECK(std::abs((row.sst2 + row.imdb + row.qnli + row.qqp) / 4 - row.average) < 0.0051);
    CHECK((row.k == 0) == row.sharing.empty());
    if (row.model == "RoBERTa-base") exact = row.imdb;
    if (row.k > 0 && row.n == 512) least = std::min(least, row.imdb);
  }
  const std::string page = data::synthetic::read_file("train/results/masked-language.md");
  CHECK(page.find(fmt::format("where the paper's loses up to {:.1f}", exact - least)) !=
        std::string::npos);
  CHECK(page.find(fmt::format("(its Table 2: {:.1f} exact, {:.1f} at least)", exact, least)) !=
        std::string::npos);
}

TEST_CASE("convergence: early stopping is applied to what the runs wrote") {
  const Folder folder;
  make_run(folder.path() / "stops", {3, 2, 2.5, 2.1, 1});
  make_run(folder.path() / "ends", {3, 2, 1});
  std::filesystem::create_directories(folder.path() / "unfinished");
  const Table table = convergence_table(folder.path(), 2);
  REQUIRE(table.rows.size() == 2);
  CHECK(at(table, "best dev loss", "stops").number == 2);
  CHECK(at(table, "at kstep", "stops").number == doctest::Approx(0.020));
  CHECK(at(table, "stop at kstep", "stops").number == doctest::Approx(0.040));
  CHECK(at(table, "train min", "stops").number == doctest::Approx(40.0 / 60));
  CHECK(at(table, "total min", "stops").number == doctest::Approx((40.0 + 4 * 6) / 60));
  CHECK(at(table, "paper kstep", "stops").number == 7.32);
  CHECK(at(table, "at kstep", "ends").number == doctest::Approx(0.030));
  CHECK(at(table, "stop at kstep", "ends").kind == Cell::Kind::missing);
  CHECK(at(table, "train min", "ends").kind == Cell::Kind::missing);
}

TEST_CASE(
    "convergence: a softmax run without attention dropout stands beside the papers' such row") {
  const Folder folder;
  for (const char* dropout : {"0.1", "0"}) {
    make_run(folder.path() / dropout, {3, 2});
    std::ofstream(folder.path() / dropout / "result.json")
        << data::Json{{"task", "image"},
                      {"attention", "softmax"},
                      {"test_accuracy", 0.375},
                      {"settings", {{"attention_dropout", {{"value", dropout}}}}}};
  }
  const Table table = convergence_table(folder.path(), 2);
  CHECK(at(table, "paper kstep", "0.1").number == 4.33);
  CHECK(at(table, "paper kstep", "0").number == 4.23);
  CHECK(at(table, "paper min", "0").number == 63.01);
}

TEST_CASE("convergence names what is wrong with a run's files") {
  const Folder folder;
  CHECK(error_of([&] { (void)convergence_table(folder.path() / "absent", 2); }).find("absent") !=
        std::string::npos);
  CHECK(error_of([&] {
          (void)convergence_table(folder.path(), 2);
        }).find("holds no finished run") != std::string::npos);
  const auto error_with = [&](const char* line) {
    make_run(folder.path() / "run", {3, 2}, line);
    return error_of([&] { (void)convergence_table(folder.path(), 2); });
  };
  CHECK(error_with(R"({"kind": "eval", "step": 30, "loss": 1, "seconds": 6})")
            .find("key 'train_seconds' not found") != std::string::npos);
  CHECK(error_with(R"({"kind": "eval", "step": )").empty());  // a kill cut it off
}
